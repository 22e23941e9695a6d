package tenancy

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// Universe is what the cases of a test have in common.
type Universe struct {
	// Namespaces and their labels.
	Namespaces map[string]map[string]string
	// Registrations of providers that all serve one kind of config.
	Registrations []Registration
	// Unregistered are addresses without a registration.
	Unregistered []string
	// Configs are the namespaces that hold a provider config.
	Configs []string
}

// Registration of a provider.
type Registration struct {
	// Name of the SecretProvider.
	Name string
	// Spellings of its address; the first is the one that is registered.
	Spellings []string
	// Allowed are the namespaces whose configs may use it; empty means all.
	Allowed []string
}

// Case is a store and a namespace that uses it.
type Case struct {
	// Universe that the case lies in.
	Universe *Universe
	// Cluster means that it is a ClusterSecretStore.
	Cluster bool
	// Home is the namespace of a SecretStore.
	Home string
	// ConfigNamespace is spec.providerConfig.providerRef.namespace.
	ConfigNamespace string
	// Address is spec.providerConfig.address.
	Address string
	// Scope and Conditions of a ClusterSecretStore.
	Scope      v2alpha1.AuthenticationScope
	Conditions []v2alpha1.NamespaceCondition
	// User is the namespace of the ExternalSecret.
	User string
}

// Verdict on a case.
type Verdict struct {
	// Denied says why the user gets nothing; empty means that it is served.
	Denied string
	// Provider, by its registration's name, that is asked.
	Provider string
	// Config is the namespace of the config.
	Config string
	// Authentication is the namespace in which credentials resolve.
	Authentication string
}

// Verdict says what must become of the case.
func (c Case) Verdict() Verdict {
	if why := c.admission(); why != "" {
		return Verdict{Denied: why}
	}

	config, why := c.config()
	if why != "" {
		return Verdict{Denied: why}
	}

	provider, why := c.provider(config)
	if why != "" {
		return Verdict{Denied: why}
	}

	v := Verdict{Provider: provider, Config: config, Authentication: config}
	if c.Cluster && c.Scope == v2alpha1.AuthenticationScopeManifestNamespace {
		v.Authentication = c.User
	}

	return v
}

// admission: a SecretStore serves its own namespace, a ClusterSecretStore those
// that any of its conditions matches.
func (c Case) admission() string {
	if !c.Cluster {
		if c.User != c.Home {
			return "a SecretStore serves its own namespace only"
		}

		return ""
	}

	admitted := len(c.Conditions) == 0

	for _, condition := range c.Conditions {
		for _, expression := range condition.NamespaceRegexes {
			whole, err := regexp.Compile(expression)
			if err != nil {
				return "an invalid expression admits no namespace"
			}

			whole.Longest()

			if at := whole.FindStringIndex(c.User); at != nil && at[0] == 0 && at[1] == len(c.User) {
				admitted = true
			}
		}

		if slices.Contains(condition.Namespaces, c.User) || condition.NamespaceSelector != nil && selects(condition.NamespaceSelector, c.Universe.Namespaces[c.User]) {
			admitted = true
		}
	}

	if !admitted {
		return "no condition matches the namespace"
	}

	return ""
}

// selects is a selector's meaning, as the API's documentation has it.
func selects(selector *metav1.LabelSelector, labels map[string]string) bool {
	for name, value := range selector.MatchLabels {
		if has, ok := labels[name]; !ok || has != value {
			return false
		}
	}

	for _, expression := range selector.MatchExpressions {
		value, has := labels[expression.Key]

		var holds bool

		switch expression.Operator {
		case metav1.LabelSelectorOpIn:
			holds = has && slices.Contains(expression.Values, value)
		case metav1.LabelSelectorOpNotIn:
			holds = !has || !slices.Contains(expression.Values, value)
		case metav1.LabelSelectorOpExists:
			holds = has
		case metav1.LabelSelectorOpDoesNotExist:
			holds = !has
		}

		if !holds {
			return false
		}
	}

	return true
}

// config: a SecretStore's is in its own namespace, a ClusterSecretStore's where
// it says.
func (c Case) config() (namespace, denied string) {
	namespace = c.ConfigNamespace

	switch {
	case c.Cluster && namespace == "":
		return "", "a ClusterSecretStore names its config's namespace"
	case !c.Cluster && namespace == "":
		namespace = c.Home
	case !c.Cluster && namespace != c.Home:
		return "", "a SecretStore uses configs of its own namespace only"
	}

	if !slices.Contains(c.Universe.Configs, namespace) {
		return "", "there is no such config"
	}

	return namespace, ""
}

// provider: the one that the address names, or else the only one that serves
// the config's namespace.
func (c Case) provider(config string) (name, denied string) {
	var serving []string

	for _, r := range c.Universe.Registrations {
		if (len(r.Allowed) == 0 || slices.Contains(r.Allowed, config)) && (c.Address == "" || slices.Contains(r.Spellings, c.Address)) {
			serving = append(serving, r.Name)
		}
	}

	switch len(serving) {
	case 0:
		return "", "no registration allows it"
	case 1:
		return serving[0], ""
	default:
		return "", "several registrations would do"
	}
}
