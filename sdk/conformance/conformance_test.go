package conformance_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/conformance"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store reads the data of its config, a ConfigMap.
type store struct{ data map[string]string }

func (s store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, func(_ context.Context, key, version string, metadata bool) (document.Document, error) {
		value, ok := s.data[key]

		switch {
		case version != "":
			return document.Document{}, provider.NotFound("there are no versions")
		case metadata:
			return document.Document{}, provider.Unsupported("there is no metadata")
		case !ok:
			return document.Document{}, provider.NotFound("secret %q does not exist", key)
		default:
			return document.Document{Raw: []byte(value)}, nil
		}
	})
}

func (store) Validate(context.Context) (provider.Validation, error) {
	return provider.Validation{}, nil
}

func (store) Close(context.Context) error { return nil }

const target = `
config: {apiVersion: v1, kind: ConfigMap, namespace: team-a, name: backend, uid: config-uid, generation: 1}
fixtures:
  secrets:
  - key: db
    value: '{"user":"app-user"}'
    properties: {user: app-user}
    missingProperty: nothing
  missingKey: missing
`

// A provider is tested in the process of its Go test.
func TestInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(path, []byte(target), 0o600); err != nil {
		t.Fatal(err)
	}

	loaded, err := conformance.Load(path)
	if err != nil {
		t.Fatal(err)
	}

	listener, done := server.NewMemoryListener(), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())

	go func() {
		done <- server.Serve(ctx, listener, provider.Provider{Name: "test", Version: "1.2.3", Kinds: []provider.Kind{
			provider.StoreKind(corev1.AddToScheme, func(_ context.Context, _ provider.Environment, config *corev1.ConfigMap) (store, error) {
				return store{config.Data}, nil
			}),
		}}, server.Options{
			PeerIdentity: pb.OperatorIdentity,
			Client: fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "backend", UID: "config-uid", Generation: 1},
				Data:       map[string]string{"db": `{"user":"app-user"}`},
			}).Build(),
		})
	}()

	defer func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	if report := conformance.Test(t, loaded, conformance.Options{Dial: listener.DialContext}); report.Counts.Passed < 20 {
		t.Errorf("%d tests passed:\n%s", report.Counts.Passed, report.Markdown())
	}
}
