package store

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxNames bounds the names that one search lists, matching or not.
	maxNames = 100_000
	// maxReads bounds the concurrent reads of one search.
	maxReads = 8
)

// Find lists the engine below the path, or all of it, and reads the secrets that
// match. A folder or secret that may not be listed or read fails the search: left
// out, it would seem to be deleted. Tags are custom metadata.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	mount, folder := strings.Trim(s.engine.mount, "/"), ""
	if query.Path != nil {
		folder = strings.Trim(*query.Path, "/")
	}

	// Keys contain the mount if the config names none.
	prefix := ""

	if mount == "" {
		if mount, folder, _ = strings.Cut(folder, "/"); mount == "" || reserved(mount) {
			return provider.InvalidRequest("find needs a path that begins with the engine's mount, since the config's spec.path is empty")
		}

		prefix = mount + "/"
	}

	if len(query.Tags) > 0 && !s.engine.v2() {
		return provider.Unsupported("find by tags: a KV version 1 engine keeps no metadata")
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	w := &walk{store: s, mount: mount, prefix: prefix, query: query, found: found, cancel: cancel, free: make(chan struct{}, maxReads)}

	err := w.folder(ctx, folder)
	w.wait.Wait()

	if failed := w.failure(); failed != nil {
		return failed
	}

	return err
}

// walk is one search.
type walk struct {
	store  *Store
	mount  string
	prefix string
	query  provider.Query
	cancel context.CancelFunc
	free   chan struct{}
	wait   sync.WaitGroup
	names  int

	mu     sync.Mutex
	found  func(provider.Found) error
	failed error
}

func (w *walk) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.failed
}

// fail ends the search; the first failure is its error.
func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.failed == nil {
		w.failed = err
	}

	w.cancel()
}

// folder visits every name below a folder.
func (w *walk) folder(ctx context.Context, folder string) error {
	names, err := w.list(ctx, folder)
	if err != nil {
		return err
	}

	for _, name := range names {
		path := strings.Trim(folder+"/"+name, "/")

		if w.names++; w.names > maxNames {
			return &provider.Error{
				Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge,
				Message: "there are more than 100000 secrets to look at: narrow find by path",
			}
		}

		if strings.HasSuffix(name, "/") {
			if err := w.folder(ctx, path); err != nil {
				return err
			}

			continue
		}

		if w.query.Name != nil && !w.query.Name.MatchString(w.prefix+path) {
			continue
		}

		select {
		case w.free <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}

		w.wait.Go(func() {
			defer func() { <-w.free }()

			if err := w.secret(ctx, w.prefix+path); err != nil {
				w.fail(err)
			}
		})
	}

	return nil
}

// list returns the names in a folder; those that end with a slash are folders.
func (w *walk) list(ctx context.Context, folder string) ([]string, error) {
	s := w.store

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

	from := location{mount: w.mount, path: w.mount + "/" + folder, v2: s.engine.v2()}
	if from.v2 {
		from.path = w.mount + "/metadata/" + folder
	}

	what := w.mount + "/" + folder

	response, err := client.Logical().ReadRawWithDataWithContext(ctx, from.path, map[string][]string{"list": {"true"}})
	if response != nil {
		defer response.Body.Close()
	}

	if response != nil && response.StatusCode == http.StatusNotFound {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, unreadable("list \""+what+"\"", err)
		}

		if err := s.absence(ctx, client, from, what, "", body); provider.AsError(err).Code != codes.NotFound {
			return nil, err
		}

		return nil, nil
	}

	if err != nil {
		return nil, s.refusal(ctx, client, "list", from, what, "", response, err)
	}

	secret, err := api.ParseSecret(response.Body)
	if err != nil || secret == nil {
		return nil, provider.Unavailable("cannot list %q: the server does not answer as Vault does", what)
	}

	keys, ok := secret.Data["keys"].([]any)
	if !ok {
		return nil, provider.Unavailable("cannot list %q: Vault's answer holds no names", what)
	}

	names := make([]string, 0, len(keys))

	for _, key := range keys {
		if name, ok := key.(string); ok && name != "" && name != "/" {
			names = append(names, name)
		}
	}

	return names, nil
}

// secret reports a secret, unless its tags do not match or its latest version was
// deleted.
func (w *walk) secret(ctx context.Context, key string) error {
	if len(w.query.Tags) > 0 {
		metadata, err := w.store.fetch(ctx, key, "", true)
		if err != nil {
			return gone(err)
		}

		var tags map[string]string
		if err := json.Unmarshal(metadata.Raw, &tags); err != nil {
			return provider.Unavailable("cannot read the metadata of secret %q: it is no map of texts", key)
		}

		if !w.query.Matches(key, tags) {
			return nil
		}
	}

	read, err := w.store.fetch(ctx, key, "", false)
	if err != nil {
		return gone(err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.failed != nil {
		return w.failed
	}

	return w.found(provider.Found{Key: key, Value: read.Raw})
}

// gone skips a secret without a version that can be read.
func gone(err error) error {
	var typed *provider.Error
	if errors.As(err, &typed) && typed.Code == codes.NotFound && typed.Reason == pb.ReasonNotFound {
		return nil
	}

	return err
}
