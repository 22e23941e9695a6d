package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
)

// memory keeps what is pushed, by config, as long as the process lives.
type memory struct {
	mu      sync.Mutex
	configs map[types.UID]map[string]written
}

// written is what was pushed to a key, or that it was deleted.
type written struct {
	value   []byte
	owner   string
	deleted bool
}

// newMemory returns an empty one.
func newMemory() *memory { return &memory{configs: map[types.UID]map[string]written{}} }

// New returns the store of a config.
func (m *memory) New(_ context.Context, _ provider.Environment, config *v2alpha1.Fake) (*Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	pushed, ok := m.configs[config.UID]
	if !ok {
		pushed = map[string]written{}
		m.configs[config.UID] = pushed
	}

	return &Store{spec: config.Spec, memory: m, pushed: pushed}, nil
}

// owners returns how owners are stored: beside the value. A secret that the config
// lists has none.
func owners() ownership.Backend { return ownership.Backend{Place: "owner"} }

// Push remembers a value. What the config lists has no owner.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	if _, err := provider.DecodeSettings[struct{}](push.Settings); err != nil {
		return provider.Pushed{}, err
	}

	if err := s.misbehave(ctx); err != nil {
		return provider.Pushed{}, err
	}

	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()

	before, owner, there := s.state(push.Key)

	if push.IfNotExists && there && (push.Property == "" || document.Has(before, push.Property)) {
		return provider.Pushed{Revision: revision(before)}, nil
	}

	if there {
		if err := owners().Check(fmt.Sprintf("secret %q", push.Key), ownership.Mark{Owner: owner}, push.Owner, push.Adopt); err != nil {
			return provider.Pushed{}, err
		}
	}

	value := push.Value
	if push.Property != "" && !document.Holds(before, push.Property, push.Value) {
		made, err := document.Set(push.Key, before, push.Property, push.Value)
		if err != nil {
			return provider.Pushed{}, err
		}

		value = made
	} else if push.Property != "" {
		value = before
	}

	if there && owner == push.Owner && bytes.Equal(before, value) {
		return provider.Pushed{Revision: revision(before)}, nil
	}

	s.pushed[push.Key] = written{value: value, owner: push.Owner}

	return provider.Pushed{Changed: true, Revision: revision(value)}, nil
}

// Delete forgets a value that was pushed.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	if err := s.misbehave(ctx); err != nil {
		return false, err
	}

	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()

	before, owner, there := s.state(deletion.Key)

	if !there || deletion.Property != "" && !document.Has(before, deletion.Property) {
		return false, nil
	}

	if err := owners().Check(fmt.Sprintf("secret %q", deletion.Key), ownership.Mark{Owner: owner}, deletion.Owner, false); err != nil {
		return false, err
	}

	if deletion.Property != "" {
		rest, left, err := document.Remove(deletion.Key, before, deletion.Property)
		if err != nil {
			return false, err
		}

		if left {
			s.pushed[deletion.Key] = written{value: rest, owner: owner}

			return true, nil
		}
	}

	// Also where the config lists it.
	s.pushed[deletion.Key] = written{deleted: true}

	return true, nil
}

// Exists reports whether a secret, or a property of it, is there.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	return document.Exists(ctx, key, property, s.fetch)
}

// state is the latest value of a key, whose it is, and whether it is there.
func (s *Store) state(key string) (value []byte, owner string, there bool) {
	if last, ok := s.pushed[key]; ok {
		return last.value, last.owner, !last.deleted
	}

	if listed, _ := s.find(key, ""); listed != nil {
		return raw(listed), "", true
	}

	return nil, "", false
}

// latest is what was pushed to a key last; ok reports whether anything was.
func (s *Store) latest(key string) (last written, ok bool) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()

	last, ok = s.pushed[key]

	return last, ok
}

// keys are those that were pushed and are there.
func (s *Store) keys() []string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()

	var keys []string

	for key, last := range s.pushed {
		if !last.deleted {
			keys = append(keys, key)
		}
	}

	return keys
}
