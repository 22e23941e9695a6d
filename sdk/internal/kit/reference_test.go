package kit

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

const (
	apiVersion   = "provider.example.com/v1"
	slowness     = 1500 * time.Millisecond
	batchLimit   = 32
	messageLimit = 1 << 20
)

// reference is a provider in memory that implements the protocol, except for one
// fault, which its name describes. It uses the protocol only and not the SDK, so
// that the kit is tested independently of the SDK.
type reference struct {
	pb.UnimplementedProviderInfoServer
	pb.UnimplementedSecretStoreServer
	pb.UnimplementedGeneratorServer

	fault string
	// state of its health, while it serves.
	state *health.Server
	asked atomic.Int64
	gone  atomic.Int64
	// strangers have come.
	strangers atomic.Bool
	last      atomic.Pointer[string]

	mu       sync.Mutex
	secrets  map[string]*held
	made     map[string]*pb.GenerateResponse
	watchers map[chan string]bool
}

// held is a secret; the last version is the latest.
type held struct {
	versions []string
	owner    string
	metadata map[string]string
}

// object is the latest version, where it has properties.
func (h *held) object() map[string]string {
	object := map[string]string{}

	if n := len(h.versions); n > 0 {
		_ = json.Unmarshal([]byte(h.versions[n-1]), &object)
	}

	return object
}

// with is the latest version with another property, or without it.
func (h *held) with(property string, value *string, alone bool) string {
	object := h.object()
	if alone {
		clear(object)
	}

	if delete(object, property); value != nil {
		object[property] = *value
	}

	text, err := json.Marshal(object)
	if err != nil {
		return ""
	}

	return string(text)
}

func newReference(fault string) *reference {
	return &reference{
		fault: fault, made: map[string]*pb.GenerateResponse{}, watchers: map[chan string]bool{},
		secrets: map[string]*held{
			"db":        {versions: []string{`{"password":"db-password-1","user":"db-user-1"}`}},
			"versioned": {versions: []string{"first-version", "second-version"}, metadata: map[string]string{"team": "blue-team"}},
			"binary":    {versions: []string{"binary\x00\xff\xfe\n"}},
			"app/one":   {versions: []string{"value-of-one"}, metadata: map[string]string{"tier": "front"}},
			"app/two":   {versions: []string{"value-of-two"}, metadata: map[string]string{"tier": "back"}},
			"by-hand":   {versions: []string{"made-by-hand"}},
		},
	}
}

// fixtures of what it holds.
func fixtures() Fixtures {
	text := func(s string) *string { return &s }

	return Fixtures{
		Secrets: []Secret{
			{
				Key: "db", Value: text(`{"password":"db-password-1","user":"db-user-1"}`), MissingProperty: "nothing",
				Properties: map[string]string{"password": "db-password-1"}, Map: map[string]string{"password": "db-password-1", "user": "db-user-1"},
			},
			{
				Key: "versioned", Value: text("second-version"), Versions: map[string]string{"1": "first-version", "2": "second-version"},
				MissingVersion: "9", Metadata: map[string]string{"team": "blue-team"},
			},
			{Key: "binary", Binary: []byte("binary\x00\xff\xfe\n")},
			{Key: "app/one", Value: text("value-of-one")},
		},
		MissingKey: "nothing",
		Find: []Search{
			{Path: text("app/"), Keys: []string{"app/one", "app/two"}},
			{Tags: map[string]string{"tier": "back"}, Keys: []string{"app/two"}},
			{NameRegexp: "^app/.*o$", Keys: []string{"app/two"}},
		},
		Write:         &Write{Prefix: "pushed/", Metadata: map[string]any{"kind": "text"}, Unowned: "by-hand"},
		InvalidConfig: config("Memory", "invalid"),
		Slow:          &Slow{Config: *config("Memory", "slow"), Key: "db"},
		Generator:     &Generation{Config: config("Token", "token"), ConfigSnapshot: map[string]any{"spec": map[string]any{"length": 8}}},
	}
}

func config(kind, name string) *ConfigReference {
	return &ConfigReference{APIVersion: apiVersion, Kind: kind, Namespace: "team-a", Name: name, UID: name + "-uid", Generation: 1}
}

func (r *reference) is(fault string) bool { return r.fault == fault }

// when is a text that makes another one not empty where the reference has a
// fault.
func (r *reference) when(fault string) string {
	if r.is(fault) {
		return "fault"
	}

	return ""
}

// fail returns an error in the form that the protocol requires.
func (r *reference) fail(code codes.Code, reason, message string) error {
	s := status.New(code, message)
	if r.is("no-error-info") {
		return s.Err()
	}

	detailed, err := s.WithDetails(&errdetails.ErrorInfo{Domain: pb.ErrorDomain, Reason: reason, Metadata: map[string]string{pb.MetadataScope: pb.ScopeItem}})
	if err != nil {
		return err
	}

	return detailed.Err()
}

func (r *reference) GetInfo(_ context.Context, request *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	if err := r.strict(request.ProtoReflect().GetUnknown()); err != nil {
		return nil, err
	}

	version := "1.0.0"
	if r.is("info-changes") {
		version += "+" + strconv.FormatInt(r.asked.Add(1), 10)
	}

	if r.is("is-not-serving") {
		r.state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}

	name, kinds := "reference", 1
	if r.is("has-no-name") {
		name = ""
	}

	if r.is("serves-a-kind-twice") {
		kinds = 2
	}

	capable := []pb.Capability{
		pb.Capability_CAPABILITY_READ, pb.Capability_CAPABILITY_FIND, pb.Capability_CAPABILITY_PUSH, pb.Capability_CAPABILITY_DELETE,
		pb.Capability_CAPABILITY_EXISTS, pb.Capability_CAPABILITY_WATCH,
	}
	if r.is("serves-what-it-does-not-claim") {
		capable = slices.Delete(capable, 4, 5)
	}

	return &pb.GetInfoResponse{
		Name: name, Version: version, ProtocolVersions: []string{pb.ProtocolVersion},
		Kinds: append(slices.Repeat([]*pb.Kind{{ApiVersion: apiVersion, Kind: "Memory", Service: pb.Service_SERVICE_SECRET_STORE, Capabilities: capable}}, kinds),
			&pb.Kind{ApiVersion: apiVersion, Kind: "Token", Service: pb.Service_SERVICE_GENERATOR, Capabilities: []pb.Capability{pb.Capability_CAPABILITY_GENERATE, pb.Capability_CAPABILITY_CLEANUP}},
		),
		Limits: &pb.Limits{MaxBatchSize: batchLimit, MaxMessageBytes: r.limit()},
	}, nil
}

// limit of a message.
func (r *reference) limit() uint64 {
	if r.is("takes-little") {
		return 64 << 10
	}

	return messageLimit
}

func (r *reference) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	if r.is("has-no-state") {
		return &pb.GetStatusResponse{}, nil
	}

	return &pb.GetStatusResponse{State: pb.GetStatusResponse_STATE_OK}, nil
}

func (r *reference) strict(unknown []byte) error {
	if r.is("refuses-unknown-fields") && len(unknown) > 0 {
		return r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "a field is not known")
	}

	return nil
}

// check refuses contexts that are incomplete or leave their namespace.
func (r *reference) check(c *pb.CallContext) error {
	if slices.Contains([]string{
		c.GetRequestId(), c.GetStore().GetName(), c.GetStore().GetUid() + r.when("takes-a-store-without-uid"), c.GetConfig().GetApiVersion(), c.GetConfig().GetKind(),
		c.GetConfig().GetNamespace(), c.GetConfig().GetName(), c.GetConfig().GetUid(),
	}, "") {
		return r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "the context is incomplete")
	}

	own, auth, source := c.GetConfig().GetNamespace(), c.GetAuthenticationNamespace(), c.GetSourceNamespace()
	var allowed bool

	switch c.GetStore().GetKind() {
	case kindSecretStore:
		allowed = c.GetStore().GetNamespace() == own && auth == own && (source == "" || source == own) || r.is("leaves-the-namespace")
	case kindClusterSecretStore:
		allowed = (c.GetStore().GetNamespace() == "" && (auth == own || auth == source)) || r.is("cluster-stores-authenticate-anywhere")
	default:
		if r.is("takes-any-store") {
			return nil
		}

		return r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "the store is of an unknown kind")
	}

	if !allowed {
		return r.fail(codes.PermissionDenied, pb.ReasonReferenceDenied, "the namespaces may not stand together")
	}

	return nil
}

// open is check for a call on a namespace's behalf, and finds its config.
func (r *reference) open(ctx context.Context, c *pb.CallContext, kind string) error {
	if err := r.check(c); err != nil {
		return err
	}

	wanted := c.GetConfig()

	switch {
	case c.GetSourceNamespace() == "" && !r.is("reads-without-a-source"):
		return r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "the source namespace is empty")
	case wanted.GetApiVersion() == apiVersion && wanted.GetKind() != kind && (wanted.GetKind() == "Memory" || wanted.GetKind() == "Token"):
		return r.fail(codes.Unimplemented, pb.ReasonUnsupported, "the kind cannot do this")
	case wanted.GetApiVersion() != apiVersion || (wanted.GetKind() != kind && !r.is("takes-any-config")):
		return r.fail(codes.FailedPrecondition, pb.ReasonInvalidConfig, "the kind is not served")
	case wanted.GetUid() != wanted.GetName()+"-uid" && !r.is("ignores-the-uid"), wanted.GetGeneration() > 1 && !r.is("ignores-the-generation"):
		return r.fail(codes.Unavailable, pb.ReasonConfigOutdated, "the config is another one")
	case wanted.GetName() == "slow":
		if r.is("ignores-the-deadline") {
			ctx = context.WithoutCancel(ctx)
		}

		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			r.gone.Add(1)

			return status.FromContextError(ctx.Err()).Err()
		}
	}

	if r.is("holds-on-to-cancelled-calls") && r.gone.Load() > 10 {
		return r.fail(codes.ResourceExhausted, pb.ReasonThrottled, "too many calls")
	}

	return nil
}

func (r *reference) Validate(_ context.Context, request *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	if err := r.check(request.GetContext()); err != nil {
		return nil, err
	}

	answer := &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_VALID}
	if r.is("oversize-answer") {
		answer.Warnings = []string{strings.Repeat("w", 2*messageLimit)}
	}

	switch request.GetContext().GetConfig().GetName() {
	case "backend", "slow":
		if r.is("finds-all-configs-invalid") {
			answer.Verdict, answer.Message = pb.ValidateResponse_VERDICT_INVALID, "no config is good enough"
		}

		if r.is("changes-its-mind") && r.asked.Add(1)%2 == 0 {
			answer.Verdict = pb.ValidateResponse_VERDICT_UNKNOWN
		}
	default:
		answer.Verdict, answer.Message = pb.ValidateResponse_VERDICT_INVALID, "the config cannot work"
		if r.is("invalid-without-a-message") {
			answer.Message = ""
		}
	}

	return answer, nil
}

func (r *reference) GetSecrets(ctx context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	if err := errors.Join(r.strict(request.ProtoReflect().GetUnknown()), r.strict(request.GetContext().ProtoReflect().GetUnknown())); err != nil {
		return nil, err
	}

	if err := r.open(ctx, request.GetContext(), "Memory"); err != nil {
		return nil, err
	}

	if len(request.GetReads()) > batchLimit && !r.is("takes-any-batch") {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonTooLarge, "too many reads")
	}

	seen := map[string]bool{}

	for _, read := range request.GetReads() {
		if read.GetId()+r.when("takes-reads-without-id") == "" || read.GetKey()+r.when("takes-reads-without-key") == "" ||
			(seen[read.GetId()] && !r.is("takes-an-id-twice")) ||
			(read.GetShape() != pb.Shape_SHAPE_VALUE && read.GetShape() != pb.Shape_SHAPE_MAP && !r.is("guesses-the-shape")) {
			return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "a read is malformed")
		}

		seen[read.GetId()] = true
	}

	// A backend may answer in the order of keys.
	if r.is("loses-the-order") {
		sorted := func(a, b *pb.SecretRead) int { return strings.Compare(a.GetKey(), b.GetKey()) }
		ordered := slices.SortedFunc(slices.Values(request.GetReads()), sorted)

		for i, read := range request.GetReads() {
			ordered[i] = &pb.SecretRead{Id: read.GetId(), Shape: read.GetShape(), Key: ordered[i].GetKey(), Property: read.GetProperty(), Version: read.GetVersion(), KnownRevision: read.GetKnownRevision(), MetadataPolicy: read.GetMetadataPolicy()}
		}

		request.Reads = ordered
	}

	answer := &pb.GetSecretsResponse{}
	keys := map[string]bool{}

	for _, read := range request.GetReads() {
		if r.is("answers-a-key-once") && keys[read.GetKey()] {
			continue
		}

		keys[read.GetKey()] = true
		result := r.read(read)

		if failure := result.GetError(); failure != nil && r.is("one-failure-fails-all") && len(request.GetReads()) > 1 {
			return nil, r.fail(codes.NotFound, pb.ReasonNotFound, "a secret does not exist")
		}

		answer.Results = append(answer.Results, result)
	}

	if r.is("cuts-a-large-batch") && len(answer.GetResults()) == batchLimit {
		answer.Results = answer.GetResults()[1:]
	}

	slices.Reverse(answer.GetResults())

	return answer, nil
}

func (r *reference) read(read *pb.SecretRead) *pb.SecretResult {
	result := &pb.SecretResult{Id: read.GetId()}
	if r.is("changes-ids") {
		result.Id = strings.ToLower(strings.TrimSpace(read.GetId()))
	}

	key := read.GetKey()

	if r.is("shares-state-between-calls") {
		asked := key
		r.last.Store(&asked)
		time.Sleep(2 * time.Millisecond)

		key = *r.last.Load()
	}

	fail := func(code codes.Code, reason, message string) *pb.SecretResult {
		result.Outcome = &pb.SecretResult_Error{Error: &pb.Error{Code: int32(code), Reason: reason, Message: message}} //nolint:gosec // codes are below 17

		return result
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	secret := r.secrets[key]
	if secret == nil {
		if r.is("wrong-code-for-missing") {
			return fail(codes.Unknown, pb.ReasonInternal, "no such secret")
		}

		return fail(codes.NotFound, pb.ReasonNotFound, "no such secret")
	}

	version := len(secret.versions)
	if read.GetVersion() != "" {
		n, err := strconv.Atoi(read.GetVersion())

		switch {
		case err == nil && n > 0 && n <= version && r.is("counts-versions-from-0"):
			version = min(n+1, version)
		case err == nil && n > 0 && n <= version:
			version = n
		case r.is("has-codes-of-its-own"):
			return fail(99, pb.ReasonNotFound, "no such version")
		case r.is("gives-no-reason"):
			return fail(codes.NotFound, "", "no such version")
		case !r.is("latest-for-a-missing-version"):
			return fail(codes.NotFound, pb.ReasonNotFound, "no such version")
		}
	}

	value := secret.versions[version-1]
	result.Revision = strconv.Itoa(version)
	if r.is("has-a-new-revision-each-time") {
		result.Revision += "-" + strconv.FormatInt(r.asked.Add(1), 10)
	}

	if known := read.GetKnownRevision(); known == result.GetRevision() || (known != "" && r.is("always-not-modified")) {
		result.Revision = known
		result.Outcome = &pb.SecretResult_NotModified{NotModified: &pb.NotModified{}}

		return result
	}

	if read.GetMetadataPolicy() == pb.MetadataPolicy_METADATA_POLICY_FETCH && !r.is("ignores-metadata-policy") {
		text, err := json.Marshal(secret.metadata)
		if err != nil {
			return fail(codes.Internal, pb.ReasonInternal, "metadata cannot be encoded")
		}

		value = string(text)
	}

	if r.is("prints-values") {
		fmt.Println("read", value)
	}

	var object map[string]string

	_ = json.Unmarshal([]byte(value), &object)

	switch {
	case read.GetShape() == pb.Shape_SHAPE_MAP:
		m := &pb.SecretMap{}
		for name, part := range object {
			m.Entries = append(m.Entries, &pb.SecretEntry{Key: name, Value: []byte(part)})
			if r.is("duplicate-map-keys") {
				m.Entries = append(m.Entries, m.GetEntries()[0])
			}
		}

		if n := len(m.GetEntries()); n > 0 && r.is("leaves-out-a-map-key") {
			m.Entries = m.GetEntries()[1:]
		}

		result.Outcome = &pb.SecretResult_Map{Map: m}
	case read.GetProperty() != "":
		part, ok := object[read.GetProperty()]
		if !ok && r.is("leaks-a-value") {
			return fail(codes.NotFound, pb.ReasonPropertyNotFound, "no such property in "+value)
		}

		if !ok && !r.is("takes-missing-properties-for-empty") {
			return fail(codes.NotFound, pb.ReasonPropertyNotFound, "no such property")
		}

		if r.is("quotes-properties") {
			part = strconv.Quote(part)
		}

		result.Outcome = &pb.SecretResult_Value{Value: []byte(part)}
	default:
		if key == "app/one" && r.is("adds-a-newline") {
			value += "\n"
		}

		if r.is("takes-values-for-text") {
			value = strings.ToValidUTF8(value, "?")
		}

		result.Outcome = &pb.SecretResult_Value{Value: []byte(value)}
	}

	return result
}

func (r *reference) FindSecrets(request *pb.FindSecretsRequest, stream grpc.ServerStreamingServer[pb.FindSecretsResponse]) error {
	if err := r.open(stream.Context(), request.GetContext(), "Memory"); err != nil {
		return err
	}

	expression, err := regexp.Compile(request.GetNameRegexp())
	if err != nil && !r.is("takes-bad-expressions-for-texts") {
		return r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "name_regexp is not RE2")
	}

	if err != nil || r.is("ignores-the-expression") {
		expression = regexp.MustCompile("")
	}

	r.mu.Lock()

	var found []*pb.SecretEntry

	for _, key := range slices.Sorted(maps.Keys(r.secrets)) {
		secret, matches := r.secrets[key], strings.HasPrefix(key, request.GetPath()) && expression.MatchString(key)
		for name, value := range request.GetTags() {
			matches = matches && secret.metadata[name] == value
		}

		if matches {
			found = append(found, &pb.SecretEntry{Key: key, Value: []byte(secret.versions[len(secret.versions)-1])})
		}
	}

	r.mu.Unlock()

	if len(found) == 0 && r.is("finds-nothing-with-an-error") {
		return r.fail(codes.NotFound, pb.ReasonNotFound, "nothing matches")
	}

	if r.is("finds-other-values") {
		for _, entry := range found {
			entry.Value = []byte("what-was-there-before")
		}
	}

	if limit := int(request.GetMaxResults()); limit > 0 && (len(found) > limit || (len(found) == limit && r.is("refuses-the-largest-find"))) {
		if !r.is("cuts-a-find") {
			return r.fail(codes.ResourceExhausted, pb.ReasonTooLarge, "too many match")
		}

		found = found[:limit]
	}

	if r.is("leaves-out-the-last") && len(found) > 1 {
		found = found[:len(found)-1]
	}

	if r.is("finds-twice") && len(found) > 0 {
		found = append(found, found[0])
	}

	for _, entry := range found {
		if err := stream.Send(&pb.FindSecretsResponse{Entries: []*pb.SecretEntry{entry}}); err != nil {
			return err
		}
	}

	return nil
}

func (r *reference) PushSecret(ctx context.Context, request *pb.PushSecretRequest) (*pb.PushSecretResponse, error) {
	if err := r.open(ctx, request.GetContext(), "Memory"); err != nil {
		return nil, err
	}

	if request.GetKey()+r.when("pushes-without-key") == "" {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "no key")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	secret := r.secrets[request.GetKey()]
	fresh := secret == nil

	switch {
	case fresh:
		secret = &held{owner: request.GetOwner()}
		r.secrets[request.GetKey()] = secret
	case secret.owner == "" && request.GetAdopt():
	case secret.owner != "" && r.is("overwrites-a-foreign-secret"):
	case secret.owner != request.GetOwner():
		return nil, r.fail(codes.FailedPrecondition, pb.ReasonNotOwned, "the secret has another owner")
	}

	value := string(request.GetValue())
	if request.GetProperty() != "" {
		value = secret.with(request.GetProperty(), &value, r.is("pushes-properties-alone"))
	}

	adopted := secret.owner != request.GetOwner()
	secret.owner = request.GetOwner()
	revision := func() string { return strconv.Itoa(len(secret.versions)) }

	switch {
	case fresh:
	case request.GetUpdatePolicy() == pb.UpdatePolicy_UPDATE_POLICY_IF_NOT_EXISTS && !r.is("replaces-what-exists"),
		secret.versions[len(secret.versions)-1] == value && !r.is("writes-always"):
		return &pb.PushSecretResponse{Changed: adopted, Revision: revision()}, nil
	}

	if fresh || !r.is("keeps-the-first-value") {
		secret.versions = append(secret.versions, value)
	}

	for watcher := range r.watchers {
		select {
		case watcher <- request.GetKey():
		default:
		}
	}

	return &pb.PushSecretResponse{Changed: true, Revision: revision()}, nil
}

func (r *reference) DeleteSecret(ctx context.Context, request *pb.DeleteSecretRequest) (*pb.DeleteSecretResponse, error) {
	if err := r.open(ctx, request.GetContext(), "Memory"); err != nil {
		return nil, err
	}

	if request.GetKey()+r.when("deletes-without-key") == "" {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "no key")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	secret := r.secrets[request.GetKey()]

	switch {
	case secret != nil && r.is("only-says-that-it-deletes"):
		return &pb.DeleteSecretResponse{Changed: true}, nil
	case secret == nil && r.is("deletes-once"):
		return nil, r.fail(codes.NotFound, pb.ReasonNotFound, "no such secret")
	case secret == nil:
		return &pb.DeleteSecretResponse{}, nil
	case secret.owner != request.GetOwner() && !r.is("deletes-a-foreign-secret"):
		return nil, r.fail(codes.FailedPrecondition, pb.ReasonNotOwned, "the secret has another owner")
	}

	if request.GetProperty() != "" && !r.is("deletes-the-whole-for-a-property") {
		secret.versions = append(secret.versions, secret.with(request.GetProperty(), nil, false))
	} else {
		delete(r.secrets, request.GetKey())
	}

	return &pb.DeleteSecretResponse{Changed: true}, nil
}

func (r *reference) SecretExists(ctx context.Context, request *pb.SecretExistsRequest) (*pb.SecretExistsResponse, error) {
	if err := r.open(ctx, request.GetContext(), "Memory"); err != nil {
		return nil, err
	}

	if request.GetKey()+r.when("looks-without-key") == "" {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "no key")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	secret := r.secrets[request.GetKey()]
	if r.is("sees-everything") || r.is("sees-nothing") {
		return &pb.SecretExistsResponse{Exists: r.is("sees-everything")}, nil
	}

	if secret == nil {
		return &pb.SecretExistsResponse{}, nil
	}

	_, has := secret.object()[request.GetProperty()]

	return &pb.SecretExistsResponse{Exists: has || request.GetProperty() == "" || r.is("sees-all-properties")}, nil
}

func (r *reference) Watch(request *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	if r.is("claims-what-it-does-not-serve") {
		return status.Error(codes.Unimplemented, "watching is not implemented")
	}

	if err := r.open(stream.Context(), request.GetContext(), "Memory"); err != nil {
		return err
	}

	if r.is("cannot-watch") {
		return r.fail(codes.Unimplemented, pb.ReasonUnsupported, "the backend does not report changes")
	}

	changes := make(chan string, 16)

	r.mu.Lock()
	r.watchers[changes] = true
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()

		delete(r.watchers, changes)
	}()

	first := &pb.WatchResponse{}
	if r.is("watches-from-the-start") {
		first.Keys = []string{"db"}
	}

	if err := stream.Send(first); err != nil {
		return err
	}

	for {
		select {
		case <-stream.Context().Done():
			return nil
		case key := <-changes:
			if r.is("watch-reports-nothing") {
				continue
			}

			if err := stream.Send(&pb.WatchResponse{Keys: []string{key}}); err != nil {
				return err
			}
		}
	}
}

func (r *reference) Generate(ctx context.Context, request *pb.GenerateRequest) (*pb.GenerateResponse, error) {
	if err := r.open(ctx, request.GetContext(), "Token"); err != nil {
		return nil, err
	}

	key := request.GetIdempotencyKey()
	if key+r.when("generates-without-key") == "" {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "no idempotency key")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if made := r.made[key]; made != nil && !r.is("generates-two") {
		return made, nil
	}

	value := "generated-" + rand.Text()
	if r.is("generates-the-same") {
		value = "generated-once"
	}

	made := &pb.GenerateResponse{Entries: []*pb.SecretEntry{{Key: "token", Value: []byte(value)}}, State: []byte(key)}

	if r.is("keeps-the-value-in-the-state") {
		made.State = []byte(key + " " + value)
	}

	if r.is("generates-nothing") {
		made.Entries = nil
	}

	r.made[key] = made

	return made, nil
}

func (r *reference) Cleanup(_ context.Context, request *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	if err := r.check(request.GetContext()); err != nil {
		return nil, err
	}

	if r.is("cleans-up-with-the-config-alone") && request.GetContext().GetConfig().GetUid() != "token-uid" {
		return nil, r.fail(codes.FailedPrecondition, pb.ReasonInvalidConfig, "the config is gone")
	}

	if r.is("cleans-up-never") {
		return nil, r.fail(codes.Internal, pb.ReasonInternal, "this is not implemented")
	}

	if r.is("cleans-up-with-state-alone") && len(request.GetState()) == 0 {
		return nil, r.fail(codes.InvalidArgument, pb.ReasonInvalidRequest, "no state")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	_, known := r.made[request.GetIdempotencyKey()]
	if !known && r.is("cleans-up-once") && request.GetState() != nil {
		return nil, r.fail(codes.NotFound, pb.ReasonNotFound, "no such credential")
	}

	delete(r.made, request.GetIdempotencyKey())

	return &pb.CleanupResponse{}, nil
}

// runReference is the main function of the process that the kit starts: the
// test's own binary.
func runReference(fault string) int {
	listen := flag.String("listen", "", "host:port, or unix:///path")
	dir := flag.String("tls-dir", "", "folder with tls.crt, tls.key and ca.crt")
	_ = flag.CommandLine.Parse(os.Args[1:])

	if err := newReference(fault).serve(*listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}

	if fault == "exits-with-1" {
		return 1
	}

	return 0
}

func (r *reference) serve(address, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	network, target := "tcp", address
	if path, unix := strings.CutPrefix(address, "unix://"); unix {
		network, target = "unix", path
	}

	listener, err := net.Listen(network, target)
	if err != nil {
		return err
	}

	if network != "tcp" {
		return r.serveOn(ctx, listener, nil)
	}

	secured, err := r.tls(dir)
	if err != nil {
		return err
	}

	return r.serveOn(ctx, listener, secured)
}

// serveOn serves until ctx ends, with TLS where it has a configuration.
func (r *reference) serveOn(ctx context.Context, listener net.Listener, secured *tls.Config) error {
	limit := int(r.limit()) //nolint:gosec // small
	if r.is("takes-any-request") {
		limit = maxAnswer
	}

	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(maxAnswer)}

	if secured != nil {
		switch {
		case r.is("speaks-plain-text"), r.is("speaks-tls-1.1"):
			// gRPC for Go has no ciphers that are as old as TLS 1.1.
			listener = &sniffing{Listener: listener, config: secured, plain: r.is("speaks-plain-text")}
		case !r.is("ignores-the-deadline"):
			options = append(options, grpc.Creds(credentials.NewTLS(secured)))
		}
	}

	server, state := grpc.NewServer(options...), health.NewServer()
	r.state = state

	pb.RegisterProviderInfoServer(server, r)
	pb.RegisterSecretStoreServer(server, r)
	pb.RegisterGeneratorServer(server, r)
	healthpb.RegisterHealthServer(server, state)

	if r.is("ignores-the-deadline") {
		return deaf(ctx, listener, secured, server, state)
	}

	go func() { _ = server.Serve(listener) }()

	<-ctx.Done()

	if !r.is("exits-without-not-serving") {
		state.Shutdown()
		time.Sleep(200 * time.Millisecond)
	}

	switch {
	case r.is("cuts-calls-short"):
		server.Stop()
	case r.is("takes-calls-to-the-end"):
		time.Sleep(slowness + 300*time.Millisecond)
		server.GracefulStop()
	default:
		server.GracefulStop()
	}

	return nil
}

// deaf serves without deadlines, as behind a proxy that drops them: gRPC for Go
// would otherwise cancel a call at its deadline.
func deaf(ctx context.Context, listener net.Listener, secured *tls.Config, server *grpc.Server, state *health.Server) error {
	web := &http.Server{ReadHeaderTimeout: time.Minute, TLSConfig: secured, Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		request.Header.Del("Grpc-Timeout")
		server.ServeHTTP(w, request)
	})}

	go func() { _ = web.ServeTLS(listener, "", "") }()

	<-ctx.Done()
	state.Shutdown()
	time.Sleep(200 * time.Millisecond)

	return web.Shutdown(context.Background())
}

// tls authenticates the operator only.
func (r *reference) tls(dir string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}

	authorities, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)

	secured := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{own},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		VerifyConnection: func(state tls.ConnectionState) error {
			if r.is("refuses-all-after-a-stranger") && r.strangers.Load() {
				return errors.New("there was a stranger")
			}

			if len(state.PeerCertificates) == 0 || r.is("accepts-any-client-of-the-authority") {
				return nil
			}

			for _, uri := range state.PeerCertificates[0].URIs {
				if uri.String() == pb.OperatorIdentity {
					return nil
				}
			}

			r.strangers.Store(true)

			return errors.New("the certificate is not the operator's")
		},
	}

	switch r.fault {
	case "accepts-no-certificate":
		secured.ClientAuth = tls.VerifyClientCertIfGiven
	case "accepts-any-authority":
		secured.ClientAuth = tls.RequireAnyClientCert
	case "speaks-tls-1.1":
		secured.MinVersion = tls.VersionTLS11
	case "speaks-tls-1.2":
		secured.MinVersion = tls.VersionTLS12
	}

	return secured, nil
}

// sniffing takes callers with TLS and without.
type sniffing struct {
	net.Listener

	config *tls.Config
	plain  bool
}

func (s *sniffing) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}

	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return conn, nil //nolint:nilerr // the caller went away
	}

	again := &rewound{Conn: conn, rest: bytes.NewReader(first[:])}
	if first[0] != 0x16 && s.plain {
		return again, nil
	}

	return tls.Server(again, s.config), nil
}

// rewound returns back what was read of it.
type rewound struct {
	net.Conn

	rest *bytes.Reader
}

func (r *rewound) Read(p []byte) (int, error) {
	if r.rest.Len() > 0 {
		return r.rest.Read(p)
	}

	return r.Conn.Read(p)
}
