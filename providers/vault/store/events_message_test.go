package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// happened is an event as Vault writes it. The path repeats the mount, the
// mount ends with a slash.
func happened(kind, mount, path string) string {
	_, operation, _ := strings.Cut(kind, "/")
	metadata := map[string]string{"operation": operation, "modified": "true", "path": path, "current_version": "2"}

	// Vault sends the path of the data unless it was deleted.
	if !strings.Contains(operation, "delete") && operation != "destroy" {
		metadata["data_path"] = path
	}

	text, err := json.Marshal(map[string]any{
		"id": "5f0f8bb5", "source": "vault://here", "specversion": "1.0", "type": "*", "datacontentype": "application/cloudevents", "time": "2026-11-21T20:00:00Z",
		"data": map[string]any{
			"event": map[string]any{"id": "5f0f8bb5", "metadata": metadata}, "event_type": kind, "namespace": "team/",
			"plugin_info": map[string]any{"mount_class": "secret", "mount_accessor": "kv_1", "mount_path": mount, "plugin": "kv", "version": "2"},
		},
	})
	if err != nil {
		panic(err)
	}

	return string(text)
}

func TestEvents(t *testing.T) {
	t.Parallel()

	v2, v1 := v2alpha1.KVv2, v2alpha1.KVv1
	app := []string{"app", "/app", "secret/app", "/secret/app", "secret/data/app", "/secret/data/app"}

	for _, test := range []struct {
		name, why  string
		mount      string
		version    v2alpha1.KVVersion
		keys       []string
		text       string
		want       []string
		unreadable bool
	}{
		{name: "data-write", why: "a new version", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "secret/data/app"), want: app},
		{name: "data-patch", why: "likewise", mount: "secret", version: v2, text: happened("kv-v2/data-patch", "secret/", "secret/data/app"), want: app},
		{name: "data-delete", why: "the latest version is gone", mount: "secret", version: v2, text: happened("kv-v2/data-delete", "secret/", "secret/data/app"), want: app},
		{name: "delete", why: "some versions are, perhaps the latest", mount: "secret", version: v2, text: happened("kv-v2/delete", "secret/", "secret/delete/app"), want: app},
		{name: "undelete", why: "they are back", mount: "secret", version: v2, text: happened("kv-v2/undelete", "secret/", "secret/undelete/app"), want: app},
		{name: "destroy", why: "they are gone for good", mount: "secret", version: v2, text: happened("kv-v2/destroy", "secret/", "secret/destroy/app"), want: app},
		{name: "metadata-write", why: "metadataPolicy and finds by tags read it", mount: "secret", version: v2, text: happened("kv-v2/metadata-write", "secret/", "secret/metadata/app"), want: app},
		{name: "metadata-patch", why: "likewise", mount: "secret", version: v2, text: happened("kv-v2/metadata-patch", "secret/", "secret/metadata/app"), want: app},
		{name: "metadata-delete", why: "all versions are gone", mount: "secret", version: v2, text: happened("kv-v2/metadata-delete", "secret/", "secret/metadata/app"), want: app},
		{name: "config-write", why: "the engine's own settings are no secret", mount: "secret", version: v2, text: happened("kv-v2/config-write", "secret/", "secret/config")},
		{name: "a secret named config", why: "it is one", mount: "secret", version: v2, keys: []string{"config"}, text: happened("kv-v2/data-write", "secret/", "secret/data/config"), want: []string{"config"}},
		{name: "unknown operation", why: "a hint too many costs a read, one too few an interval", mount: "secret", version: v2, keys: []string{"app"}, text: happened("kv-v2/data-rewrite", "secret/", "secret/rewrite/app"), want: []string{"app"}},
		{
			name: "nested", why: "in folders, below a mount with more than one part", mount: "team/kv", version: v2, text: happened("kv-v2/data-write", "team/kv/", "team/kv/data/app/db"),
			want: []string{"app/db", "/app/db", "team/kv/app/db", "/team/kv/app/db", "team/kv/data/app/db", "/team/kv/data/app/db"},
		},
		{
			name: "the mount's name once more", why: "a key that begins with the mount means what lies below it", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "secret/data/secret/app"),
			want: []string{"secret/secret/app", "/secret/secret/app", "secret/data/secret/app", "/secret/data/secret/app"},
		},
		{
			name: "a folder named data", why: "a key that repeats the mount has to repeat data, too", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "secret/data/data/app"),
			want: []string{"data/app", "/data/app", "secret/data/data/app", "/secret/data/data/app"},
		},
		{name: "watched by other names", why: "each key in use is reported in the form of its manifest", mount: "secret", version: v2, keys: []string{"secret/app", "app", "app/", "other"}, text: happened("kv-v2/data-write", "secret/", "secret/data/app"), want: []string{"secret/app", "app", "app/"}},
		{name: "unwatched", why: "no caller watches it", mount: "secret", version: v2, keys: []string{"app/db"}, text: happened("kv-v2/data-write", "secret/", "secret/data/app")},
		{name: "another mount's", why: "the same path elsewhere is another secret", mount: "secret", version: v2, text: happened("kv-v2/data-write", "other/", "other/data/app")},
		{name: "another mount's that begins alike", why: "likewise", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/more/", "secret/more/data/app")},
		{name: "another version's", why: "an engine has one", mount: "secret", version: v2, text: happened("kv-v1/write", "secret/", "secret/app")},
		{name: "nothing modified", why: "Vault says so", mount: "secret", version: v2, text: strings.Replace(happened("kv-v2/data-write", "secret/", "secret/data/app"), `"modified":"true"`, `"modified":"false"`, 1)},
		{name: "no word of it", why: "early versions do not say whether anything was modified, nor name the mount", mount: "secret", version: v2, keys: []string{"app"}, text: `{"data":{"event":{"metadata":{"path":"data/app"}},"event_type":"kv-v2/data-write"}}`, want: []string{"app"}},

		{name: "write", why: "version 1", mount: "kv1", version: v1, text: happened("kv-v1/write", "kv1/", "kv1/app/db"), want: []string{"app/db", "/app/db", "kv1/app/db", "/kv1/app/db"}},
		{name: "v1 delete", why: "version 1", mount: "kv1", version: v1, keys: []string{"app/db"}, text: happened("kv-v1/delete", "kv1/", "kv1/app/db"), want: []string{"app/db"}},
		{name: "v1 with a folder data", why: "it means nothing there", mount: "kv1", version: v1, keys: []string{"data/app", "app"}, text: happened("kv-v1/write", "kv1/", "kv1/data/app"), want: []string{"data/app"}},
		{name: "v1 config", why: "version 1 has no settings", mount: "kv1", version: v1, keys: []string{"config"}, text: happened("kv-v1/write", "kv1/", "kv1/config"), want: []string{"config"}},

		{name: "keys that name the mount", why: "the config names none", version: v2, text: happened("kv-v2/data-write", "kv/", "kv/data/app"), want: []string{"kv/app", "/kv/app", "kv/data/app", "/kv/data/app"}},
		{name: "a mount that no key can name", why: "a key's first part is the mount", version: v2, text: happened("kv-v2/data-write", "team/kv/", "team/kv/data/app")},
		{name: "a reserved mount", why: "no key leads there", version: v1, text: happened("kv-v1/write", "cubbyhole/", "cubbyhole/app")},

		{name: "no path", why: "there is no key to report", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "")},
		{name: "the mount alone", why: "likewise", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "secret/")},
		{name: "no secret's path", why: "no key leads there", mount: "secret", version: v2, text: happened("kv-v2/data-write", "secret/", "secret/data/../app")},
		{name: "no event", why: "something else speaks", text: `{"hello":"world"}`, unreadable: true},
		{name: "another form", why: "likewise", text: `{"data":{"event_type":["kv-v2/data-write"]}}`, unreadable: true},
		{name: "no JSON", why: "likewise", text: canary, unreadable: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			told, err := readEvent([]byte(test.text))
			if test.unreadable {
				if typed := errorOf(t, err); typed.Code != codes.Unavailable {
					t.Errorf("%s: %v", test.why, err)
				}

				return
			}

			if err != nil {
				t.Fatalf("%s: %v", test.why, err)
			}

			w := &watch{store: &Store{engine: engine{mount: test.mount, version: test.version}}}
			if err := w.filter(test.keys); err != nil {
				t.Fatal(err)
			}

			got := w.store.engine.changed(told, w.watched)
			if !slices.Equal(test.want, got) {
				t.Errorf("%s: %q, want %q", test.why, got, test.want)
			}
		})
	}
}

// A receiver that does not read uses no more memory than the bound.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()

	c := newChanges()
	c.add(nil)

	if len(c.pending) != 0 {
		t.Error("an empty change is reported")
	}

	c.add([]string{"b", "a"})
	c.add([]string{"a"})

	if diff := cmp.Diff(provider.Change{Keys: []string{"a", "b"}}, c.take()); diff != "" || len(c.pending) != 1 {
		t.Errorf("%d signals (-want +got):\n%s", len(c.pending), diff)
	}

	const keys, long = 100, maxPending / 100

	for i := range keys + 2 {
		key := fmt.Sprintf("%0*d", long, i)
		c.add([]string{key, key})

		if waits := len(c.keys) * long; waits > maxPending || c.resync != (i >= keys) {
			t.Fatalf("%d bytes wait after %d keys, resync is %t", waits, i+1, c.resync)
		}
	}

	if diff := cmp.Diff(provider.Change{Resync: true}, c.take()); diff != "" {
		t.Errorf("too many (-want +got):\n%s", diff)
	}

	c.add([]string{"c"})

	if got := c.take(); got.Resync || !slices.Equal(got.Keys, []string{"c"}) {
		t.Errorf("after that: %+v", got)
	}
}
