package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// Kinds of objects that templates are read from.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
)

// Object names an object of the ExternalSecret's namespace that holds
// templates.
type Object struct {
	// Kind is KindConfigMap or KindSecret.
	Kind string
	Name string
}

// String names the object, for messages.
func (o Object) String() string { return fmt.Sprintf("%s %q", o.Kind, o.Name) }

// Objects that an ExternalSecret's templates are read from, without
// repetition.
func Objects(es *esv1.ExternalSecret) []Object {
	if es.Spec.Target == nil || es.Spec.Target.Template == nil {
		return nil
	}

	var (
		objects []Object
		seen    = map[Object]bool{}
	)

	add := func(kind string, source *esv1.TemplateSource) {
		if source == nil {
			return
		}

		object := Object{Kind: kind, Name: source.Name}
		if !seen[object] {
			seen[object] = true
			objects = append(objects, object)
		}
	}

	for _, from := range es.Spec.Target.Template.TemplateFrom {
		add(KindConfigMap, from.ConfigMap)
		add(KindSecret, from.Secret)
	}

	return objects
}

// Types of Secrets that give their readers an identity in the cluster:
// they are never created, and never written.
const (
	TypeServiceAccountToken = "kubernetes.io/service-account-token"
	TypeBootstrapToken      = "bootstrap.kubernetes.io/token"
)

// ForbiddenType reports whether a Secret of a type is never written.
func ForbiddenType(secretType string) bool {
	return secretType == TypeServiceAccountToken || secretType == TypeBootstrapToken
}

func (b *builder) template() {
	if b.es.Spec.Target == nil || b.es.Spec.Target.Template == nil {
		return
	}

	t := b.es.Spec.Target.Template
	if ForbiddenType(t.Type) {
		b.problem("spec.target.template.type %s is refused: such a Secret gives its reader an identity in the cluster", t.Type)
	}

	for i, from := range t.TemplateFrom {
		field := fmt.Sprintf("spec.target.template.templateFrom[%d]", i)

		if from.ConfigMap == nil && from.Secret == nil && from.Literal == nil {
			b.problem("%s is empty: set configMap, secret or literal", field)
		}

		switch strings.ToLower(from.Target) {
		case "", "data", "labels", "annotations":
		default:
			if b.plan.Target.IsSecret() {
				b.problem("%s.target %q: a Secret has Data, Labels and Annotations", field, from.Target)
			} else if _, err := ParsePath(from.Target); err != nil {
				b.problem("%s.target: %v", field, err)
			}
		}
	}
}

// maxIndex bounds the index of a list in a path.
const maxIndex = 10000

// Step of a path into an object: a field, or the index of a list.
type Step struct {
	Field string
	// Index of the list; -1 where the step is a field.
	Index int
}

// pathPart is a field with the indices that follow it.
var pathPart = regexp.MustCompile(`^([-a-zA-Z0-9_/]+)((?:\[\d{1,5}\])*)$`)

// ParsePath reads a dotted path such as spec.hosts[0].name.
func ParsePath(path string) ([]Step, error) {
	var steps []Step

	for part := range strings.SplitSeq(path, ".") {
		match := pathPart.FindStringSubmatch(part)
		if match == nil {
			return nil, fmt.Errorf("%q is no path such as spec.hosts[0].name", path)
		}

		steps = append(steps, Step{Field: match[1], Index: -1})

		for index := range strings.SplitSeq(strings.Trim(match[2], "[]"), "][") {
			if index == "" {
				continue
			}

			n, err := strconv.Atoi(index)
			if err != nil || n > maxIndex {
				return nil, fmt.Errorf("%q: the index %s is more than %d", path, index, maxIndex)
			}

			steps = append(steps, Step{Index: n})
		}
	}

	switch strings.ToLower(steps[0].Field) {
	case "apiversion", "kind", "metadata", "status":
		return nil, fmt.Errorf("%q: a template does not set %s", path, steps[0].Field)
	}

	return steps, nil
}
