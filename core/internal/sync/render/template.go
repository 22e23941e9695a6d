package render

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// template applies spec.target.template. Without one, the target gets the
// labels and annotations of the ExternalSecret.
func (r *Renderer) template(es *esv1.ExternalSecret, target *Target, objects Objects) error {
	if es.Spec.Target == nil || es.Spec.Target.Template == nil {
		target.Labels, target.Annotations = maps.Clone(es.Labels), shared(es.Annotations)

		return nil
	}

	t := es.Spec.Target.Template
	target.Type = t.Type
	target.Labels, target.Annotations = map[string]string{}, map[string]string{}

	s := &scope{renderer: r, target: target, objects: objects, data: make(map[string]string, len(target.Data))}
	for key, value := range target.Data {
		s.data[key] = string(value)
	}

	if (len(t.Data) > 0 || len(t.TemplateFrom) > 0) && t.MergePolicy != esv1.TemplateMerge {
		target.Data = map[string][]byte{}
	}

	for i := range t.TemplateFrom {
		if err := s.from(fmt.Sprintf("spec.target.template.templateFrom[%d]", i), &t.TemplateFrom[i]); err != nil {
			return err
		}
	}

	for _, key := range slices.Sorted(maps.Keys(t.Data)) {
		text, err := s.render("spec.target.template.data["+key+"]", t.Data[key])
		if err != nil {
			return err
		}

		target.Data[key] = text
	}

	return s.metadata(t.Metadata)
}

// scope is what one target's templates work with.
type scope struct {
	renderer *Renderer
	target   *Target
	objects  Objects
	data     map[string]string
}

func (s *scope) render(name, text string) ([]byte, error) {
	return s.renderer.templates.Render(name, text, s.data)
}

// from applies one entry of templateFrom.
func (s *scope) from(field string, from *esv1.TemplateFrom) error {
	if from.Literal != nil {
		if err := s.keysAndValues(field+".literal", *from.Literal, from); err != nil {
			return err
		}
	}

	for _, source := range []struct {
		object plan.Object
		field  string
		source *esv1.TemplateSource
	}{
		{object: plan.Object{Kind: plan.KindConfigMap}, field: field + ".configMap", source: from.ConfigMap},
		{object: plan.Object{Kind: plan.KindSecret}, field: field + ".secret", source: from.Secret},
	} {
		if source.source == nil {
			continue
		}

		source.object.Name = source.source.Name
		if err := s.object(source.field, source.object, source.source.Items, from); err != nil {
			return err
		}
	}

	return nil
}

func (s *scope) object(field string, object plan.Object, items []esv1.TemplateItem, from *esv1.TemplateFrom) error {
	content, ok := s.objects[object]
	if !ok {
		return fmt.Errorf("%s: %s does not exist", field, object)
	}

	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", field, i)

		text, ok := content[item.Key]
		if !ok {
			return fmt.Errorf("%s: %s has no key %q", at, object, item.Key)
		}

		name := fmt.Sprintf("%s (%s, key %q)", at, object, item.Key)

		if item.TemplateAs == esv1.TemplateAsKeysAndValues {
			if err := s.keysAndValues(name, text, from); err != nil {
				return err
			}

			continue
		}

		rendered, err := s.render(name, text)
		if err != nil {
			return err
		}

		if err := s.set(name, from, item.Key, rendered); err != nil {
			return err
		}
	}

	return nil
}

// yamlLine finds in an error of the YAML parser where it is; the rest of the
// text quotes values.
var yamlLine = regexp.MustCompile(`line \d+`)

// keysAndValues renders a template to a YAML map and takes its keys.
func (s *scope) keysAndValues(name, text string, from *esv1.TemplateFrom) error {
	rendered, err := s.render(name, text)
	if err != nil {
		return err
	}

	if path := s.path(from); path != nil {
		return s.graft(name, path, rendered)
	}

	var values map[string]string

	if err := yaml.Unmarshal(rendered, &values); err != nil {
		where := yamlLine.FindString(err.Error())
		if where != "" {
			where = " (" + where + " of what it renders to)"
		}

		return fmt.Errorf("%s: it does not render to a YAML map of texts%s", name, where)
	}

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := s.set(name, from, key, []byte(values[key])); err != nil {
			return err
		}
	}

	return nil
}

// set puts a rendered value where the entry says.
func (s *scope) set(name string, from *esv1.TemplateFrom, key string, value []byte) error {
	decoded, err := decode(from.ValuesDecodingStrategy, value)
	if err != nil {
		return fmt.Errorf("%s: the value of key %q is not %s: valuesDecodingStrategy says that it is", name, key, from.ValuesDecodingStrategy)
	}

	if path := s.path(from); path != nil {
		return put(s.target, append(path, plan.Step{Field: key, Index: -1}), string(decoded))
	}

	switch strings.ToLower(from.Target) {
	case "labels":
		s.target.Labels[key] = string(decoded)
	case "annotations":
		s.target.Annotations[key] = string(decoded)
	default:
		s.target.Data[key] = decoded
	}

	return nil
}

// metadata renders labels and annotations, which win over those of
// templateFrom.
func (s *scope) metadata(metadata *esv1.TemplateMetadata) error {
	if metadata == nil {
		return nil
	}

	s.target.Finalizers = slices.Clone(metadata.Finalizers)

	for _, part := range []struct {
		name     string
		from, to map[string]string
	}{
		{name: "labels", from: metadata.Labels, to: s.target.Labels},
		{name: "annotations", from: metadata.Annotations, to: s.target.Annotations},
	} {
		for _, key := range slices.Sorted(maps.Keys(part.from)) {
			text, err := s.render("spec.target.template.metadata."+part.name+"["+key+"]", part.from[key])
			if err != nil {
				return err
			}

			part.to[key] = string(text)
		}
	}

	return nil
}
