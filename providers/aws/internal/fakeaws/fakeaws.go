package fakeaws

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
)

const (
	// Region of configs that Access gives.
	Region = "eu-central-1"
	// KeyID of the access key that Access names. It looks like AWS's.
	KeyID = "AKIAIOSFODNN7EXAMPLE"
	// Key is its secret part.
	Key = "secret-access-key-of-the-tests/canary"
	// Token is the session token that goes with it.
	Token = "IQoJb3JpZ2luX2VjEXAMPLETOKEN"
	// JWT begins each token of a ServiceAccount; a number follows.
	JWT = "eyJhbGciOiJSUzI1NiJ9.e30.signature"
	// RequestID is that of each answer.
	RequestID = "11111111-2222-4333-8444-555555555555"
)

// Call is a request that came in.
type Call struct {
	// Operation such as GetSecretValue.
	Operation string
	// KeyID that it is signed with, and the Token beside; empty where it is not
	// signed.
	KeyID, Token string
	// In are the fields of the request.
	In map[string]any
}

// Answer to a call: fields of JSON, a text for STS, or a Refusal.
type Answer any

// Refusal is an error of AWS.
type Refusal struct {
	// Status of HTTP; 0 means 400.
	Status int
	// Code and Message of AWS.
	Code, Message string
	// Header besides.
	Header map[string]string
	// Raw takes the place of AWS's form.
	Raw string
}

// Server answers as a test says. Safe for concurrent use.
type Server struct {
	// URL of the server.
	URL string

	mu       sync.Mutex
	handlers map[string]func(Call) Answer
	calls    []Call
}

// New starts a server until the test is over, and has the SDK use it.
func New(t *testing.T) *Server {
	t.Helper()

	s := &Server{handlers: map[string]func(Call) Answer{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)

	s.URL = server.URL

	// The environment of the machine must not affect the test.
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}

	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")

	return s
}

// On says how calls of an operation are answered. One without is refused.
func (s *Server) On(operation string, answer func(Call) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.handlers[operation] = answer
}

// Always has an operation answered in the same way.
func (s *Server) Always(operation string, answer Answer) {
	s.On(operation, func(Call) Answer { return answer })
}

// Calls of an operation so far; of all where it is empty.
func (s *Server) Calls(operation string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()

	var calls []Call

	for _, call := range s.calls {
		if operation == "" || call.Operation == operation {
			calls = append(calls, call)
		}
	}

	return calls
}

// Forget the calls so far.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.calls = nil
}

// ServeHTTP answers a call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	s.mu.Lock()
	s.calls = append(s.calls, call)
	answer := s.handlers[call.Operation]
	s.mu.Unlock()

	w.Header().Set("X-Amzn-Requestid", RequestID)

	if answer == nil {
		write(w, r, Refusal{Code: "UnknownOperationException", Message: "the test does not expect " + call.Operation})

		return
	}

	write(w, r, answer(call))
}

func read(r *http.Request) (Call, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return Call{}, err
	}

	call := Call{In: map[string]any{}, Token: r.Header.Get("X-Amz-Security-Token")}

	if _, credential, signed := strings.Cut(r.Header.Get("Authorization"), "Credential="); signed {
		call.KeyID, _, _ = strings.Cut(credential, "/")
	}

	if _, operation, found := strings.Cut(r.Header.Get("X-Amz-Target"), "."); found {
		call.Operation = operation

		return call, json.Unmarshal(body, &call.In)
	}

	form, err := url.ParseQuery(string(body))
	if err != nil {
		return call, err
	}

	for name := range form {
		call.In[name] = form.Get(name)
	}

	call.Operation = form.Get("Action")

	return call, nil
}

func write(w http.ResponseWriter, r *http.Request, answer Answer) {
	asJSON := r.Header.Get("X-Amz-Target") != ""

	refusal, refused := answer.(Refusal)
	if !refused {
		if text, ok := answer.(string); ok {
			_, _ = io.WriteString(w, text)
		} else {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			encode(w, answer)
		}

		return
	}

	for name, value := range refusal.Header {
		w.Header().Set(name, value)
	}

	status := refusal.Status
	if status == 0 {
		status = http.StatusBadRequest
	}

	w.WriteHeader(status)

	switch {
	case refusal.Raw != "":
		_, _ = io.WriteString(w, refusal.Raw)
	case asJSON:
		encode(w, map[string]string{"__type": refusal.Code, "message": refusal.Message})
	default:
		fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error><RequestId>%s</RequestId></ErrorResponse>", refusal.Code, refusal.Message, RequestID)
	}
}

func encode(w io.Writer, answer any) {
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(fmt.Sprintf("the test's answer is no JSON: %v", err))
	}
}

// Session is STS's answer to AssumeRole or AssumeRoleWithWebIdentity.
func Session(operation, keyID string, expires time.Time) Answer {
	return fmt.Sprintf(`<%[1]sResponse><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId><SecretAccessKey>secret-of-%[2]s</SecretAccessKey>`+
		`<SessionToken>token-of-%[2]s</SessionToken><Expiration>%[3]s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`,
		operation, keyID, expires.UTC().Format(time.RFC3339))
}

// Caller is STS's answer to GetCallerIdentity.
func Caller() Answer {
	return `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/app</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`
}

// Access names the credentials of this package.
func Access() v2alpha1.AWSAccess {
	ref := func(key string) metav1alpha1.SecretKeySelector {
		return metav1alpha1.SecretKeySelector{Name: "aws", Key: key}
	}
	token := ref("token")

	return v2alpha1.AWSAccess{Region: Region, Auth: v2alpha1.AWSAuth{SecretRef: &v2alpha1.AWSAuthSecretRef{
		AccessKeyIDSecretRef: ref("id"), SecretAccessKeySecretRef: ref("key"), SessionTokenSecretRef: &token,
	}}}
}

// Object is the metadata of a config.
func Object() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team", Name: "config"} }

// Environment of a store that is not tried again, so that tests see each error
// at once.
func Environment() provider.Environment {
	never := 0

	return provider.Environment{References: NewReferences(), Retry: provider.Retry{MaxRetries: &never, Interval: time.Millisecond}}
}

// References resolves what Access names, and more that a test sets.
type References struct {
	mu     sync.Mutex
	values map[string]string
	tokens int
}

var _ provider.References = (*References)(nil)

// NewReferences returns references to the credentials of this package.
func NewReferences() *References {
	return &References{values: map[string]string{"id": KeyID, "key": Key + "\n", "token": Token}}
}

// Set the value of a key, of whatever object.
func (r *References) Set(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.values[key] = value
}

// Tokens is how many were requested.
func (r *References) Tokens() int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.tokens
}

// SecretKey returns a value.
func (r *References) SecretKey(_ context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error) {
	return r.value(ref.Key)
}

// CABundle returns the value of a ConfigMap.
func (r *References) CABundle(_ context.Context, source metav1alpha1.CASource) ([]byte, error) {
	return r.value(source.ConfigMapRef.Key)
}

func (r *References) value(key string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	value, ok := r.values[key]
	if !ok {
		return nil, provider.InvalidConfig("Secret %q has no key %q", "aws", key)
	}

	return []byte(value), nil
}

// ServiceAccountToken returns another token each time.
func (r *References) ServiceAccountToken(_ context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if ref.Name == "absent" {
		return "", provider.InvalidConfig("ServiceAccount %q does not exist", ref.Name)
	}

	r.tokens++

	return fmt.Sprintf("%s-%s-%d", JWT, strings.Join(audiences, ","), r.tokens), nil
}

// Namespace of the references.
func (r *References) Namespace() string { return "team" }
