package plan

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// For any references of an ExternalSecret, New neither panics nor hangs, and the
// entries of the plan refer to its reads.
func FuzzNew(f *testing.F) {
	f.Add([]byte(`{"secretStoreRef":{"name":"s"},"data":[{"secretKey":"a","remoteRef":{"key":"k","property":"p"}}]}`), "spec.a[0].b", "0 3 * * *")
	f.Add([]byte(`{"dataFrom":[{"find":{"name":{"regexp":"("}}},{"extract":{"key":"x"},"sourceRef":{"storeRef":{"kind":"ClusterSecretStore","name":"c"}}}]}`), "..", "@every 1s")
	f.Add([]byte(`{"target":{"manifest":{"apiVersion":"a/b/c","kind":"K"},"template":{"templateFrom":[{"literal":"","target":"metadata.x"}]}}}`), "x[99999]", "* * * * *")
	f.Fuzz(func(t *testing.T, spec []byte, path, schedule string) {
		es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "uid"}}
		if err := json.Unmarshal(spec, &es.Spec); err != nil {
			return
		}

		es.Spec.SyncWindows = &esv1.SyncWindows{Kind: "allow", Windows: []esv1.SyncWindow{{Schedule: schedule, Duration: metav1.Duration{Duration: time.Hour}}}}
		es.Status.RefreshTime = metav1.NewTime(time.Unix(1000, 0))

		began := time.Now()
		_ = Decide(es, State{Intact: true, Now: began})
		_ = Objects(es)
		_ = Stores(es)

		if steps, err := ParsePath(path); err == nil && len(steps) == 0 {
			t.Fatalf("%q is a path that leads nowhere", path)
		}

		if took := time.Since(began); took > 2*time.Second {
			t.Fatalf("it took %s", took)
		}

		p, err := New(es, nil)
		if err != nil {
			return
		}

		for _, entry := range p.Entries {
			batch := p.Batches[entry.Batch]
			if entry.Find && batch.Finds[entry.Read].Name != "" && entry.SecretKey != "" {
				t.Fatalf("%+v is an entry of data that finds", entry)
			}

			if !entry.Find {
				_ = batch.Reads[entry.Read]
			}
		}
	})
}
