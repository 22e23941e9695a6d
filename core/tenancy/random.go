package tenancy

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// expressions that a careless reader takes for others.
func expressions() []string {
	return []string{
		"team-a", "team", "team-.*", ".*-a", "^team-a$", "^team", "a$", "team|x", "(?m)^team$", "team-[ab]", ".*", "te(am", "x)|(.*", "(?i)TEAM-A", "team-a.", `team\-a`, "t.*",
	}
}

// RandomUniverse returns a random universe.
func RandomUniverse(rng *rand.Rand) *Universe {
	u := &Universe{Namespaces: map[string]map[string]string{}, Unregistered: []string{"evil.example.com:443", "dns:///vault.eso.svc:8444", "unix:///run/docker.sock", "http://vault.eso.svc:8443"}}

	for _, name := range []string{"team-a", "team-b", "team", "a", "x-team-a", "platform"} {
		labels := map[string]string{}
		if rng.IntN(2) == 0 {
			labels["team"] = pick(rng, []string{"a", "b", ""})
		}

		if rng.IntN(3) == 0 {
			labels["kind"] = "tenant"
		}

		u.Namespaces[name] = labels

		if rng.IntN(4) > 0 {
			u.Configs = append(u.Configs, name)
		}
	}

	for i := range rng.IntN(4) {
		r := Registration{
			Name: fmt.Sprintf("provider-%d", i),
			Spellings: []string{
				fmt.Sprintf("dns:///provider-%d.eso.svc:8443", i), fmt.Sprintf("provider-%d.eso.svc:8443", i),
				fmt.Sprintf("https://provider-%d.eso.svc:8443", i), fmt.Sprintf("https://PROVIDER-%d.eso.svc.:8443/", i),
			},
		}

		for _, name := range u.names() {
			if rng.IntN(3) == 0 {
				r.Allowed = append(r.Allowed, name)
			}
		}

		u.Registrations = append(u.Registrations, r)
	}

	return u
}

// Random returns a random case.
func (u *Universe) Random(rng *rand.Rand) Case {
	names := u.names()
	c := Case{Universe: u, Cluster: rng.IntN(2) == 0, User: pick(rng, names)}

	if rng.IntN(2) == 0 {
		c.Address = u.address(rng)
	}

	if c.Cluster {
		c.Scope = pick(rng, []v2alpha1.AuthenticationScope{"", v2alpha1.AuthenticationScopeProviderNamespace, v2alpha1.AuthenticationScopeManifestNamespace})

		c.ConfigNamespace = pick(rng, append(names, ""))
		for range rng.IntN(3) {
			c.Conditions = append(c.Conditions, condition(rng, names))
		}

		return c
	}

	c.Home = c.User
	if rng.IntN(4) == 0 {
		c.Home = pick(rng, names)
	}

	switch rng.IntN(4) {
	case 0:
		c.ConfigNamespace = pick(rng, names)
	case 1:
		c.ConfigNamespace = c.Home
	}

	return c
}

func (u *Universe) names() []string {
	names := make([]string, 0, len(u.Namespaces))
	for name := range u.Namespaces {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

func (u *Universe) address(rng *rand.Rand) string {
	if len(u.Registrations) == 0 || rng.IntN(4) == 0 {
		return pick(rng, u.Unregistered)
	}

	return pick(rng, pick(rng, u.Registrations).Spellings)
}

func condition(rng *rand.Rand, names []string) v2alpha1.NamespaceCondition {
	var c v2alpha1.NamespaceCondition

	for range rng.IntN(3) {
		switch rng.IntN(3) {
		case 0:
			c.Namespaces = with(c.Namespaces, pick(rng, names))
		case 1:
			c.NamespaceRegexes = with(c.NamespaceRegexes, pick(rng, expressions()))
		default:
			c.NamespaceSelector = selector(rng)
		}
	}

	return c
}

// with adds to a set: the API server refuses a condition that names one twice.
func with(set []string, member string) []string {
	if slices.Contains(set, member) {
		return set
	}

	return append(set, member)
}

func selector(rng *rand.Rand) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}

	for range rng.IntN(3) {
		key := pick(rng, []string{"team", "kind", "absent"})

		switch rng.IntN(5) {
		case 0:
			s.MatchLabels = map[string]string{key: pick(rng, []string{"a", "b", "tenant", ""})}
		case 1:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "tenant"}})
		case 2:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}})
		case 3:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		default:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
	}

	return s
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
