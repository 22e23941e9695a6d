package session_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/internal/fakeaws"
	"github.com/external-secrets/eso/providers/aws/internal/session"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// open makes a session until the test is over.
func open(t *testing.T, env provider.Environment, access v2alpha1.AWSAccess) (*session.Session, error) {
	t.Helper()

	object := fakeaws.Object()

	s, err := session.New(t.Context(), env, &object, &access)
	if err == nil {
		t.Cleanup(s.Close)
	}

	return s, err
}

func mustOpen(t *testing.T, env provider.Environment, access v2alpha1.AWSAccess) *session.Session {
	t.Helper()

	s, err := open(t, env, access)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// get reads a secret through a session, and gives the session's error.
func get(ctx context.Context, s *session.Session, hidden ...[]byte) error {
	_, err := secretsmanager.NewFromConfig(s.Config()).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String("db")})

	return s.Error(ctx, err, "read secret \"db\"", hidden...)
}

// discreet checks that nothing that must not be seen is in an error.
func discreet(t *testing.T, err error) {
	t.Helper()

	if err == nil {
		return
	}

	for _, hidden := range []string{fakeaws.KeyID, fakeaws.Key, fakeaws.Token, fakeaws.JWT, "token-of-", "secret-of-"} {
		if strings.Contains(err.Error(), hidden) {
			t.Errorf("the error holds a credential (%.6s...): %s", hidden, strings.ReplaceAll(err.Error(), hidden, "***"))
		}
	}
}

// What AWS answers decides what the operator does; nothing that AWS quotes of
// the request is a way out for credentials.
func TestErrors(t *testing.T) {
	const quoted = "you sent " + fakeaws.KeyID + " " + fakeaws.Key + " " + fakeaws.Token

	server := fakeaws.New(t)
	s := mustOpen(t, fakeaws.Environment(), fakeaws.Access())

	for _, test := range []struct {
		name, why string
		answer    fakeaws.Refusal
		code      codes.Code
		store     bool
		after     time.Duration
		text      string
	}{
		{name: "absent", why: "AWS reports that the secret does not exist", answer: fakeaws.Refusal{Code: "ResourceNotFoundException"}, code: codes.NotFound, text: "does not exist"},
		{name: "404 of something else", why: "a gateway proves nothing", answer: fakeaws.Refusal{Status: 404, Raw: "<html>not here</html>"}, code: codes.Unavailable, store: true, text: "not as AWS does"},
		{name: "no parameter", why: "the other service's word", answer: fakeaws.Refusal{Code: "ParameterNotFound"}, code: codes.NotFound},
		{name: "denied", why: "of this secret alone", answer: fakeaws.Refusal{Code: "AccessDeniedException", Message: quoted}, code: codes.PermissionDenied, text: "AWS refuses (AccessDeniedException"},
		{name: "decryption", why: "the secret is there; its key is closed", answer: fakeaws.Refusal{Code: "DecryptionFailure"}, code: codes.PermissionDenied, text: "kms:Decrypt"},
		{name: "unknown key", why: "every call fails by it", answer: fakeaws.Refusal{Code: "UnrecognizedClientException", Message: quoted}, code: codes.Unauthenticated, store: true, text: "does not accept the credentials"},
		{name: "wrong signature", why: "AWS repeats what was signed, the session's token too", answer: fakeaws.Refusal{Status: 403, Code: "SignatureDoesNotMatch", Message: quoted}, code: codes.Unauthenticated, store: true},
		{name: "invalid signature", why: "the same in JSON", answer: fakeaws.Refusal{Code: "InvalidSignatureException", Message: quoted}, code: codes.Unauthenticated, store: true},
		{name: "expired", why: "the SDK creates the store again", answer: fakeaws.Refusal{Code: "ExpiredTokenException", Message: quoted}, code: codes.Unauthenticated, store: true, text: "have expired"},
		{name: "throttled", why: "AWS does not say when: some seconds", answer: fakeaws.Refusal{Code: "ThrottlingException", Message: "Rate exceeded"}, code: codes.ResourceExhausted, store: true, after: 5 * time.Second},
		{name: "throttled until", why: "AWS says when", answer: fakeaws.Refusal{Code: "TooManyRequestsException", Header: map[string]string{"Retry-After": "7"}}, code: codes.ResourceExhausted, store: true, after: 7 * time.Second},
		{name: "429", why: "by the status alone", answer: fakeaws.Refusal{Status: 429, Raw: "{}"}, code: codes.ResourceExhausted, store: true, after: 5 * time.Second},
		{name: "invalid", why: "a mistake of one request", answer: fakeaws.Refusal{Code: "InvalidParameterException", Message: "no such stage"}, code: codes.InvalidArgument, text: "no such stage"},
		{name: "unknown code", why: "still of one request", answer: fakeaws.Refusal{Code: "SomethingNewException"}, code: codes.InvalidArgument},
		{name: "failure", why: "AWS is down", answer: fakeaws.Refusal{Status: 500, Code: "InternalServiceError", Message: quoted}, code: codes.Unavailable, store: true},
		{name: "502", why: "something before AWS is", answer: fakeaws.Refusal{Status: 502, Raw: "bad gateway"}, code: codes.Unavailable, store: true},
		{name: "a code with a namespace", why: "AWS's protocols have it in several forms", answer: fakeaws.Refusal{Code: "com.amazonaws.secretsmanager#ResourceNotFoundException"}, code: codes.NotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Always("GetSecretValue", test.answer)

			err := get(t.Context(), s)
			discreet(t, err)

			typed := provider.AsError(err)
			if typed.Code != test.code || typed.StoreScope != test.store || typed.RetryAfter != test.after {
				t.Errorf("%s: %v, of the store: %t, after %s: %v", test.why, typed.Code, typed.StoreScope, typed.RetryAfter, err)
			}

			for _, text := range []string{test.text, `secret "db"`, fakeaws.RequestID} {
				if !strings.Contains(typed.Message, text) {
					t.Errorf("the message lacks %q: %s", text, typed.Message)
				}
			}
		})
	}
}

// AWS's complaint about a field quotes what was in it: a value that was to be
// written must not come back.
func TestErrorsHideWhatWasWritten(t *testing.T) {
	server := fakeaws.New(t)
	s := mustOpen(t, fakeaws.Environment(), fakeaws.Access())

	const value = "a very secret value"

	for name, message := range map[string]string{
		"whole": "1 validation error detected: Value '" + value + "' at 'value' failed to satisfy constraint: too long",
		"cut":   "1 validation error detected: Value 'a very sec' at 'value' failed to satisfy constraint: too long",
		"plain": "cannot keep " + value + ": too long",
	} {
		t.Run(name, func(t *testing.T) {
			server.Always("GetSecretValue", fakeaws.Refusal{Code: "ValidationException", Message: message})

			err := get(t.Context(), s, []byte(value))
			if strings.Contains(err.Error(), "very sec") || !strings.Contains(err.Error(), "too long") {
				t.Errorf("the error: %v", err)
			}
		})
	}
}

// What is no answer of AWS at all.
func TestErrorsWithoutAnAnswer(t *testing.T) {
	server := fakeaws.New(t)
	s := mustOpen(t, fakeaws.Environment(), fakeaws.Access())

	server.Always("GetSecretValue", "no JSON, but the value s3cret-value")

	if err := get(t.Context(), s); provider.AsError(err).Code != codes.Unavailable || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an answer that is no JSON: %v", err)
	}

	server.Always("GetSecretValue", `{"SecretString":"`+strings.Repeat("x", 9<<20)+`"}`)

	if err := get(t.Context(), s); provider.AsError(err).Code != codes.ResourceExhausted || len(err.Error()) > 1000 {
		t.Errorf("an answer without end: %.200v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := get(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}

	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

	away := mustOpen(t, fakeaws.Environment(), fakeaws.Access())

	err := get(t.Context(), away)
	discreet(t, err)

	if typed := provider.AsError(err); typed.Code != codes.Unavailable || !typed.StoreScope || !strings.Contains(typed.Message, "connection refused") {
		t.Errorf("no listener: %v", err)
	}
}

// A config that cannot work is refused before anything is called, with the
// field.
func TestConfigs(t *testing.T) {
	fakeaws.New(t)

	for _, test := range []struct {
		name, why string
		change    func(*v2alpha1.AWSAccess, *fakeaws.References)
		want      string
	}{
		{"no region", "the environment's must not count", func(a *v2alpha1.AWSAccess, _ *fakeaws.References) { a.Region = "" }, "spec.region is empty"},
		{"a region that is a host", "it would become part of the address", func(a *v2alpha1.AWSAccess, _ *fakeaws.References) { a.Region = "evil.example.com/" }, "spec.region"},
		{"two methods", "which one is meant?", func(a *v2alpha1.AWSAccess, _ *fakeaws.References) { a.Auth.JWT = &v2alpha1.AWSAuthJWT{} }, "one of secretRef and jwt"},
		{"an empty key", "a Secret that is not filled yet", func(_ *v2alpha1.AWSAccess, r *fakeaws.References) { r.Set("key", " \n") }, `spec.auth.secretRef.secretAccessKeySecretRef: key "key" of Secret "aws" is empty`},
		{"a key of two lines", "a whole credentials file", func(_ *v2alpha1.AWSAccess, r *fakeaws.References) { r.Set("id", "[default]\nAKIA") }, "spec.auth.secretRef.accessKeyIDSecretRef"},
		{"a missing key", "the resolver's own words", func(a *v2alpha1.AWSAccess, _ *fakeaws.References) {
			a.Auth.SecretRef.SecretAccessKeySecretRef.Key = "none"
		}, `has no key "none"`},
		{"no credentials", "omitting credentials does not allow the provider's own", func(a *v2alpha1.AWSAccess, _ *fakeaws.References) { a.Auth = v2alpha1.AWSAuth{} }, "--own-identity-namespace=team"},
	} {
		t.Run(test.name, func(t *testing.T) {
			access, env, references := fakeaws.Access(), fakeaws.Environment(), fakeaws.NewReferences()
			env.References = references
			test.change(&access, references)

			_, err := open(t, env, access)
			if err == nil || provider.AsError(err).Code != codes.FailedPrecondition || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
}

// A config has the credentials that it names, whatever the process has.
func TestOwnIdentity(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOWNOWNOWNOWN7EXA")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "own")
	t.Setenv("AWS_REGION", "us-west-2")
	t.Setenv("AWS_PROFILE", "own")

	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[profile own]\naws_access_key_id = AKIAFILEFILEFILE7EXA\naws_secret_access_key = file\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("AWS_CONFIG_FILE", file)

	env := fakeaws.Environment()
	env.OwnIdentity = true

	if err := get(t.Context(), mustOpen(t, env, fakeaws.Access())); err != nil {
		t.Fatal(err)
	}

	if err := get(t.Context(), mustOpen(t, env, v2alpha1.AWSAccess{Region: fakeaws.Region})); err != nil {
		t.Fatal(err)
	}

	var keys []string
	for _, call := range server.Calls("GetSecretValue") {
		keys = append(keys, call.KeyID)
	}

	if diff := cmp.Diff([]string{fakeaws.KeyID, "AKIAOWNOWNOWNOWN7EXA"}, keys); diff != "" {
		t.Errorf("keys that were used (-want +got):\n%s", diff)
	}
}

// EKS provides a Pod's identity by an agent on the node, which identifies Pods by
// a token file.
func TestPodIdentity(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})

	var asked atomic.Int32

	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)

		if r.URL.Path != "/v1/credentials" || r.Header.Get("Authorization") != "token-of-pod" {
			w.WriteHeader(http.StatusForbidden)

			return
		}

		fmt.Fprintf(w, `{"AccessKeyId":"ASIAPODPODPODPOD7EXA","SecretAccessKey":"secret-of-pod","Token":"token-of-ASIAPOD","Expiration":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(agent.Close)

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token-of-pod"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL+"/v1/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)

	own := v2alpha1.AWSAccess{Region: fakeaws.Region}
	env := fakeaws.Environment()

	// Only allowed namespaces may use it.
	if _, err := open(t, env, own); provider.AsError(err).Reason != pb.ReasonReferenceDenied || asked.Load() != 0 {
		t.Errorf("a config that may not use it: %v, after %d requests to the agent", err, asked.Load())
	}

	env.OwnIdentity = true
	s := mustOpen(t, env, own)

	for range 3 {
		if err := get(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}

	for _, call := range server.Calls("GetSecretValue") {
		if call.KeyID != "ASIAPODPODPODPOD7EXA" || call.Token != "token-of-ASIAPOD" {
			t.Errorf("a call is signed with %s", call.KeyID)
		}
	}

	if n := asked.Load(); n != 1 {
		t.Errorf("the agent was asked %d times", n)
	}

	// The refusal of the agent is reported, and the Pod's token is not.
	if err := os.WriteFile(file, []byte("unknown-token"), 0o600); err != nil {
		t.Fatal(err)
	}

	err := get(t.Context(), mustOpen(t, env, own))
	if err == nil || !strings.Contains(err.Error(), "use the provider's own identity") {
		t.Errorf("an agent that refuses: %v", err)
	}

	discreet(t, err)
}

// The other way in which EKS gives a Pod its identity: a ServiceAccount's token
// in a file, and a role.
func TestOwnWebIdentity(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})
	server.On("AssumeRoleWithWebIdentity", func(fakeaws.Call) fakeaws.Answer {
		return fakeaws.Session("AssumeRoleWithWebIdentity", "ASIAOWN", time.Now().Add(time.Hour))
	})

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token-of-own"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/own")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	// The SDK makes this one client before it has read AWS_ENDPOINT_URL.
	t.Setenv("AWS_ENDPOINT_URL_STS", server.URL)

	env := fakeaws.Environment()
	env.OwnIdentity = true

	if err := get(t.Context(), mustOpen(t, env, v2alpha1.AWSAccess{Region: fakeaws.Region})); err != nil {
		t.Fatal(err)
	}

	if logins := server.Calls("AssumeRoleWithWebIdentity"); len(logins) != 1 || logins[0].In["WebIdentityToken"] != "token-of-own" || logins[0].In["RoleArn"] != "arn:aws:iam::123456789012:role/own" {
		t.Errorf("logins: %v", logins)
	}

	for _, call := range server.Calls("GetSecretValue") {
		if call.KeyID != "ASIAOWN" {
			t.Errorf("a call is signed with %s", call.KeyID)
		}
	}
}

// Roles are assumed in their order, each as the one before; the last with all
// that the config says of it.
func TestRoles(t *testing.T) {
	server := fakeaws.New(t)
	later := time.Now().Add(time.Hour)

	server.On("AssumeRoleWithWebIdentity", func(fakeaws.Call) fakeaws.Answer {
		return fakeaws.Session("AssumeRoleWithWebIdentity", "ASIALOGIN", later)
	})
	server.On("AssumeRole", func(call fakeaws.Call) fakeaws.Answer {
		arn, _ := call.In["RoleArn"].(string)

		return fakeaws.Session("AssumeRole", "ASIA"+arn[len(arn)-4:], later)
	})
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})

	access := v2alpha1.AWSAccess{
		Region: fakeaws.Region,
		Auth: v2alpha1.AWSAuth{JWT: &v2alpha1.AWSAuthJWT{
			Role: "arn:aws:iam::123456789012:role/login", ServiceAccountRef: metav1alpha1.ServiceAccountSelector{Name: "app"},
		}},
		AdditionalRoles: []v2alpha1.RoleARN{"arn:aws:iam::123456789012:role/frst", "arn:aws:iam::123456789012:role/scnd"},
		Role:            "arn:aws:iam::123456789012:role/last", ExternalID: "an-id",
		SessionTags: []v2alpha1.Tag{{Key: "team", Value: "blue"}}, TransitiveTagKeys: []string{"team"},
	}
	s := mustOpen(t, fakeaws.Environment(), access)

	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			if err := get(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}

	wait.Wait()

	logins := server.Calls("AssumeRoleWithWebIdentity")
	if len(logins) != 1 || logins[0].KeyID != "" || logins[0].In["WebIdentityToken"] != fakeaws.JWT+"-sts.amazonaws.com-1" || logins[0].In["RoleSessionName"] != "external-secrets@team.config" {
		t.Errorf("logins: %v", logins)
	}

	var chain []string

	for _, call := range server.Calls("AssumeRole") {
		id, _ := call.In["ExternalId"].(string)
		tag, _ := call.In["Tags.member.1.Value"].(string)
		transitive, _ := call.In["TransitiveTagKeys.member.1"].(string)
		arn, _ := call.In["RoleArn"].(string)
		chain = append(chain, strings.Join([]string{call.KeyID, arn[len(arn)-4:], id, tag, transitive}, " "))
	}

	if diff := cmp.Diff([]string{"ASIALOGIN frst   ", "ASIAfrst scnd   ", "ASIAscnd last an-id blue team"}, chain); diff != "" {
		t.Errorf("the chain (-want +got):\n%s", diff)
	}

	for _, call := range server.Calls("GetSecretValue") {
		if call.KeyID != "ASIAlast" || call.Token != "token-of-ASIAlast" {
			t.Errorf("a call is signed with %s", call.KeyID)
		}
	}
}

// Expired credentials are renewed with a new token of the ServiceAccount, which has
// a shorter lifetime.
func TestRenewal(t *testing.T) {
	server := fakeaws.New(t)
	expires := time.Now()

	server.On("AssumeRoleWithWebIdentity", func(fakeaws.Call) fakeaws.Answer {
		return fakeaws.Session("AssumeRoleWithWebIdentity", "ASIALOGIN", expires)
	})
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})

	s := mustOpen(t, fakeaws.Environment(), v2alpha1.AWSAccess{Region: fakeaws.Region, Auth: v2alpha1.AWSAuth{JWT: &v2alpha1.AWSAuthJWT{
		Role: "arn:aws:iam::123456789012:role/login", ServiceAccountRef: metav1alpha1.ServiceAccountSelector{Name: "app"},
	}}})

	for range 2 {
		if err := get(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}

	expires = time.Now().Add(time.Hour)

	for range 3 {
		if err := get(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}

	tokens := map[any]bool{}
	for _, call := range server.Calls("AssumeRoleWithWebIdentity") {
		tokens[call.In["WebIdentityToken"]] = true
	}

	if len(tokens) != 3 {
		t.Errorf("%d logins with different tokens, want 3: two that had ended, and one that holds", len(tokens))
	}
}

// A login that AWS refuses is one of the store, in whatever words.
func TestRefusedLogins(t *testing.T) {
	server := fakeaws.New(t)
	web := v2alpha1.AWSAccess{Region: fakeaws.Region, Auth: v2alpha1.AWSAuth{JWT: &v2alpha1.AWSAuthJWT{
		Role: "arn:aws:iam::123456789012:role/login", ServiceAccountRef: metav1alpha1.ServiceAccountSelector{Name: "app"},
	}}}
	assume := fakeaws.Access()
	assume.Role = "arn:aws:iam::123456789012:role/last"
	absent := *web.DeepCopy()
	absent.Auth.JWT.ServiceAccountRef.Name = "absent"

	for _, test := range []struct {
		name, why string
		access    v2alpha1.AWSAccess
		answer    fakeaws.Answer
		code      codes.Code
		text      string
	}{
		{"a role that does not trust", "AWS says AccessDenied of it", assume, fakeaws.Refusal{Status: 403, Code: "AccessDenied", Message: "not authorized to perform sts:AssumeRole"}, codes.Unauthenticated, "cannot assume role arn:aws:iam::123456789012:role/last"},
		{"a token for another audience", "the identity provider is not set up", web, fakeaws.Refusal{Code: "InvalidIdentityToken", Message: fakeaws.JWT}, codes.Unauthenticated, "cannot log in to role arn:aws:iam::123456789012:role/login"},
		{"an expired token", "clocks differ", web, fakeaws.Refusal{Code: "ExpiredTokenException", Message: fakeaws.JWT}, codes.Unauthenticated, "expired"},
		{"throttled", "that is no refusal", assume, fakeaws.Refusal{Code: "Throttling", Header: map[string]string{"Retry-After": "3"}}, codes.ResourceExhausted, "throttles the requests"},
		{"down", "nor is that", assume, fakeaws.Refusal{Status: 503, Code: "ServiceUnavailable"}, codes.Unavailable, "AWS fails"},
		{"no ServiceAccount", "the resolver's message", absent, nil, codes.FailedPrecondition, `ServiceAccount "absent" does not exist`},
		{"no credentials in the answer", "an answer is not to be trusted", web, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>", codes.Unavailable, "no credentials"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Always("AssumeRole", test.answer)
			server.Always("AssumeRoleWithWebIdentity", test.answer)
			server.Forget()

			err := get(t.Context(), mustOpen(t, fakeaws.Environment(), test.access))
			discreet(t, err)

			if typed := provider.AsError(err); typed.Code != test.code || !typed.StoreScope || !strings.Contains(typed.Message, test.text) {
				t.Errorf("%s: %v, of the store: %t: %v", test.why, typed.Code, typed.StoreScope, err)
			}

			if calls := server.Calls(""); len(calls) > 1 {
				t.Errorf("%d calls though none is to be repeated", len(calls))
			}
		})
	}
}

// counter is provider.Calls.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) Called(operation, code string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.calls[operation+" "+code]++
}

// Each request is counted by AWS's own code, the repeated ones too, and only as
// many are made as the store object says.
func TestRetriesAndCalls(t *testing.T) {
	server := fakeaws.New(t)

	var (
		mu    sync.Mutex
		tries int
	)

	server.On("GetSecretValue", func(fakeaws.Call) fakeaws.Answer {
		mu.Lock()
		defer mu.Unlock()

		switch tries++; tries {
		case 1:
			return fakeaws.Refusal{Status: 500, Code: "InternalServiceError"}
		case 2:
			return fakeaws.Refusal{Code: "ThrottlingException"}
		case 3:
			return map[string]string{"SecretString": "v"}
		default:
			return fakeaws.Refusal{Status: 503, Raw: "busy"}
		}
	})

	twice, calls := 2, &counter{calls: map[string]int{}}
	env := fakeaws.Environment()
	env.Retry.MaxRetries, env.Calls = &twice, calls

	s := mustOpen(t, env, fakeaws.Access())
	if err := get(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if err := get(t.Context(), s); provider.AsError(err).Code != codes.Unavailable {
		t.Errorf("after all attempts: %v", err)
	}

	want := map[string]int{"GetSecretValue InternalServiceError": 1, "GetSecretValue ThrottlingException": 1, "GetSecretValue OK": 1, "GetSecretValue error": 3}
	if diff := cmp.Diff(want, calls.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// The config's own limit is reported like AWS's throttling, and no request is sent.
func TestRequestsPerSecond(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})

	access := fakeaws.Access()
	access.RequestsPerSecond = 1
	env, calls := fakeaws.Environment(), &counter{calls: map[string]int{}}
	twice := 2
	// A retry would exceed the caller's deadline.
	env.Retry.MaxRetries, env.Retry.Interval, env.Calls = &twice, time.Hour, calls

	s := mustOpen(t, env, access)
	if err := get(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	if typed := provider.AsError(get(ctx, s)); typed.Code != codes.ResourceExhausted || typed.RetryAfter <= 0 {
		t.Errorf("a call beyond the limit: %v after %s", typed, typed.RetryAfter)
	}

	if diff := cmp.Diff(map[string]int{"GetSecretValue OK": 1}, calls.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// STS says whether the credentials hold; where it cannot be reached, the
// service does.
func TestCheck(t *testing.T) {
	server := fakeaws.New(t)

	for _, test := range []struct {
		name, why string
		sts       fakeaws.Answer
		probe     error
		code      codes.Code
		message   string
		warnings  int
	}{
		{"accepted", "STS is enough", fakeaws.Caller(), errors.New("not to be called"), codes.OK, "arn:aws:iam::123456789012:user/app", 0},
		{"refused", "that is a verdict", fakeaws.Refusal{Status: 403, Code: "InvalidClientTokenId"}, nil, codes.Unauthenticated, "", 0},
		{"throttled", "that is none", fakeaws.Refusal{Code: "Throttling"}, nil, codes.ResourceExhausted, "", 0},
		{"no way to STS", "the service took the credentials, though not the request", fakeaws.Refusal{Status: http.StatusBadGateway, Raw: "no"}, provider.AccessDenied("no"), codes.OK, "", 1},
		{"no way to either", "no verdict can be had", fakeaws.Refusal{Status: http.StatusBadGateway, Raw: "no"}, provider.Unavailable("no"), codes.Unavailable, "", 0},
		{"refused by the service", "a verdict again", fakeaws.Refusal{Status: http.StatusBadGateway, Raw: "no"}, provider.Unauthenticated("no"), codes.Unauthenticated, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Always("GetCallerIdentity", test.sts)

			validation, err := mustOpen(t, fakeaws.Environment(), fakeaws.Access()).Check(t.Context(), func(context.Context) error { return test.probe })
			discreet(t, err)

			if code := codeOf(err); code != test.code || !strings.Contains(validation.Message, test.message) || len(validation.Warnings) != test.warnings {
				t.Errorf("%s: %v, %+v", test.why, err, validation)
			}
		})
	}
}

func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}

	return provider.AsError(err).Code
}

// The name of a role's session holds what AWS takes, and no more.
func TestSessionName(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("AssumeRole", fakeaws.Session("AssumeRole", "ASIA", time.Now().Add(time.Hour)))
	server.Always("GetSecretValue", map[string]string{"SecretString": "v"})

	access := fakeaws.Access()
	access.Role = "arn:aws:iam::123456789012:role/last"

	object := metav1.ObjectMeta{Namespace: strings.Repeat("n", 60), Name: "a:b"}

	s, err := session.New(t.Context(), fakeaws.Environment(), &object, &access)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if err := get(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if name, _ := server.Calls("AssumeRole")[0].In["RoleSessionName"].(string); len(name) != 64 {
		t.Errorf("the name %q has %d characters", name, len(name))
	}
}

// An answer that begins before the SDK has done with the request, as one of a
// fast server does, still comes whole.
func TestLargeAnswers(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("GetSecretValue", `{"SecretString":"`+strings.Repeat("x", 1<<20)+`"}`)

	for range 50 {
		// On a connection of its own: it is the first request of one that is in
		// danger.
		s := mustOpen(t, fakeaws.Environment(), fakeaws.Access())
		if err := get(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}
