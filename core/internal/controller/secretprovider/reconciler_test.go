package secretprovider

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// Of the kinds that a provider reports, those that are not registered are ignored.
func TestKindsAreThoseOfTheRegistration(t *testing.T) {
	t.Parallel()

	claims := func(apiVersion, kind string) *pb.Kind {
		return &pb.Kind{ApiVersion: apiVersion, Kind: kind, Service: pb.Service_SERVICE_SECRET_STORE}
	}
	info := &pb.GetInfoResponse{Kinds: []*pb.Kind{
		claims(v2alpha1.DefaultConfigAPIVersion, "Acme"), claims(v2alpha1.DefaultConfigAPIVersion, "Vault"), claims("acme.example.com/v1", "Vault"),
	}}

	for _, c := range []struct {
		why    string
		listed []v2alpha1.ProviderKind
		want   []v2alpha1.ServedKind
	}{
		{
			why: "nothing is listed: all is believed",
			want: []v2alpha1.ServedKind{
				{APIVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Acme"}, {APIVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Vault"},
				{APIVersion: "acme.example.com/v1", Kind: "Vault"},
			},
		},
		{
			why: "one kind", listed: []v2alpha1.ProviderKind{{Kind: "Acme"}},
			want: []v2alpha1.ServedKind{{APIVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Acme"}},
		},
		{
			why: "the same kind of another group", listed: []v2alpha1.ProviderKind{{APIVersion: "acme.example.com/v1", Kind: "Vault"}},
			want: []v2alpha1.ServedKind{{APIVersion: "acme.example.com/v1", Kind: "Vault"}},
		},
		{why: "what the provider does not claim", listed: []v2alpha1.ProviderKind{{Kind: "Other"}}, want: []v2alpha1.ServedKind{}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			registration := &v2alpha1.SecretProvider{Spec: v2alpha1.SecretProviderSpec{Kinds: c.listed}}
			if diff := cmp.Diff(c.want, kinds(registration, info)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A certificate that cannot be renewed is no reason to leave a provider that
// has a good one.
func TestProviderServesOnWithoutRenewal(t *testing.T) {
	t.Parallel()

	unissued := errors.New("cannot write the certificate")

	for _, c := range []struct {
		why            string
		before         metav1.Condition
		status, reason string
	}{
		{"it serves", metav1.Condition{Status: metav1.ConditionTrue, Reason: v2alpha1.ReasonServing}, "True", v2alpha1.ReasonDegraded},
		{"it cannot be reached", metav1.Condition{Status: metav1.ConditionFalse, Reason: v2alpha1.ReasonUnreachable}, "False", v2alpha1.ReasonCertificateFailed},
	} {
		if got := withoutRenewal(c.before, unissued); string(got.Status) != c.status || got.Reason != c.reason {
			t.Errorf("%s: %+v", c.why, got)
		}
	}
}
