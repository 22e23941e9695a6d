package store

import (
	"context"
	"hash/maphash"
	"net/http"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"
)

// current is the state of a secret before a write.
type current struct {
	// unreadable means that the API has no reads: the state is unknown.
	unreadable bool
	// secret reports whether the secret exists, found whether the requested
	// property exists too.
	secret, found bool
	raw           []byte
	revision      string
	owner         string
}

// look reads a secret, or a property of one if the config reads single
// properties. A secret that does not exist is no error.
func (s *Store) look(ctx context.Context, key, property string) (current, error) {
	call, err := s.reading(key, property, "", false)
	if err != nil {
		return current{}, err
	}

	got, err := s.fetch(ctx, &asked{call: call})

	var raw []byte
	if err == nil {
		wanted := values{key: key, property: property}
		raw, err = s.result.find(wanted, got.Raw, s.data(wanted))
	}

	if err != nil {
		switch typed := provider.AsError(err); {
		case typed.Code == codes.NotFound && typed.Reason == pb.ReasonPropertyNotFound:
			return current{secret: true, revision: got.etag, owner: got.owner}, nil
		case typed.Code == codes.NotFound:
			return current{}, nil
		case typed.Code == codes.Unimplemented:
			return current{unreadable: true}, nil
		default:
			return current{}, err
		}
	}

	return current{secret: true, found: true, raw: raw, revision: got.etag, owner: got.owner}, nil
}

// owners returns how owners are stored: where the API returns a header with them.
// The config names the header, which may hold something else.
func (s *Store) owners() ownership.Backend {
	return ownership.Backend{Place: "header " + s.ownerHeader, Private: true}
}

// checkOwner returns an error unless an owner may write the secret, as far as the
// API returns owners.
func (s *Store) checkOwner(now current, owner string, adopt bool) error {
	if s.ownerHeader == "" || !now.secret {
		return nil
	}

	return s.owners().Check("it", ownership.Mark{Owner: now.owner}, owner, adopt)
}

// Push reads the secret, compares it, and writes a difference.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	if s.push == nil {
		return provider.Pushed{}, provider.Unsupported("cannot push secret %q: spec.push is not set", push.Key)
	}

	if _, err := provider.DecodeSettings[struct{}](push.Settings); err != nil {
		return provider.Pushed{}, err
	}

	release, err := s.locks.acquire(ctx, push.Key)
	if err != nil {
		return provider.Pushed{}, err
	}
	defer release()

	changed, err := s.put(ctx, push)
	if err != nil {
		return provider.Pushed{}, about("push secret", push.Key, err)
	}

	// The response to a write does not have the revision that a read would
	// return.
	return provider.Pushed{Changed: changed}, nil
}

func (s *Store) put(ctx context.Context, push provider.Push) (changed bool, err error) {
	// A property that the request does not name is written as a part of the
	// whole secret.
	part := push.Property != "" && !s.push.uses[nameProperty]
	if part && s.perProperty() {
		return false, provider.Unsupported("spec.push does not name .remoteRef.property, and reads return single properties: the whole secret is unknown")
	}

	now, err := s.look(ctx, push.Key, push.Property)
	if err != nil {
		return false, err
	}

	if now.unreadable && part {
		return false, provider.Unsupported("the API does not read secrets, and spec.push does not name .remoteRef.property: the rest of the secret is unknown")
	}

	// The owner is in the response to a read, which the API does not support.
	if now.unreadable && s.ownerHeader != "" {
		return false, provider.Unsupported("the API does not read secrets, so that the secret's owner is unknown: remove spec.ownerHeader, or let the API answer reads")
	}

	there, same, err := s.compare(ctx, now, push)
	if err != nil {
		return false, err
	}

	if push.IfNotExists && there {
		return false, nil
	}

	if err := s.checkOwner(now, push.Owner, push.Adopt); err != nil {
		return false, err
	}

	if same && (s.ownerHeader == "" || s.owners().Owns(ownership.Mark{Owner: now.owner}, push.Owner)) {
		return false, nil
	}

	value := push.Value

	if part {
		if value, err = document.Set(push.Key, now.raw, push.Property, push.Value); err != nil {
			return false, err
		}
	}

	return true, s.write(ctx, values{
		key: push.Key, property: push.Property, value: string(value), owner: push.Owner, adopt: push.Adopt, revision: now.revision,
	})
}

// compare reports whether the secret or property exists, and whether it has the
// value already.
func (s *Store) compare(ctx context.Context, now current, push provider.Push) (there, same bool, err error) {
	switch {
	case now.unreadable && push.IfNotExists:
		there, err = s.ask(ctx, push.Key, push.Property)

		return there, false, err
	case !now.found:
		return false, false, nil
	case push.Property == "" || s.perProperty():
		return true, document.Equal(now.raw, push.Value), nil
	case s.push.uses[nameProperty]:
		held, err := document.Select(push.Key, now.raw, push.Property)

		return err == nil, err == nil && document.Equal(held, push.Value), nil
	default:
		return document.Has(now.raw, push.Property), document.Holds(now.raw, push.Property, push.Value), nil
	}
}

// write performs the request that pushes.
func (s *Store) write(ctx context.Context, v values) error {
	call, err := s.push.render(s.data(v))
	if err != nil {
		return err
	}

	got, err := s.client.do(ctx, call)
	if err != nil {
		return err
	}

	if got.status == http.StatusNotModified || s.client.absent(got.status) {
		return provider.InvalidRequest("%s answers %d to a write: is spec.push right?", call.shown, got.status)
	}

	return nil
}

// Delete deletes a secret, or a property of one.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	if s.remove == nil {
		return false, provider.Unsupported("cannot delete secret %q: spec.delete is not set", deletion.Key)
	}

	release, err := s.locks.acquire(ctx, deletion.Key)
	if err != nil {
		return false, err
	}
	defer release()

	changed, err := s.take(ctx, deletion)
	if err != nil {
		return false, about("delete secret", deletion.Key, err)
	}

	return changed, nil
}

func (s *Store) take(ctx context.Context, deletion provider.Deletion) (bool, error) {
	v := values{key: deletion.Key, property: deletion.Property, owner: deletion.Owner}
	part := deletion.Property != "" && !s.remove.uses[nameProperty]

	if part && s.perProperty() {
		return false, provider.Unsupported("spec.delete does not name .remoteRef.property, and reads return single properties: the whole secret is unknown")
	}

	// Without other properties to preserve or a mark to check, no read is needed.
	if part || s.ownerHeader != "" || s.remove.uses[nameRevision] {
		now, err := s.look(ctx, deletion.Key, deletion.Property)

		switch {
		case err != nil:
			return false, err
		case now.unreadable:
			return false, provider.Unsupported("the API does not read secrets: the object to delete is unknown")
		case !now.found:
			return false, nil
		}

		if err := s.checkOwner(now, deletion.Owner, false); err != nil {
			return false, err
		}

		v.revision = now.revision

		if part {
			left, gone, err := s.rest(deletion, now)
			if err != nil || gone == nothing {
				return false, err
			}

			if gone == some {
				v.value = string(left)

				return true, s.write(ctx, v)
			}
		}
	}

	call, err := s.remove.render(s.data(v))
	if err != nil {
		return false, err
	}

	got, err := s.client.do(ctx, call)
	if err != nil {
		return false, err
	}

	return !s.client.absent(got.status) && got.status != http.StatusNotModified, nil
}

// share is the part of a secret that a property is.
type share int

const (
	nothing share = iota
	some
	everything
)

// rest returns a secret without a property.
func (s *Store) rest(deletion provider.Deletion, now current) ([]byte, share, error) {
	if !document.Has(now.raw, deletion.Property) {
		return nil, nothing, nil
	}

	rest, left, err := document.Remove(deletion.Key, now.raw, deletion.Property)

	switch {
	case err != nil:
		return nil, nothing, err
	case !left:
		return nil, everything, nil
	case s.push == nil:
		return nil, nothing, provider.Unsupported("spec.delete does not name .remoteRef.property, and without spec.push the rest of the secret cannot be written")
	case s.push.uses[nameProperty]:
		return nil, nothing, provider.Unsupported("spec.delete does not name .remoteRef.property, and spec.push writes single properties: the rest of the secret cannot be written")
	}

	return rest, some, nil
}

// Exists sends the request of spec.exists, or reads the secret.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	there, err := s.ask(ctx, key, property)
	if err != nil {
		return false, about("ask for secret", key, err)
	}

	return there, nil
}

func (s *Store) ask(ctx context.Context, key, property string) (bool, error) {
	if s.exists == nil || property != "" && !s.exists.uses[nameProperty] {
		now, err := s.look(ctx, key, property)

		switch {
		case err != nil:
			return false, err
		case now.unreadable:
			return false, provider.Unsupported("the API does not read secrets, and spec.exists does not ask for this: set spec.exists")
		case property == "" || s.perProperty():
			return now.found, nil
		default:
			return now.found && document.Has(now.raw, property), nil
		}
	}

	call, err := s.exists.render(s.data(values{key: key, property: property}))
	if err != nil {
		return false, err
	}

	got, err := s.client.do(ctx, call)
	if err != nil {
		return false, err
	}

	return !s.client.absent(got.status), nil
}

// locks serialise the writes of a key: concurrent read-modify-write cycles would
// lose updates. Several keys may share a lock.
type locks struct {
	seed  maphash.Seed
	slots [64]chan struct{}
}

func newLocks() locks {
	l := locks{seed: maphash.MakeSeed()}
	for i := range l.slots {
		l.slots[i] = make(chan struct{}, 1)
	}

	return l
}

func (l *locks) acquire(ctx context.Context, key string) (release func(), err error) {
	slot := l.slots[maphash.String(l.seed, key)%uint64(len(l.slots))]

	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
