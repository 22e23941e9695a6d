package provider

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

func TestDecodeSettings(t *testing.T) {
	type spec struct {
		Tags map[string]string `json:"tags"`
	}

	for _, test := range []struct {
		name, why, settings, wrong string
		want                       spec
	}{
		{name: "none", why: "they are optional"},
		{name: "empty object", why: "it says nothing", settings: `{}`},
		{name: "all", why: "ESO's own form", settings: `{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"tags":{"a":"b"}}}`, want: spec{Tags: map[string]string{"a": "b"}}},
		{name: "unknown field", why: "a typing error must not be ignored", settings: `{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"tag":{}}}`, wrong: `unknown field "spec.tag"`},
		{name: "other letters", why: "likewise", settings: `{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"TAGS":{}}}`, wrong: "spec.TAGS"},
		{name: "wrong type", why: "the field is named", settings: `{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"tags":1}}`, wrong: "spec.tags"},
		{name: "another kind", why: "it is meant for another consumer", settings: `{"apiVersion":"v1","kind":"Pod","spec":{}}`, wrong: `Pod of "v1"`},
		{name: "no object", why: "there are no fields", settings: `[1]`, wrong: "no object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := DecodeSettings[spec]([]byte(test.settings))

			if test.wrong != "" {
				if typed := AsError(err); err == nil || typed.Code != codes.InvalidArgument || !strings.Contains(typed.Message, test.wrong) {
					t.Errorf("%s: %v, want InvalidArgument with %q", test.why, err, test.wrong)
				}

				return
			}

			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", test.why, err, diff)
			}
		})
	}
}
