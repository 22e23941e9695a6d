// Package values reads what stores hold out of a file, and answers as a
// provider would. An error never holds a value.
package values

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/core/offline"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/cli/internal/manifest"
)

// Values are what the stores of a file hold.
type Values struct {
	file   string
	stores map[string]store
}

var _ offline.Stores = (*Values)(nil)

// store is what one store holds: secrets by key.
type store map[string]secret

// secret is its versions, the latest last.
type secret []version

// of an id.
func (s secret) of(id string) secret {
	return slices.DeleteFunc(slices.Clone(s), func(v version) bool { return v.id != id })
}

type version struct {
	id       string
	raw      []byte
	metadata map[string]string
}

// Read reads a file.
func Read(file string, stdin io.Reader) (*Values, error) {
	data, err := manifest.Bytes(file, stdin)
	if err != nil {
		return nil, err
	}

	name := manifest.Name(file)

	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}

	var raw map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("cannot read %s: it is no map of stores, each a map of keys to values", name)
	}

	v := &Values{file: name, stores: map[string]store{}}

	for _, at := range slices.Sorted(maps.Keys(raw)) {
		if err := validName(at); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}

		v.stores[at] = store{}

		for _, key := range slices.Sorted(maps.Keys(raw[at])) {
			parsed, err := parse(raw[at][key])
			if err != nil {
				return nil, fmt.Errorf("cannot read %s: store %s: key %q: %w", name, at, key, err)
			}

			v.stores[at][key] = parsed
		}
	}

	return v, nil
}

func validName(at string) error {
	kind, _, qualified := strings.Cut(at, "/")
	if qualified && kind != v2alpha1.SecretStoreKind && kind != v2alpha1.ClusterSecretStoreKind {
		return fmt.Errorf("store %q: name it SecretStore/<name>, ClusterSecretStore/<name>, or <name> for either", at)
	}

	return nil
}

// entry is a secret with more than a value.
type entry struct {
	Version  string            `json:"version"`
	Value    json.RawMessage   `json:"value"`
	Binary   *string           `json:"binary"`
	Metadata map[string]string `json:"metadata"`
}

// parse reads a secret: a text, a JSON object, {binary: <base64>}, or a list of
// versions.
func parse(text json.RawMessage) (secret, error) {
	if text[0] != '[' {
		raw, err := parseValue(text)

		return secret{{raw: raw}}, err
	}

	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("it is no list")
	}

	if len(list) == 0 {
		return nil, errors.New("it has no version: leave the key out where there is no secret")
	}

	versions := make(secret, 0, len(list))

	for i, item := range list {
		parsed, err := parseEntry(item)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}

		versions = append(versions, parsed)
	}

	return versions, nil
}

func parseEntry(text json.RawMessage) (version, error) {
	var e entry

	unknown, err := kjson.UnmarshalStrict(text, &e)

	switch {
	case err != nil:
		return version{}, errors.New("it is no version: a map with version, value or binary, and metadata, all texts; write a JSON array as a text")
	case len(unknown) > 0:
		return version{}, errors.Join(unknown...)
	case (e.Value == nil) == (e.Binary == nil):
		return version{}, errors.New("set one of value and binary")
	}

	v := version{id: e.Version, metadata: e.Metadata}
	if e.Binary != nil {
		v.raw, err = parseBinary(*e.Binary)
	} else {
		v.raw, err = parseValue(e.Value)
	}

	return v, err
}

func parseValue(text json.RawMessage) ([]byte, error) {
	switch text[0] {
	case '"':
		var value string
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, errors.New("it is no text")
		}

		return []byte(value), nil
	case '{':
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, errors.New("it is no JSON object")
		}

		var encoded string
		if binary, ok := fields["binary"]; ok && len(fields) == 1 && json.Unmarshal(binary, &encoded) == nil {
			return parseBinary(encoded)
		}

		return text, nil
	default:
		return nil, errors.New("it is neither a text nor a map: put it in quotes")
	}
}

func parseBinary(encoded string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("binary is not base64")
	}

	return raw, nil
}

// Open gives what the file holds for a store: under its kind and name, or under
// its name alone.
func (v *Values) Open(s offline.Store, _ string) (offline.Contents, error) {
	for _, at := range []string{s.Kind + "/" + s.Name, s.Name} {
		if held, ok := v.stores[at]; ok {
			return contents{held}, nil
		}
	}

	return nil, fmt.Errorf("%s holds nothing for %s: give it an entry %s/%s, if need be an empty one; it has %s",
		v.file, s, s.Kind, s.Name, listed(slices.Sorted(maps.Keys(v.stores))))
}

func listed(names []string) string {
	const shown = 10

	switch {
	case len(names) == 0:
		return "none"
	case len(names) > shown:
		names = append(names[:shown], "others")
	}

	return strings.Join(names, ", ")
}

// contents answers as a provider would.
type contents struct{ held store }

var _ offline.Contents = contents{}

func (c contents) Value(ctx context.Context, read offline.Read) ([]byte, error) {
	result := c.read(ctx, read, provider.Value)

	return result.Value, result.Err
}

func (c contents) Map(ctx context.Context, read offline.Read) (map[string][]byte, error) {
	result := c.read(ctx, read, provider.Map)

	return result.Map, result.Err
}

func (c contents) read(ctx context.Context, read offline.Read, shape provider.Shape) provider.Result {
	return document.Read(ctx, []provider.Read{{
		Shape: shape, Key: read.Key, Property: read.Property, Version: read.Version, Metadata: read.Metadata,
	}}, c.fetch)[0]
}

func (c contents) fetch(_ context.Context, key, id string, metadata bool) (document.Document, error) {
	versions, ok := c.held[key]
	if !ok {
		return document.Document{}, provider.NotFound("secret %q does not exist", key)
	}

	if id != "" {
		if versions = versions.of(id); len(versions) == 0 {
			return document.Document{}, provider.NotFound("secret %q has no version %q", key, id)
		}
	}

	found := versions[len(versions)-1]

	if !metadata {
		return document.Document{Raw: found.raw}, nil
	}

	labels := found.metadata
	if labels == nil {
		labels = map[string]string{}
	}

	raw, err := json.Marshal(labels)

	return document.Document{Raw: raw}, err
}

// Find takes the path for the beginning of a key.
func (c contents) Find(_ context.Context, find offline.Find) (map[string][]byte, error) {
	name, err := regexp.Compile(find.Name)
	if err != nil {
		return nil, provider.InvalidRequest("name %q: %v", find.Name, err)
	}

	query := provider.Query{Path: find.Path, Name: name, Tags: find.Tags}
	found := map[string][]byte{}

	for key, versions := range c.held {
		latest := versions[len(versions)-1]
		if (find.Path == nil || strings.HasPrefix(key, *find.Path)) && query.Matches(key, latest.metadata) {
			found[key] = latest.raw
		}
	}

	return found, nil
}
