package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/template"
)

const canary = "canary-value"

func renderer() *Renderer {
	engine := template.New(template.Options{})

	return New(engine, engine)
}

func TestRenderMergesInOrder(t *testing.T) {
	t.Parallel()

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{
		Name: "app", Labels: map[string]string{"team": "a"},
		Annotations: map[string]string{"note": "kept", esv1.AnnotationForceSync: "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
	}}
	p := &plan.Plan{
		Target: plan.Target{Name: "target"},
		Entries: []plan.Entry{
			{Field: "spec.dataFrom[0].extract"}, {Field: "spec.dataFrom[1].extract"}, {Field: "spec.data[0]", SecretKey: "c"},
		},
	}

	got, err := renderer().Render(es, p, []Value{
		{Map: map[string][]byte{"a": []byte("1"), "b": []byte("1"), "c": []byte("1"), "": []byte("dropped")}},
		{Map: map[string][]byte{"b": []byte("2"), "c": []byte("2")}},
		{Value: []byte("3")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}

	want := &Target{
		Target: plan.Target{Name: "target"}, Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "kept"},
		Data: map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": []byte("3")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}

	if len(es.Annotations) != 3 {
		t.Error("rendering changed the ExternalSecret")
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why    string
		entry  plan.Entry
		result Value
		want   string
	}{
		{"two keys that become one", plan.Entry{Field: "f"}, Value{Map: map[string][]byte{"a/b": nil, "a:b": nil}}, `the keys "a/b" and "a:b" both become "a_b"`},
		{"a key that is too long", plan.Entry{Field: "f"}, Value{Map: map[string][]byte{strings.Repeat("k", 254): nil}}, "has 254 characters"},
		{"a letter that Secrets do not take", plan.Entry{Field: "f"}, Value{Map: map[string][]byte{"größe": nil}}, `holds the character 'ö'`},
		{"a name that Kubernetes reserves", plan.Entry{Field: "f"}, Value{Map: map[string][]byte{"..data": nil}}, `"..data"`},
		{"a value that is not base64", plan.Entry{Field: "f", SecretKey: "k", Decoding: esv1.DecodingBase64}, Value{Value: []byte(canary + "!")}, `the value of key "k" is not Base64`},
		{"a value that is not URL-safe base64", plan.Entry{Field: "f", SecretKey: "k", Decoding: esv1.DecodingBase64URL}, Value{Value: []byte(canary + "!")}, `the value of key "k" is not Base64URL`},
		{"a NUL byte that must not be", plan.Entry{Field: "f", SecretKey: "k", NullByte: esv1.NullByteFail}, Value{Value: []byte(canary + "\x00")}, "NUL byte"},
		{"a NUL byte that decoding brings out", plan.Entry{Field: "f", SecretKey: "k", Decoding: esv1.DecodingBase64, NullByte: esv1.NullByteFail}, Value{Value: []byte("AA==")}, "NUL byte"},
		{"more than a Secret holds", plan.Entry{Field: "f", SecretKey: "k"}, Value{Value: bytes.Repeat([]byte("x"), 1<<20)}, "a Secret holds 1048576"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			_, err := renderer().Render(&esv1.ExternalSecret{}, &plan.Plan{Entries: []plan.Entry{c.entry}}, []Value{c.result}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("err = %v; want %q", err, c.want)
			}

			if strings.Contains(err.Error(), canary) {
				t.Error("the error holds the value")
			}
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		strategy esv1.DecodingStrategy
		in, want string
	}{
		{"None leaves binary alone", esv1.DecodingNone, "\x00\xff", "\x00\xff"},
		{"Base64 with padding", esv1.DecodingBase64, "Pz8/", "???"},
		{"Base64URL", esv1.DecodingBase64URL, "Pz8_", "???"},
		{"Auto takes base64 first", esv1.DecodingAuto, "Pz8/", "???"},
		{"Auto takes base64url next", esv1.DecodingAuto, "Pz8_", "???"},
		{"Auto leaves what is neither", esv1.DecodingAuto, "not base64!", "not base64!"},
		{"Auto leaves what lacks its padding", esv1.DecodingAuto, "aGVsbG8", "aGVsbG8"},
		{"an empty value stays empty", esv1.DecodingBase64, "", ""},
	} {
		got, err := decode(c.strategy, []byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q becomes %q, %v; want %q", c.why, c.in, got, err, c.want)
		}
	}
}

func TestConvertKey(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		strategy esv1.ConversionStrategy
		in, want string
	}{
		{"allowed characters are kept", esv1.ConversionDefault, "a-B_9.z", "a-B_9.z"},
		{"any other character becomes one _", esv1.ConversionDefault, "a/b c", "a_b_c"},
		{"Unicode encodes the character", esv1.ConversionUnicode, "a/b", "a_U002f_b"},
		{"beyond four digits", esv1.ConversionUnicode, "😀", "_U1f600_"},
	} {
		if got := convertKey(c.strategy, c.in); got != c.want {
			t.Errorf("%s: %q becomes %q, not %q", c.why, c.in, got, c.want)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add("key", []byte("aGVsbG8="), "Auto", "Unicode")
	f.Add("a/b", []byte{0, 1}, "Base64", "Default")
	f.Fuzz(func(t *testing.T, key string, value []byte, decoding, conversion string) {
		entry := plan.Entry{Field: "f", Decoding: esv1.DecodingStrategy(decoding), Conversion: esv1.ConversionStrategy(conversion)}

		target, err := renderer().Render(&esv1.ExternalSecret{}, &plan.Plan{Entries: []plan.Entry{entry}}, []Value{{Map: map[string][]byte{key: value}}}, nil)
		if err != nil {
			return
		}

		for got := range target.Data {
			if got == "" || len(got) > maxKeyLength || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
				t.Fatalf("%q is no key of a Secret", got)
			}
		}
	})
}

// If the stores return nothing, the target is deleted or retained regardless of
// its templates: v1 decides that before it renders them.
func TestNothingIsRenderedOutOfNothing(t *testing.T) {
	t.Parallel()

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
	es.Spec.Target = &esv1.Target{Template: &esv1.Template{Data: map[string]string{"out": "{{ .password }}"}}}

	for _, c := range []struct {
		why      string
		deletion esv1.DeletionPolicy
		value    Value
		entry    plan.Entry
		want     Action
		err      bool
	}{
		{"all are gone", esv1.DeletionDelete, Value{Absent: true}, plan.Entry{SecretKey: "password"}, Deleted, false},
		{"nothing was found", esv1.DeletionDelete, Value{Map: map[string][]byte{}}, plan.Entry{Find: true}, Deleted, false},
		{"nothing was found, and the target stays", esv1.DeletionRetain, Value{Map: map[string][]byte{}}, plan.Entry{Find: true}, Retained, false},
		{"the target stays, without its keys", esv1.DeletionMerge, Value{Absent: true}, plan.Entry{SecretKey: "password"}, Written, true},
		{"something else is there", esv1.DeletionDelete, Value{Value: []byte("1")}, plan.Entry{SecretKey: "other"}, Written, true},
	} {
		p := &plan.Plan{Target: plan.Target{Name: "app", Creation: esv1.CreationOwner, Deletion: c.deletion}, Entries: []plan.Entry{c.entry}}

		target, err := renderer().Render(es, p, []Value{c.value}, nil)

		switch {
		case (err != nil) != c.err:
			t.Errorf("%s: err = %v", c.why, err)
		case err == nil && target.Action() != c.want:
			t.Errorf("%s: fate = %v", c.why, target.Action())
		}
	}
}
