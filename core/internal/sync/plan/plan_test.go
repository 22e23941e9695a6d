package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/store"
)

func externalSecret(edit func(*esv1.ExternalSecretSpec)) *esv1.ExternalSecret {
	es := &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "uid-1", Generation: 1},
		Spec: esv1.ExternalSecretSpec{
			SecretStoreRef: &esv1.StoreRef{APIVersion: "v2", Name: "store"},
			Data:           []esv1.Data{{SecretKey: "a", RemoteRef: esv1.RemoteRef{Key: "db", Property: "a"}}},
		},
	}
	if edit != nil {
		edit(&es.Spec)
	}

	return es
}

func TestNewPutsReadsTogether(t *testing.T) {
	t.Parallel()

	got, err := New(externalSecret(func(spec *esv1.ExternalSecretSpec) {
		spec.Data = []esv1.Data{
			{SecretKey: "a", RemoteRef: esv1.RemoteRef{Key: "db", Property: "a"}},
			{SecretKey: "same", RemoteRef: esv1.RemoteRef{Key: "db", Property: "a", DecodingStrategy: esv1.DecodingBase64, NullBytePolicy: esv1.NullByteFail}},
			{SecretKey: "other", RemoteRef: esv1.RemoteRef{Key: "x", MetadataPolicy: esv1.MetadataFetch}, SourceRef: &esv1.SourceRef{StoreRef: &esv1.StoreRef{Kind: "ClusterSecretStore", Name: "shared"}}},
		}
		find := &esv1.Find{Name: &esv1.FindName{RegExp: "^a"}, Tags: map[string]string{"t": "1"}}
		spec.DataFrom = []esv1.DataFrom{
			{Extract: &esv1.RemoteRef{Key: "db", Version: "3", ConversionStrategy: esv1.ConversionUnicode}},
			{Find: find}, {Find: find},
		}
		spec.Target = &esv1.Target{Name: "named"}
	}), nil)
	if err != nil {
		t.Fatal(err)
	}

	want := &Plan{
		Batches: []Batch{
			{Store: store.Reference{APIVersion: "v2", Kind: "SecretStore", Name: "store"}, Field: "spec.secretStoreRef", Reads: []store.Read{{Key: "db", Version: "3", Map: true}, {Key: "db", Property: "a"}}, Finds: []store.Find{{Name: "^a", Tags: map[string]string{"t": "1"}}}},
			{Store: store.Reference{APIVersion: "external-secrets.io/v1", Kind: "ClusterSecretStore", Name: "shared"}, Field: "spec.data[2].sourceRef.storeRef", Reads: []store.Read{{Key: "x", Metadata: true}}},
		},
		Entries: []Entry{
			{Field: "spec.dataFrom[0].extract", Batch: 0, Read: 0, Decoding: "None", Conversion: "Unicode", NullByte: "Ignore"},
			{Field: "spec.dataFrom[1].find", Batch: 0, Read: 0, Find: true, Decoding: "None", Conversion: "Default", NullByte: "Ignore"},
			{Field: "spec.dataFrom[2].find", Batch: 0, Read: 0, Find: true, Decoding: "None", Conversion: "Default", NullByte: "Ignore"},
			{Field: "spec.data[0]", SecretKey: "a", Batch: 0, Read: 1, Decoding: "None", Conversion: "Default", NullByte: "Ignore"},
			{Field: "spec.data[1]", SecretKey: "same", Batch: 0, Read: 1, Decoding: "Base64", Conversion: "Default", NullByte: "Fail"},
			{Field: "spec.data[2]", SecretKey: "other", Batch: 1, Read: 0, Decoding: "None", Conversion: "Default", NullByte: "Ignore"},
		},
		Target: Target{Name: "named", Creation: esv1.CreationOwner, Deletion: esv1.DeletionRetain},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  string
		edit func(*esv1.ExternalSecretSpec)
		want string
	}{
		{"nothing to sync would be Ready without meaning anything", func(s *esv1.ExternalSecretSpec) { s.Data = nil }, "spec.data and spec.dataFrom are both empty"},
		{"an entry without any store", func(s *esv1.ExternalSecretSpec) { s.SecretStoreRef = nil }, "spec.data[0] names no store"},
		{"an empty entry", func(s *esv1.ExternalSecretSpec) { s.DataFrom = []esv1.DataFrom{{}} }, "spec.dataFrom[0] is empty"},
		{"two sources in one entry", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{Extract: &esv1.RemoteRef{Key: "a"}, Find: &esv1.Find{}}}
		}, "spec.dataFrom[0]: set one of"},
		{"a generator in data was never implemented", func(s *esv1.ExternalSecretSpec) {
			s.Data[0].SourceRef = &esv1.SourceRef{GeneratorRef: &esv1.GeneratorRef{Kind: "Password", Name: "x"}}
		}, "spec.data[0].sourceRef.generatorRef"},
		{"a schedule that cannot be read would be ignored", func(s *esv1.ExternalSecretSpec) {
			s.SyncWindows = &esv1.SyncWindows{Kind: "deny", Windows: []esv1.SyncWindow{{Schedule: "0 25 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}
		}, "spec.syncWindows.windows[0].schedule"},
		{"a name that is no expression", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{Find: &esv1.Find{Name: &esv1.FindName{RegExp: "("}}}}
		}, "spec.dataFrom[0].find.name.regexp"},
		{"a rewrite that does nothing", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{Extract: &esv1.RemoteRef{Key: "a"}, Rewrite: []esv1.Rewrite{{}}}}
		}, "spec.dataFrom[0].rewrite[0] is empty"},
		{"a rewrite that is no expression", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{Extract: &esv1.RemoteRef{Key: "a"}, Rewrite: []esv1.Rewrite{{Regexp: &esv1.RewriteRegexp{Source: "["}}}}}
		}, "spec.dataFrom[0].rewrite[0].regexp.source"},
		{"a merged object without a key", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{Extract: &esv1.RemoteRef{Key: "a"}, Rewrite: []esv1.Rewrite{{Merge: &esv1.RewriteMerge{Strategy: "JSON"}}}}}
		}, "spec.dataFrom[0].rewrite[0].merge.into"},
		{"generators", func(s *esv1.ExternalSecretSpec) {
			s.DataFrom = []esv1.DataFrom{{SourceRef: &esv1.SourceRef{GeneratorRef: &esv1.GeneratorRef{Kind: "Password", Name: "x"}}}}
		}, "not supported yet: spec.dataFrom[0].sourceRef.generatorRef"},
		{"only what is owned is deleted", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{DeletionPolicy: esv1.DeletionDelete, CreationPolicy: esv1.CreationMerge}
		}, "deletionPolicy Delete with creationPolicy Merge"},
		{"there is nothing to take keys from", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{DeletionPolicy: esv1.DeletionMerge, CreationPolicy: esv1.CreationNone}
		}, "deletionPolicy Merge with creationPolicy None"},
		{"the same key twice", func(s *esv1.ExternalSecretSpec) { s.Data = append(s.Data, s.Data[0]) }, `spec.data[1].secretKey "a" is that of spec.data[0]`},
		{"a manifest without a kind", func(s *esv1.ExternalSecretSpec) { s.Target = &esv1.Target{Manifest: &esv1.ManifestReference{}} }, "are not the apiVersion and kind of an object"},
		{"a Secret by another way", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Manifest: &esv1.ManifestReference{APIVersion: "v1", Kind: "Secret"}}
		}, "a Secret is what a target is without it"},
		{"an ExternalSecret that makes ExternalSecrets", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Manifest: &esv1.ManifestReference{APIVersion: "external-secrets.io/v1", Kind: "ExternalSecret"}}
		}, "cannot create objects of external-secrets.io"},
		{"an immutable manifest", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Immutable: true, Manifest: &esv1.ManifestReference{APIVersion: "v1", Kind: "ConfigMap"}}
		}, "spec.target.immutable is for Secrets"},
		{"a template that sets what identifies the object", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Manifest: &esv1.ManifestReference{APIVersion: "v1", Kind: "ConfigMap"}, Template: &esv1.Template{
				TemplateFrom: []esv1.TemplateFrom{{Literal: new(string), Target: "metadata.ownerReferences"}},
			}}
		}, "a template does not set metadata"},
		{"a path that is none", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Manifest: &esv1.ManifestReference{APIVersion: "v1", Kind: "ConfigMap"}, Template: &esv1.Template{
				TemplateFrom: []esv1.TemplateFrom{{Literal: new(string), Target: "spec..x"}},
			}}
		}, "is no path"},
		{"a Secret that is an identity", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Template: &esv1.Template{Type: TypeServiceAccountToken}}
		}, "template.type kubernetes.io/service-account-token is refused"},
		{"a Secret that lets nodes join", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Template: &esv1.Template{Type: TypeBootstrapToken}}
		}, "template.type bootstrap.kubernetes.io/token is refused"},
		{"templates from nowhere", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Template: &esv1.Template{TemplateFrom: []esv1.TemplateFrom{{}}}}
		}, "templateFrom[0] is empty"},
		{"a place that a Secret does not have", func(s *esv1.ExternalSecretSpec) {
			s.Target = &esv1.Target{Template: &esv1.Template{TemplateFrom: []esv1.TemplateFrom{{Literal: new(string), Target: "spec.x"}}}}
		}, `templateFrom[0].target "spec.x"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			_, err := New(externalSecret(c.edit), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v; want %q", err, c.want)
			}
		})
	}
}
