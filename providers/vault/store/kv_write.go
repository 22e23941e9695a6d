package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	// marksKey holds the marks inside a secret of a version 1 engine, which has no
	// metadata.
	marksKey = "custom_metadata"
	// maxAttempts bounds the attempts of a write that conflicts with others.
	maxAttempts = 3
)

// settings of a push.
type settings struct {
	// CustomMetadata is kept with the secret, on an engine of version 2.
	CustomMetadata map[string]string `json:"customMetadata"`
}

// errConflict means that another writer changed the secret between read and write.
var errConflict = errors.New("another write came first")

// state is the current state of a secret, on which a write depends.
type state struct {
	location location
	// raw is the document; there reports whether it exists.
	raw      []byte
	there    bool
	revision string
	// version is compared by check-and-set, on an engine of version 2.
	version json.Number
	// marks are the custom metadata; marked reports whether the metadata exist, even
	// without a version that can be read.
	marks  map[string]string
	marked bool
	// foreign reports whether a secret of a version 1 engine has another field with
	// the name of the marks'.
	foreign bool
}

// owners returns how owners are stored: in the custom metadata.
func owners() ownership.Backend {
	return ownership.Backend{Place: "custom metadata " + ownership.OwnerTag}
}

// checkOwner returns an error unless an owner may write the secret.
func (st *state) checkOwner(key, owner string, adopt bool) error {
	if !st.there && !st.marked {
		return nil
	}

	return owners().Check(fmt.Sprintf("secret %q", key), ownership.MarkOf(st.marks), owner, adopt)
}

// Push writes a secret, or a property of one. On an engine of version 2 it uses
// check-and-set.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	wanted, err := provider.DecodeSettings[settings](push.Settings)
	if err != nil {
		return provider.Pushed{}, err
	}

	if push.Property == "" && !isObject(push.Value) {
		return provider.Pushed{}, provider.InvalidRequest("cannot write secret %q: Vault keeps JSON objects, and the value is none: name a property", push.Key)
	}

	for range maxAttempts {
		var pushed provider.Pushed

		if pushed, err = s.push(ctx, push, wanted); !errors.Is(err, errConflict) {
			return pushed, err
		}
	}

	return provider.Pushed{}, contended(push.Key)
}

func (s *Store) push(ctx context.Context, push provider.Push, wanted settings) (provider.Pushed, error) {
	st, err := s.state(ctx, push.Key)
	if err != nil {
		return provider.Pushed{}, err
	}

	if push.IfNotExists && st.there && (push.Property == "" || document.Has(st.raw, push.Property)) {
		return provider.Pushed{Revision: st.revision}, nil
	}

	if err := st.checkOwner(push.Key, push.Owner, push.Adopt); err != nil {
		return provider.Pushed{}, err
	}

	if st.foreign {
		return provider.Pushed{}, provider.NotOwned("secret %q has a field %q that holds no marks of external-secrets, and on an engine of version 1 there is no other place for them: rename the field, or write another key", push.Key, marksKey)
	}

	raw := push.Value

	switch {
	case push.Property == "":
	case document.Holds(st.raw, push.Property, push.Value):
		raw = st.raw
	default:
		if raw, err = document.Set(push.Key, st.raw, push.Property, push.Value); err != nil {
			return provider.Pushed{}, err
		}
	}

	marks := maps.Clone(st.marks)
	if marks == nil {
		marks = map[string]string{}
	}

	maps.Copy(marks, wanted.CustomMetadata)
	marks = owners().Tags(push.Owner, marks)

	marked := maps.Equal(marks, st.marks)
	if st.there && marked && document.Equal(raw, st.raw) {
		return provider.Pushed{Revision: st.revision}, nil
	}

	// The mark is written first: if the push ended before the other write, the secret
	// would have no owner.
	if !marked && st.location.v2 {
		if err := s.mark(ctx, push.Key, st.location, marks); err != nil {
			return provider.Pushed{}, err
		}
	}

	if st.there && st.location.v2 && document.Equal(raw, st.raw) {
		return provider.Pushed{Changed: true, Revision: st.revision}, nil
	}

	// Metadata have no check-and-set: two owners that claim a secret at the same time
	// both write their mark. The write of the data decides which of them owns it.
	claims := st.location.v2 && st.marks[ownership.OwnerTag] != push.Owner
	if claims {
		// A write that is repeated because its response was lost would conflict with
		// its own version.
		ctx = unrepeated(ctx)
	}

	revision, err := s.write(ctx, push.Key, st, raw, marks)

	if claims {
		switch {
		case err == nil:
			err = s.confirm(ctx, push.Key, st.location, marks)
		case errors.Is(err, errConflict):
			if undone := s.disclaim(ctx, push.Key, st, marks); undone != nil {
				err = undone
			}
		}
	}

	return provider.Pushed{Changed: err == nil, Revision: revision}, err
}

// confirm writes the marks of a claim again if another claim, which lost, has
// overwritten or removed them.
func (s *Store) confirm(ctx context.Context, key string, from location, marks map[string]string) error {
	for range maxAttempts {
		now, _, err := s.metadata(ctx, key, from)

		switch {
		case isNotFound(err):
			// It was deleted meanwhile.
			return nil
		case err != nil:
			return err
		case now[ownership.OwnerTag] == marks[ownership.OwnerTag]:
			return nil
		}

		if now == nil {
			now = map[string]string{}
		}

		maps.Copy(now, marks)

		if err := s.mark(ctx, key, from, now); err != nil {
			return err
		}
	}

	return nil
}

// disclaim removes the marks of a claim that lost, so that the secret of another
// writer is not taken for this owner's. It changes nothing if the mark is another
// owner's already. If the winner confirms its mark at the same moment, that mark may
// be removed too: the secret then has no owner until it is adopted, and is never the
// loser's.
func (s *Store) disclaim(ctx context.Context, key string, st *state, marks map[string]string) error {
	now, _, err := s.metadata(ctx, key, st.location)

	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return err
	case now[ownership.OwnerTag] != marks[ownership.OwnerTag]:
		return nil
	}

	for name, value := range marks {
		if now[name] != value {
			continue
		}

		if earlier, had := st.marks[name]; had {
			now[name] = earlier
		} else {
			delete(now, name)
		}
	}

	return s.mark(ctx, key, st.location, now)
}

// Delete deletes a secret, or a property of one.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	for range maxAttempts {
		if changed, err := s.delete(ctx, deletion); !errors.Is(err, errConflict) {
			return changed, err
		}
	}

	return false, contended(deletion.Key)
}

func (s *Store) delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	st, err := s.state(ctx, deletion.Key)
	if err != nil {
		return false, err
	}

	// A first push that did not complete may have left metadata without data.
	abandoned := !st.there && st.marks[ownership.OwnerTag] == deletion.Owner && s.spec.Deletion != v2alpha1.VaultSoftDelete
	if !st.there && !abandoned {
		return false, nil
	}

	if deletion.Property != "" && !document.Has(st.raw, deletion.Property) {
		return false, nil
	}

	if err := st.checkOwner(deletion.Key, deletion.Owner, false); err != nil {
		return false, err
	}

	if deletion.Property != "" {
		rest, left, err := document.Remove(deletion.Key, st.raw, deletion.Property)
		if err != nil {
			return false, err
		}

		if left {
			_, err = s.write(ctx, deletion.Key, st, rest, st.marks)

			return err == nil, err
		}
	}

	path := st.location.path
	if st.location.v2 && s.spec.Deletion != v2alpha1.VaultSoftDelete {
		path = strings.Replace(path, st.location.mount+"/data/", st.location.mount+"/metadata/", 1)
	}

	_, err = s.request(ctx, deletion.Key, "delete", st.location, http.MethodDelete, path, nil)

	return err == nil, err
}

// Exists reports whether a secret, or a property of it, can be read.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	return document.Exists(ctx, key, property, s.fetch)
}

// state reads a secret with its marks.
func (s *Store) state(ctx context.Context, key string) (*state, error) {
	from, err := s.engine.locate(key, "", false)
	if err != nil {
		return nil, err
	}

	st := &state{location: from, version: "0"}

	answer, err := s.request(ctx, key, "read", from, http.MethodGet, from.path, nil)

	switch {
	case err == nil:
		if err := st.take(key, answer); err != nil {
			return nil, err
		}
	case !isNotFound(err):
		return nil, err
	}

	if !from.v2 {
		return st, nil
	}

	// A deleted version has metadata, and a number for check-and-set.
	marks, version, err := s.metadata(ctx, key, from)

	switch {
	case isNotFound(err):
		return st, nil
	case err != nil:
		return nil, err
	}

	st.marks, st.marked = marks, true

	if version != "" {
		if st.there && version != st.version {
			return nil, errConflict
		}

		st.version = version
	}

	return st, nil
}

// metadata reads a secret's custom metadata, on an engine of version 2, and the number
// of its latest version, which is empty if the response has none.
func (s *Store) metadata(ctx context.Context, key string, from location) (map[string]string, json.Number, error) {
	path := strings.Replace(from.path, from.mount+"/data/", from.mount+"/metadata/", 1)

	answer, err := s.request(ctx, key, "read the metadata of", from, http.MethodGet, path, nil)

	switch {
	case err != nil:
		return nil, "", err
	case answer == nil:
		return nil, "", provider.Unavailable("cannot read the metadata of secret %q: Vault's answer is empty", key)
	}

	version, _ := answer.Data["current_version"].(json.Number)

	return texts(answer.Data["custom_metadata"]), version, nil
}

// take sets the state from the response of a read.
func (st *state) take(key string, answer *api.Secret) error {
	found, err := st.location.document(key, "", answer)
	if err != nil {
		return err
	}

	st.raw, st.there, st.revision = found.Raw, true, found.Revision

	if !st.location.v2 {
		field, there := answer.Data[marksKey]
		if marks := marksOf(field); marks != nil {
			st.marks, st.marked = marks, true
		} else {
			st.foreign = there
		}

		return nil
	}

	if metadata, ok := answer.Data["metadata"].(map[string]any); ok {
		if version, ok := metadata["version"].(json.Number); ok {
			st.version = version
		}
	}

	return nil
}

// mark writes a secret's custom metadata.
func (s *Store) mark(ctx context.Context, key string, from location, marks map[string]string) error {
	path := strings.Replace(from.path, from.mount+"/data/", from.mount+"/metadata/", 1)
	_, err := s.request(ctx, key, "write the metadata of", from, http.MethodPut, path, map[string]any{"custom_metadata": marks})

	return err
}

// write writes a secret and returns its revision.
func (s *Store) write(ctx context.Context, key string, st *state, raw []byte, marks map[string]string) (string, error) {
	var fields map[string]any
	if err := decode(raw, &fields); err != nil {
		return "", provider.InvalidRequest("cannot write secret %q: the value is no JSON object", key)
	}

	if _, taken := fields[marksKey]; taken && !st.location.v2 {
		return "", provider.InvalidRequest("cannot write secret %q: on an engine of version 1 the field %q holds the marks of external-secrets: name the field differently", key, marksKey)
	}

	var body map[string]any
	if st.location.v2 {
		body = map[string]any{"data": fields, "options": map[string]any{"cas": st.version}}
	} else {
		body = maps.Clone(fields)
		body[marksKey] = marks
	}

	answer, err := s.request(ctx, key, "write", st.location, http.MethodPut, st.location.path, body)
	if err != nil {
		return "", err
	}

	if st.location.v2 && answer != nil {
		return revision(answer.Data), nil
	}

	written, err := encode(key, fields, "")

	return written.Revision, err
}

// request performs one request. Its errors are those of a read.
func (s *Store) request(ctx context.Context, key, verb string, from location, method, path string, body map[string]any) (*api.Secret, error) {
	token, err := s.login.token(ctx)
	if err != nil {
		return nil, err
	}

	client, err := as(s.client, token)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	var response *api.Response

	logical := client.Logical()

	switch method {
	case http.MethodGet:
		response, err = logical.ReadRawWithContext(ctx, path)
	case http.MethodDelete:
		response, err = logical.DeleteRawWithContext(ctx, path)
	default:
		var text []byte
		if text, err = json.Marshal(body); err != nil {
			return nil, provider.InvalidRequest("cannot %s secret %q: it cannot be encoded", verb, key)
		}

		response, err = logical.WriteRawWithContext(ctx, path, text)
	}

	if response != nil {
		defer response.Body.Close()
	}

	switch {
	case err != nil && method != http.MethodGet && conflicting(err):
		return nil, errConflict
	case err != nil:
		return nil, s.refusal(ctx, client, verb, from, key, "", response, err)
	case response.StatusCode == http.StatusNoContent:
		return nil, nil //nolint:nilnil // a write of version 1 has no response
	}

	secret, err := api.ParseSecret(response.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, unreadable(verb+" secret \""+key+"\"", err)
	}

	return secret, nil
}

func isNotFound(err error) bool { return err != nil && provider.AsError(err).Code == codes.NotFound }

// conflicting reports whether check-and-set found another version.
func conflicting(err error) bool {
	var response *api.ResponseError
	if !errors.As(err, &response) || response.StatusCode != http.StatusBadRequest {
		return false
	}

	for _, text := range response.Errors {
		if strings.Contains(text, "check-and-set parameter did not match") {
			return true
		}
	}

	return false
}

func contended(key string) error {
	return &provider.Error{
		Code: codes.Aborted, Reason: pb.ReasonUnavailable,
		Message: fmt.Sprintf("cannot write secret %q: another client writes it at the same time", key),
	}
}

// texts returns the entries of a map that are texts; nil if it is no map.
func texts(value any) map[string]string {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil
	}

	found := make(map[string]string, len(fields))

	for name, field := range fields {
		if text, ok := field.(string); ok {
			found[name] = text
		}
	}

	return found
}

// marksOf returns the marks that a push added to a secret of a version 1 engine; nil
// if the field is something else.
func marksOf(field any) map[string]string {
	fields, _ := field.(map[string]any)
	if marks := texts(field); len(marks) == len(fields) && ownership.MarkOf(marks).Managed {
		return marks
	}

	return nil
}

// withoutMarks returns a secret of a version 1 engine without the marks.
func withoutMarks(data map[string]any) map[string]any {
	if marksOf(data[marksKey]) == nil {
		return data
	}

	rest := maps.Clone(data)
	delete(rest, marksKey)

	return rest
}

func isObject(text []byte) bool {
	var fields map[string]any

	return decode(text, &fields) == nil && fields != nil
}

// decode decodes JSON without converting numbers.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()

	if err := decoder.Decode(into); err != nil {
		return err
	}

	if decoder.More() {
		return errors.New("there is more than one value")
	}

	return nil
}
