package secretsmanager

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/internal/batch"
	"github.com/external-secrets/eso/providers/aws/internal/fakeaws"
	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, change func(*v2alpha1.AWSSecretManagerSpec)) (*Store, *fakeaws.References) {
	t.Helper()

	env, references := fakeaws.Environment(), fakeaws.NewReferences()
	env.References = references
	config := &v2alpha1.AWSSecretManager{ObjectMeta: fakeaws.Object(), Spec: v2alpha1.AWSSecretManagerSpec{AWSAccess: fakeaws.Access()}}

	if change != nil {
		change(&config.Spec)
	}

	s, err := New(t.Context(), env, config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close(t.Context()) })

	return s, references
}

type fields = map[string]any

// keys are n reads of different keys.
func keys(n int) []provider.Read {
	reads := make([]provider.Read, n)
	for i := range reads {
		reads[i] = provider.Read{Key: fmt.Sprintf("k%d", i)}
	}

	return reads
}

// batches answers each batch with a value for each key.
func batches(call fakeaws.Call) fakeaws.Answer {
	ids, _ := call.In["SecretIdList"].([]any)
	values := make([]fields, 0, len(ids))

	for _, id := range ids {
		values = append(values, fields{"Name": id, "SecretString": fmt.Sprint("value of ", id), "VersionId": "v1"})
	}

	return fields{"SecretValues": values}
}

func single(call fakeaws.Call) fakeaws.Answer {
	return fields{"Name": call.In["SecretId"], "SecretString": fmt.Sprint("value of ", call.In["SecretId"]), "VersionId": "v1"}
}

// Latest versions of several keys are read twenty at a time, each once; one
// alone, and other versions, are read as such.
func TestReadBatches(t *testing.T) {
	server := fakeaws.New(t)
	server.On("BatchGetSecretValue", batches)
	server.On("GetSecretValue", single)
	server.Always("DescribeSecret", fields{"Tags": []fields{{"Key": "team", "Value": "blue"}}})

	s, _ := open(t, func(spec *v2alpha1.AWSSecretManagerSpec) { spec.Prefix = "app/" })

	for _, test := range []struct {
		name, why string
		reads     []provider.Read
		want      map[string]int
	}{
		{"one", "a batch of one needs a right more", keys(1), map[string]int{"GetSecretValue": 1}},
		{"the same key", "properties are selected here", append(keys(1), keys(1)...), map[string]int{"GetSecretValue": 1}},
		{"forty-five", "AWS takes twenty", keys(45), map[string]int{"BatchGetSecretValue": 3}},
		{"versions", "a batch reads the latest only", append(keys(2), provider.Read{Key: "k0", Version: "AWSPREVIOUS"}, provider.Read{Key: "k1", Version: "uuid/v0"}), map[string]int{"BatchGetSecretValue": 1, "GetSecretValue": 2}},
		{"tags", "they are kept elsewhere", []provider.Read{{Key: "k0", Metadata: true, Property: "team"}}, map[string]int{"DescribeSecret": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Forget()

			for i, result := range s.Read(t.Context(), test.reads) {
				read := test.reads[i]
				if want := "value of app/" + read.Key; result.Err != nil || (string(result.Value) != want && !read.Metadata) {
					t.Errorf("%s: %q, %v", read.Key, result.Value, result.Err)
				}
			}

			if diff := cmp.Diff(test.want, count(server)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}

	server.Forget()

	for _, version := range []string{"", "uuid/v0", "AWSPENDING"} {
		s.Read(t.Context(), []provider.Read{{Key: "k", Version: version}})
	}

	var asked []string
	for _, call := range server.Calls("GetSecretValue") {
		asked = append(asked, fmt.Sprint(call.In["VersionId"], " ", call.In["VersionStage"]))
	}

	if diff := cmp.Diff([]string{"<nil> AWSCURRENT", "v0 <nil>", "<nil> AWSPENDING"}, asked); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}

	if result := s.Read(t.Context(), []provider.Read{{Key: "k", Version: "uuid/"}})[0]; provider.AsError(result.Err).Code != codes.InvalidArgument {
		t.Errorf("a version without an id: %v", result.Err)
	}
}

func count(server *fakeaws.Server) map[string]int {
	counts := map[string]int{}
	for _, call := range server.Calls("") {
		counts[call.Operation]++
	}

	return counts
}

// A caller without the right to batches reads one by one, and AWS is not asked
// for batches for a while.
func TestReadWithoutTheRightToBatches(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("BatchGetSecretValue", fakeaws.Refusal{Code: "AccessDeniedException"})
	server.On("GetSecretValue", single)

	s, _ := open(t, nil)
	now := time.Now()
	s.batches = batch.New(func() time.Time { return now })

	for _, want := range []struct {
		later   time.Duration
		batches int
	}{{0, 1}, {time.Minute, 1}, {10 * time.Minute, 2}} {
		now = now.Add(want.later)

		for _, result := range s.Read(t.Context(), keys(3)) {
			if result.Err != nil {
				t.Error(result.Err)
			}
		}

		if got := len(server.Calls("BatchGetSecretValue")); got != want.batches {
			t.Errorf("%s later: %d batches, want %d", want.later, got, want.batches)
		}
	}

	if got := len(server.Calls("GetSecretValue")); got != 9 {
		t.Errorf("%d single reads", got)
	}
}

// Of a batch each secret has its own outcome, and what AWS leaves out is read
// again.
func TestReadPartOfABatch(t *testing.T) {
	server := fakeaws.New(t)
	server.Always("BatchGetSecretValue", fields{
		"SecretValues": []fields{
			{"Name": "k0", "SecretBinary": base64.StdEncoding.EncodeToString([]byte{0, 0xff}), "VersionId": "v7"},
			{"Name": "another owner's", "SecretString": "x"},
		},
		"Errors": []fields{
			{"SecretId": "k1", "ErrorCode": "ResourceNotFoundException", "Message": "can't find"},
			{"SecretId": "k2", "ErrorCode": "AccessDeniedException", "Message": "not authorized"},
			{"SecretId": "k3", "ErrorCode": "InvalidRequestException", "Message": "it was marked for deletion."},
		},
	})
	server.Always("GetSecretValue", fakeaws.Refusal{Code: "DecryptionFailure"})

	s, _ := open(t, nil)
	results := s.Read(t.Context(), keys(5))

	if results[0].Err != nil || string(results[0].Value) != "\x00\xff" || results[0].Revision != "v7" {
		t.Errorf("bytes: %+v", results[0])
	}

	for i, want := range map[int]codes.Code{1: codes.NotFound, 2: codes.PermissionDenied, 3: codes.NotFound, 4: codes.PermissionDenied} {
		if typed := provider.AsError(results[i].Err); typed.Code != want || typed.StoreScope {
			t.Errorf("k%d: %v, want %v", i, results[i].Err, want)
		}
	}

	if calls := server.Calls("GetSecretValue"); len(calls) != 1 || calls[0].In["SecretId"] != "k4" {
		t.Errorf("single reads: %v", calls)
	}
}

// What would fail each single read as well is not tried for each; a malformed
// key among good ones fails alone.
func TestReadFailedBatch(t *testing.T) {
	server := fakeaws.New(t)
	server.On("GetSecretValue", single)

	s, _ := open(t, nil)

	server.Always("BatchGetSecretValue", fakeaws.Refusal{Code: "ThrottlingException", Header: map[string]string{"Retry-After": "9"}})

	for _, result := range s.Read(t.Context(), keys(3)) {
		if typed := provider.AsError(result.Err); typed.Code != codes.ResourceExhausted || typed.RetryAfter != 9*time.Second || !typed.StoreScope {
			t.Errorf("throttled: %v", result.Err)
		}
	}

	server.Always("BatchGetSecretValue", fakeaws.Refusal{Code: "ExpiredTokenException"})

	for _, result := range s.Read(t.Context(), keys(3)) {
		if provider.AsError(result.Err).Code != codes.Unauthenticated {
			t.Errorf("expired: %v", result.Err)
		}
	}

	if n := len(server.Calls("GetSecretValue")); n != 0 {
		t.Errorf("%d single reads", n)
	}

	server.Always("BatchGetSecretValue", fakeaws.Refusal{Code: "ValidationException"})

	for _, result := range s.Read(t.Context(), keys(3)) {
		if result.Err != nil {
			t.Errorf("one by one: %v", result.Err)
		}
	}
}

// A search that may not see all fails; a secret that went in between does not
// matter.
func TestFind(t *testing.T) {
	server := fakeaws.New(t)
	server.On("BatchGetSecretValue", batches)
	server.On("GetSecretValue", single)
	server.On("ListSecrets", func(call fakeaws.Call) fakeaws.Answer {
		if call.In["NextToken"] == nil {
			return fields{"NextToken": "2", "SecretList": []fields{
				{"Name": "team/db", "Tags": []fields{{"Key": "team", "Value": "blue"}}}, {"Name": "team/db", "Tags": []fields{{"Key": "team", "Value": "blue"}}},
				{"Name": "other/team/x", "Tags": []fields{{"Key": "team", "Value": "blue"}}}, {"Name": "team/y", "Tags": []fields{{"Key": "team", "Value": "blueish"}}},
			}}
		}

		return fields{"SecretList": []fields{{"Name": "team/app", "Tags": []fields{{"Key": "team", "Value": "blue"}}}, {"Name": "team/gone", "DeletedDate": 1, "Tags": []fields{{"Key": "team", "Value": "blue"}}}}}
	})

	s, _ := open(t, func(spec *v2alpha1.AWSSecretManagerSpec) { spec.Prefix = "team/" })
	path := ""
	query := provider.Query{Path: &path, Name: regexp.MustCompile("^(db|app|x|y|gone)$"), Tags: map[string]string{"team": "blue"}}

	find := func() ([]string, error) {
		var found []string

		err := s.Find(t.Context(), query, func(one provider.Found) error {
			found = append(found, one.Key+"="+string(one.Value))

			return nil
		})

		return found, err
	}

	found, err := find()
	if diff := cmp.Diff([]string{"db=value of team/db", "app=value of team/app"}, found); diff != "" || err != nil {
		t.Errorf("found: %v (-want +got):\n%s", err, diff)
	}

	first := server.Calls("ListSecrets")[0].In["Filters"]
	if text := fmt.Sprint(first); !strings.Contains(text, "team/") || !strings.Contains(text, "tag-key") || !strings.Contains(text, "tag-value") {
		t.Errorf("filters: %v", text)
	}

	server.Always("BatchGetSecretValue", fields{
		"SecretValues": []fields{{"Name": "team/db", "SecretString": "v"}},
		"Errors":       []fields{{"SecretId": "team/app", "ErrorCode": "ResourceNotFoundException"}},
	})

	if found, err := find(); len(found) != 1 || err != nil {
		t.Errorf("with one that went away: %v, %v", found, err)
	}

	server.Always("BatchGetSecretValue", fields{
		"SecretValues": []fields{{"Name": "team/db", "SecretString": "v"}},
		"Errors":       []fields{{"SecretId": "team/app", "ErrorCode": "AccessDeniedException"}},
	})

	if _, err := find(); provider.AsError(orUnknown(err)).Code != codes.PermissionDenied {
		t.Errorf("with one that may not be read: %v", err)
	}

	server.Always("ListSecrets", fields{"NextToken": "2"})

	if _, err := find(); err == nil || !strings.Contains(err.Error(), "repeats a page") {
		t.Errorf("a list without end: %v", err)
	}
}

const (
	arn   = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-AbCdEf"
	owner = "owner-a"
)

// holding has the server hold one secret, which it describes with more.
func holding(server *fakeaws.Server, value fields, more fields) {
	described := fields{"ARN": arn, "Name": "db", "Tags": tagList(tags.Owners().Tags(owner, nil)), "VersionIdsToStages": fields{"v1": []string{"AWSCURRENT"}}}
	maps.Copy(described, more)

	read := fields{"ARN": arn, "Name": "db", "VersionId": "v1"}
	maps.Copy(read, value)

	server.Always("DescribeSecret", described)
	server.Always("GetSecretValue", read)

	for _, operation := range []string{"PutSecretValue", "TagResource", "UpdateSecret", "RestoreSecret", "DeleteSecret", "PutResourcePolicy", "ReplicateSecretToRegions", "RemoveRegionsFromReplication", "CreateSecret"} {
		server.Always(operation, fields{"ARN": arn, "VersionId": "v2"})
	}

	server.Forget()
}

func tagList(tags map[string]string) []fields {
	list := []fields{}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, fields{"Key": key, "Value": tags[key]})
	}

	return list
}

// writes are the calls that change anything, in order.
func writes(server *fakeaws.Server) []string {
	names := []string{}

	for _, call := range server.Calls("") {
		switch call.Operation {
		case "DescribeSecret", "GetSecretValue", "GetResourcePolicy":
		default:
			names = append(names, call.Operation)
		}
	}

	return names
}

func metadata(spec string) []byte {
	return []byte(`{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":` + spec + `}`)
}

// A push writes what is missing, in an order that can be taken up again, and
// nothing else.
func TestPush(t *testing.T) {
	server := fakeaws.New(t)
	s, references := open(t, nil)
	references.Set("policy.json", `{"Version": "2012-10-17"}`)

	foreign := fields{"Tags": tagList(tags.Owners().Tags("owner-b", nil))}
	v1 := fields{"Tags": tagList(map[string]string{"managed-by": "external-secrets"})}
	bare := fields{"Tags": []fields{{"Key": "team", "Value": "blue"}}}
	const policy = `{"resourcePolicy":{"policySourceRef":{"kind":"ConfigMap","name":"p","key":"policy.json"}}}`

	for _, test := range []struct {
		name, why   string
		value, more fields
		push        provider.Push
		want        []string
		code        codes.Code
	}{
		{name: "the same", why: "every sync repeats it", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v")}},
		{name: "the same bytes", why: "in whichever form", value: fields{"SecretBinary": "dg=="}, push: provider.Push{Value: []byte("v")}},
		{name: "another", why: "it is replaced", value: fields{"SecretString": "w"}, push: provider.Push{Value: []byte("v")}, want: []string{"PutSecretValue"}},
		{name: "another format", why: "it was requested", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"secretPushFormat":"binary"}`)}, want: []string{"PutSecretValue"}},
		{name: "bytes as text", why: "that cannot be", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte{0xff}, Settings: metadata(`{"secretPushFormat":"string"}`)}, code: codes.InvalidArgument},
		{name: "foreign", why: "it is not changed", value: fields{"SecretString": "w"}, more: foreign, push: provider.Push{Value: []byte("v"), Adopt: true}, code: codes.FailedPrecondition},
		{name: "foreign and the same", why: "it is foreign all the same", value: fields{"SecretString": "v"}, more: foreign, push: provider.Push{Value: []byte("v")}, code: codes.FailedPrecondition},
		{name: "unmarked", why: "it was created manually", value: fields{"SecretString": "v"}, more: bare, push: provider.Push{Value: []byte("v")}, code: codes.FailedPrecondition},
		{name: "adopted", why: "it was requested; the mark comes first", value: fields{"SecretString": "w"}, more: bare, push: provider.Push{Value: []byte("v"), Adopt: true}, want: []string{"TagResource", "PutSecretValue"}},
		{name: "of ESO v1", why: "it is taken over", value: fields{"SecretString": "v"}, more: v1, push: provider.Push{Value: []byte("v")}, want: []string{"TagResource"}},
		{name: "kept", why: "it was generated once", value: fields{"SecretString": "w"}, more: foreign, push: provider.Push{Value: []byte("v"), IfNotExists: true}},
		{name: "property", why: "the others stay", value: fields{"SecretString": `{"a":"1"}`}, push: provider.Push{Value: []byte("v"), Property: "b"}, want: []string{"PutSecretValue"}},
		{name: "property that is there", why: "nothing changes", value: fields{"SecretString": `{ "b": "v" }`}, push: provider.Push{Value: []byte("v"), Property: "b"}},
		{name: "property kept", why: "the property decides, not the secret", value: fields{"SecretString": `{"b":"w"}`}, push: provider.Push{Value: []byte("v"), Property: "b", IfNotExists: true}},
		{name: "property of no document", why: "it would be lost", value: fields{"SecretString": "text"}, push: provider.Push{Value: []byte("v"), Property: "b"}, code: codes.InvalidArgument},
		{name: "scheduled for deletion", why: "it is absent to all, and ours to restore", value: fields{"SecretString": "v"}, more: fields{"DeletedDate": 1}, push: provider.Push{Value: []byte("v")}, want: []string{"RestoreSecret"}},
		{name: "scheduled, with another value", why: "the restored one is not what is wanted", value: fields{"SecretString": "w"}, more: fields{"DeletedDate": 1}, push: provider.Push{Value: []byte("v"), IfNotExists: true}, want: []string{"RestoreSecret", "PutSecretValue"}},
		{name: "foreign, scheduled", why: "it is not ours to restore", value: fields{"SecretString": "v"}, more: fields{"DeletedDate": 1, "Tags": foreign["Tags"]}, push: provider.Push{Value: []byte("v")}, code: codes.FailedPrecondition},
		{name: "empty", why: "AWS keeps no empty secret", value: fields{"SecretString": "w"}, push: provider.Push{}, code: codes.InvalidArgument},
		{name: "too large", why: "AWS would quote it", value: fields{"SecretString": "w"}, push: provider.Push{Value: make([]byte, maxValue+1)}, code: codes.InvalidArgument},
		{name: "settings that are so", why: "nothing changes", value: fields{"SecretString": "v"}, more: fields{"Description": "d", "KmsKeyId": "arn:aws:kms:eu-central-1:123456789012:key/k", "ReplicationStatus": []fields{{"Region": "us-east-1"}}}, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"description":"d","kmsKeyID":"k","replicationLocations":["us-east-1"],"tags":{"managed-by":"external-secrets"}}`)}},
		{name: "settings", why: "each is written once", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"description":"d","kmsKeyId":"k","replicationLocations":[{"region":"us-east-1"}],"tags":{"team":"blue"}}`)}, want: []string{"TagResource", "UpdateSecret", "ReplicateSecretToRegions"}},
		{name: "a policy", why: "it is read from where it is kept", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v"), Settings: metadata(policy)}, want: []string{"PutResourcePolicy"}},
		{name: "a misspelt setting", why: "it would do nothing", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"describe":"d"}`)}, code: codes.InvalidArgument},
		{name: "a wrong format", why: "there are two", value: fields{"SecretString": "v"}, push: provider.Push{Value: []byte("v"), Settings: metadata(`{"secretPushFormat":"xml"}`)}, code: codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			holding(server, test.value, test.more)
			server.Always("GetResourcePolicy", fields{})

			test.push.Key, test.push.Owner = "db", owner
			pushed, err := s.Push(t.Context(), test.push)

			if code := provider.AsError(orUnknown(err)).Code; err != nil && code != test.code || (err == nil && test.code != codes.OK) {
				t.Fatalf("%s: %v", test.why, err)
			}

			if test.want == nil {
				test.want = []string{}
			}

			if diff := cmp.Diff(test.want, writes(server)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}

			if err == nil && pushed.Changed != (len(test.want) > 0) {
				t.Errorf("changed is %t", pushed.Changed)
			}
		})
	}
}

// The policy that is there stays, however it is spelt.
func TestPushSamePolicy(t *testing.T) {
	server := fakeaws.New(t)
	s, references := open(t, nil)
	references.Set("policy.json", `{"Version": "2012-10-17", "Statement": []}`)
	holding(server, fields{"SecretString": "v"}, nil)
	server.Always("GetResourcePolicy", fields{"ResourcePolicy": `{"Statement":[],"Version":"2012-10-17"}`})

	push := provider.Push{Key: "db", Owner: owner, Value: []byte("v"), Settings: metadata(`{"resourcePolicy":{"policySourceRef":{"kind":"Secret","name":"p","key":"policy.json"}}}`)}
	if pushed, err := s.Push(t.Context(), push); err != nil || pushed.Changed {
		t.Errorf("%+v, %v", pushed, err)
	}
}

// A new secret carries its owner's mark from the start, in the form that ESO v1
// chose.
func TestPushNew(t *testing.T) {
	server := fakeaws.New(t)
	s, _ := open(t, nil)
	holding(server, nil, nil)
	server.Always("DescribeSecret", fakeaws.Refusal{Code: "ResourceNotFoundException"})

	for settings, field := range map[string]string{`{"tags":{"team":"blue"}}`: "SecretBinary", `{"secretPushFormat":"string"}`: "SecretString"} {
		server.Forget()

		pushed, err := s.Push(t.Context(), provider.Push{Key: "db", Property: "p", Value: []byte("v"), Owner: "owner with *", Settings: metadata(settings)})
		if err != nil || !pushed.Changed || pushed.Revision != "v2" {
			t.Fatalf("%+v, %v", pushed, err)
		}

		in := server.Calls("CreateSecret")[0].In
		if in[field] == nil {
			t.Errorf("%s: it is not written as %s", settings, field)
		}

		if text := fmt.Sprint(in["Tags"]); !strings.Contains(text, "managed-by") || !strings.Contains(text, "sha256:") {
			t.Errorf("tags: %s", text)
		}
	}
}

// A repeated write of one version is the same request to AWS; one after another
// version is another; none says anything of the value.
func TestPushToken(t *testing.T) {
	server := fakeaws.New(t)
	s, _ := open(t, nil)

	token := func(value, version string, versions fields) string {
		holding(server, fields{"SecretString": "old", "VersionId": version}, fields{"VersionIdsToStages": versions})

		if _, err := s.Push(t.Context(), provider.Push{Key: "db", Owner: owner, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}

		name, _ := server.Calls("PutSecretValue")[0].In["ClientRequestToken"].(string)

		return name
	}

	first := token("a", "v1", nil)
	if again := token("a", "v1", nil); again != first || len(first) != 36 {
		t.Errorf("the same write has token %s, then %s", first, again)
	}

	if other := token("b", "v1", nil); other != first {
		t.Error("the value decides the token")
	}

	if next := token("a", "v2", nil); next == first {
		t.Error("a write after another version has the same token")
	}

	if back := token("c", "v1", fields{first: []string{"AWSPREVIOUS"}}); back == first {
		t.Error("after a rollback to v1, the token is that of the version that followed it")
	}

	holding(server, fields{"SecretString": "old"}, nil)
	server.Always("PutSecretValue", fakeaws.Refusal{Code: "ResourceExistsException"})

	if _, err := s.Push(t.Context(), provider.Push{Key: "db", Owner: owner, Value: []byte("v")}); provider.AsError(orUnknown(err)).Code != codes.Aborted {
		t.Errorf("two writers at once: %v", err)
	}
}

// A secret is deleted as the config says, by its owner alone.
func TestDelete(t *testing.T) {
	server := fakeaws.New(t)

	for _, test := range []struct {
		name, why   string
		deletion    v2alpha1.SecretsManagerDeletion
		value, more fields
		property    string
		want        []string
		code        codes.Code
		in          string
	}{
		{name: "default", why: "AWS decides", want: []string{"DeleteSecret"}, in: "map[SecretId:" + arn + "]"},
		{name: "window", why: "the config decides", deletion: v2alpha1.SecretsManagerDeletion{RecoveryWindowInDays: 7}, want: []string{"DeleteSecret"}, in: "map[RecoveryWindowInDays:7 SecretId:" + arn + "]"},
		{name: "force", why: "the config decides", deletion: v2alpha1.SecretsManagerDeletion{ForceDeleteWithoutRecovery: true}, want: []string{"DeleteSecret"}, in: "map[ForceDeleteWithoutRecovery:true SecretId:" + arn + "]"},
		{name: "copies", why: "AWS deletes none that has them", more: fields{"ReplicationStatus": []fields{{"Region": "us-east-1"}}}, want: []string{"RemoveRegionsFromReplication", "DeleteSecret"}},
		{name: "scheduled", why: "it is already deleted", more: fields{"DeletedDate": 1}},
		{name: "foreign", why: "it stays", more: fields{"Tags": tagList(tags.Owners().Tags("owner-b", nil))}, code: codes.FailedPrecondition},
		{name: "unmarked", why: "it stays", more: fields{"Tags": []fields{}}, code: codes.FailedPrecondition},
		{name: "of ESO v1", why: "it counts as ours", more: fields{"Tags": tagList(map[string]string{"managed-by": "external-secrets"})}, want: []string{"DeleteSecret"}},
		{name: "property", why: "the others stay", property: "a", value: fields{"SecretString": `{"a":"1","b":"2"}`}, want: []string{"PutSecretValue"}},
		{name: "last property", why: "the secret goes", property: "a", value: fields{"SecretString": `{"a":"1"}`}, want: []string{"DeleteSecret"}},
		{name: "no such property", why: "it is absent already", property: "c", value: fields{"SecretString": `{"a":"1"}`}},
		{name: "property of a foreign one", why: "it stays", property: "a", value: fields{"SecretString": `{"a":"1"}`}, more: fields{"Tags": tagList(tags.Owners().Tags("owner-b", nil))}, code: codes.FailedPrecondition},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _ := open(t, func(spec *v2alpha1.AWSSecretManagerSpec) { spec.SecretsManager = test.deletion })
			holding(server, test.value, test.more)

			changed, err := s.Delete(t.Context(), provider.Deletion{Key: "db", Property: test.property, Owner: owner})
			if (err == nil) != (test.code == codes.OK) || (err != nil && provider.AsError(err).Code != test.code) {
				t.Fatalf("%s: %v", test.why, err)
			}

			if test.want == nil {
				test.want = []string{}
			}

			if diff := cmp.Diff(test.want, writes(server)); diff != "" || changed != (len(test.want) > 0) {
				t.Errorf("%s: changed is %t (-want +got):\n%s", test.why, changed, diff)
			}

			if test.in != "" {
				if in := fmt.Sprint(server.Calls("DeleteSecret")[0].In); in != test.in {
					t.Errorf("%s: %s", test.why, in)
				}
			}
		})
	}

	s, _ := open(t, nil)

	server.Always("DescribeSecret", fakeaws.Refusal{Code: "ResourceNotFoundException"})

	if changed, err := s.Delete(t.Context(), provider.Deletion{Key: "db", Owner: owner}); changed || err != nil {
		t.Errorf("one that is absent: %t, %v", changed, err)
	}

	if there, err := s.Exists(t.Context(), "db", ""); there || err != nil {
		t.Errorf("Exists of one that is absent: %t, %v", there, err)
	}

	server.Always("DescribeSecret", fakeaws.Refusal{Code: "AccessDeniedException"})

	if _, err := s.Exists(t.Context(), "db", ""); err == nil {
		t.Error("Exists of one that may not be seen is no error")
	}
}

// A recovery window that AWS does not take is refused before anything is
// deleted.
func TestInvalidDeletion(t *testing.T) {
	for _, deletion := range []v2alpha1.SecretsManagerDeletion{{RecoveryWindowInDays: 6}, {RecoveryWindowInDays: 31}, {RecoveryWindowInDays: 7, ForceDeleteWithoutRecovery: true}} {
		_, err := New(t.Context(), fakeaws.Environment(), &v2alpha1.AWSSecretManager{Spec: v2alpha1.AWSSecretManagerSpec{AWSAccess: fakeaws.Access(), SecretsManager: deletion}})
		if err == nil || !strings.Contains(err.Error(), "spec.secretsManager") {
			t.Errorf("%+v: %v", deletion, err)
		}
	}
}
