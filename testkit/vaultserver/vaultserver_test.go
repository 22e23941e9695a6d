package vaultserver

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func startForTest(t *testing.T, opts Options) *Server {
	t.Helper()
	opts.Progress = t.Output()
	server, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
		select {
		case <-server.process.Done():
		default:
			t.Error("the process runs after Stop")
		}
	})
	return server
}

// read reads through Address as a client under test does.
func read(t *testing.T, server *Server, method, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.Address()+"/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Vault-Token", server.RootToken())
	response, err := server.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestWriteReadDelete(t *testing.T) {
	server := startForTest(t, Options{})
	want := map[string]any{"user": "admin", "password": "correct horse"}
	cases := []struct {
		name     string
		why      string
		path     string
		readPath string
		// value finds the secret in the reply.
		value func(reply map[string]any) any
	}{
		{
			name:     "version 2",
			why:      "its values are one level deeper, beside their metadata",
			path:     "secret/team/app",
			readPath: "secret/data/team/app",
			value:    func(reply map[string]any) any { return reply["data"].(map[string]any)["data"] },
		},
		{
			name:     "version 1",
			why:      "its path is the secret's own",
			path:     "kv1/team/app",
			readPath: "kv1/team/app",
			value:    func(reply map[string]any) any { return reply["data"] },
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			if err := server.Write(ctx, c.path, want); err != nil {
				t.Fatalf("Write: %v", err)
			}
			reply, err := server.Request(ctx, http.MethodGet, c.readPath, nil)
			if err != nil {
				t.Fatalf("Request: %v", err)
			}
			if diff := cmp.Diff(any(want), c.value(reply)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if err := server.Delete(ctx, c.path); err != nil {
				t.Fatalf("Delete: %v", err)
			}
			if _, err := server.Request(ctx, http.MethodGet, c.readPath, nil); err == nil || !strings.Contains(err.Error(), "404") {
				t.Errorf("reading a deleted secret: %v, want status 404", err)
			}
			if err := server.Delete(ctx, c.path); err != nil {
				t.Errorf("deleting twice: %v", err)
			}
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		if err := server.Write(t.Context(), "nowhere/app", want); err == nil {
			t.Error("Write took a path without an engine")
		}
		if err := server.Delete(t.Context(), "nowhere/app"); err == nil {
			t.Error("Delete took a path without an engine")
		}
	})
	t.Run("requests are not counted unless asked for", func(t *testing.T) {
		if got := server.Requests(); got != nil {
			t.Errorf("Requests = %v", got)
		}
	})
}

func TestRequestsAreCounted(t *testing.T) {
	server := startForTest(t, Options{CountRequests: true})
	for _, path := range []string{"secret/a", "kv1/b"} {
		if err := server.Write(t.Context(), path, map[string]any{"k": "v"}); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if got := read(t, server, http.MethodGet, "secret/data/a?version=1"); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		})
	}
	group.Wait()
	read(t, server, http.MethodGet, "kv1/b")
	read(t, server, http.MethodGet, "kv1/missing")
	read(t, server, "LIST", "kv1/")
	read(t, server, http.MethodGet, "kv1/?list=true")

	want := map[string]int{
		"GET /v1/secret/data/a": 20,
		"GET /v1/kv1/b":         1,
		"GET /v1/kv1/missing":   1,
		"LIST /v1/kv1/":         2,
	}
	if diff := cmp.Diff(want, server.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// The auth method must be there for tests of workload identity, and a token of
// another server must not open this one.
func TestAuthentication(t *testing.T) {
	first, second := startForTest(t, Options{}), startForTest(t, Options{})
	if first.RootToken() == second.RootToken() || first.Address() == second.Address() {
		t.Error("two servers share a token or an address")
	}
	if _, err := first.Request(t.Context(), http.MethodPost, "sys/auth/kubernetes", map[string]any{"type": "kubernetes"}); err != nil {
		t.Errorf("enabling Kubernetes auth: %v", err)
	}
	config := map[string]any{"kubernetes_host": "https://127.0.0.1:1", "disable_local_ca_jwt": true}
	if _, err := first.Request(t.Context(), http.MethodPost, "auth/kubernetes/config", config); err != nil {
		t.Errorf("configuring Kubernetes auth: %v", err)
	}
	second.rootToken = first.rootToken
	if _, err := second.Request(t.Context(), http.MethodGet, "secret/config", nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a foreign token: %v, want status 403", err)
	}
}

func TestNothingSecretIsLogged(t *testing.T) {
	var log lockedBuffer
	server := startForTest(t, Options{Log: &log})
	const value = "canary-7f1e"
	if err := server.Write(t.Context(), "secret/a", map[string]any{"k": value}); err != nil {
		t.Fatal(err)
	}
	// Something that goes wrong is what gets logged.
	_, err := server.Request(t.Context(), http.MethodPost, "secret/data/a", map[string]any{"wrong": value})
	if err == nil {
		t.Fatal("a malformed write was taken")
	}
	for name, text := range map[string]string{"log": log.String(), "error": err.Error()} {
		for _, secret := range []string{value, server.RootToken()} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s holds a secret:\n%s", name, text)
			}
		}
	}
	if !strings.Contains(log.String(), "[vaultserver] ready http://") {
		t.Errorf("the log has no ready line:\n%s", log.String())
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if server, err := Start(ctx, Options{}); server != nil || err == nil {
		t.Errorf("Start = %v, %v; want an error", server, err)
	}
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
