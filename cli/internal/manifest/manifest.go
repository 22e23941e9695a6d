// Package manifest reads the files of a user: ExternalSecrets, and the objects
// that templates are read from. What a file says besides is not its business.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"
)

// Stdin is the name of the file that is the standard input.
const Stdin = "-"

// Object holds templates.
type Object struct {
	offline.Object

	// Namespace is empty where the file names none: the object is then of any.
	Namespace string
	// Content of the object.
	Content map[string]string
}

// Manifest is what a file holds.
type Manifest struct {
	// ExternalSecrets in the order of the file.
	ExternalSecrets []*esv1.ExternalSecret
	// Objects that templates may be read from.
	Objects []Object
}

// Contents are the objects that an ExternalSecret of a namespace sees. Of two
// that are alike the later one counts.
func Contents(objects []Object, namespace string) offline.Objects {
	contents := offline.Objects{}

	for _, object := range objects {
		if object.Namespace == "" || namespace == "" || object.Namespace == namespace {
			contents[object.Object] = object.Content
		}
	}

	return contents
}

// Bytes of a file, or of the standard input.
func Bytes(file string, stdin io.Reader) ([]byte, error) {
	var (
		data []byte
		err  error
	)

	if file == Stdin {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(file)
	}

	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", Name(file), err)
	}

	return data, nil
}

// Name of a file for people.
func Name(file string) string {
	if file == Stdin {
		return "standard input"
	}

	return file
}

// Read reads a file of YAML or JSON documents.
func Read(file string, stdin io.Reader) (*Manifest, error) {
	data, err := Bytes(file, stdin)
	if err != nil {
		return nil, err
	}

	m := &Manifest{}
	documents := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))

	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}

		if err == nil {
			err = m.document(document)
		}

		if err != nil {
			return nil, fmt.Errorf("cannot read %s: document %d: %w", Name(file), n, err)
		}
	}
}

// header of an object.
type header struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (m *Manifest) document(document []byte) error {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}

	if string(text) == "null" {
		return nil
	}

	return m.object(text)
}

func (m *Manifest) object(text []byte) error {
	var head header
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return fmt.Errorf("it is no Kubernetes object: %w", err)
	}

	name := fmt.Sprintf("%s %q", head.Kind, head.Metadata.Name)
	group := head.GroupVersionKind().Group

	switch {
	case head.APIVersion == "v1" && head.Kind == "List":
		for i, item := range head.Items {
			if err := m.object(item); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
	case group == esv1.Group && head.Kind == esv1.ExternalSecretKind:
		return m.externalSecret(name, head, text)
	case head.APIVersion == "v1" && head.Kind == offline.KindConfigMap:
		object := &corev1.ConfigMap{}
		if err := strict(name, text, object); err != nil {
			return err
		}

		m.add(head, object.Data)
	case head.APIVersion == "v1" && head.Kind == offline.KindSecret:
		object := &corev1.Secret{}
		if err := strict(name, text, object); err != nil {
			return err
		}

		content := make(map[string]string, len(object.Data)+len(object.StringData))
		for key, value := range object.Data {
			content[key] = string(value)
		}

		maps.Copy(content, object.StringData)
		m.add(head, content)
	}

	return nil
}

func (m *Manifest) externalSecret(name string, head header, text []byte) error {
	if head.APIVersion != esv1.GroupVersion.String() {
		return fmt.Errorf("%s is of %s: set its apiVersion to %s", name, head.APIVersion, esv1.GroupVersion)
	}

	if head.Metadata.Name == "" {
		return errors.New("an ExternalSecret has no metadata.name")
	}

	es := &esv1.ExternalSecret{}
	if err := strict(name, text, es); err != nil {
		return err
	}

	m.ExternalSecrets = append(m.ExternalSecrets, es)

	return nil
}

func (m *Manifest) add(head header, content map[string]string) {
	m.Objects = append(m.Objects, Object{
		Object:    offline.Object{Kind: head.Kind, Name: head.Metadata.Name},
		Namespace: head.Metadata.Namespace, Content: content,
	})
}

// strict refuses fields that the kind does not have, with their path.
func strict(name string, text []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(text, into)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	return nil
}
