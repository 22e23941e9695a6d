package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/motoserver"
	"github.com/external-secrets/eso/testkit/suite"
)

const (
	awsRegion = "eu-central-1"
	// awsKey is the access key of stores that name one; awsOwnKey the
	// provider's own.
	awsKey    = "AKIAIOSFODNN7EXAMPLE"
	awsOwnKey = "AKIAPROVIDERSOWN7EXA"
	// awsOwnNamespace is where configs may use the provider's own identity.
	awsOwnNamespace = "aws-own-identity"
	// awsSecret is the secret part of each.
	awsSecret = "secret-access-key-of-the-tests/canary"
)

// aws is started by the first test that needs it.
var aws struct {
	once     sync.Once
	server   *motoserver.Server
	provider *installation.Provider
	err      error
}

// awsServer returns the server that emulates AWS, with the provider started.
func awsServer(t *testing.T) *motoserver.Server {
	t.Helper()

	if motoserver.Waived() {
		t.Skip(motoserver.WithoutEnv + " leaves moto out")
	}

	aws.once.Do(func() {
		if aws.server, aws.err = motoserver.Start(t.Context(), motoserver.Options{Progress: os.Stderr}); aws.err != nil {
			return
		}

		aws.provider, aws.err = product.InstallInstance(t.Context(), installation.Instance{
			Provider: "aws", Env: awsEnv(), Flags: []string{"--own-identity-namespace=" + awsOwnNamespace},
		})
	})

	if aws.err != nil {
		t.Fatal(aws.err)
	}

	return aws.server
}

// awsEnv is the environment of the provider: where AWS is, and credentials that
// no config may come by.
func awsEnv() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + aws.server.Address(), "AWS_ACCESS_KEY_ID=" + awsOwnKey, "AWS_SECRET_ACCESS_KEY=" + awsSecret,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

func stopAWS() {
	if aws.server != nil {
		_ = aws.server.Stop()
	}
}

// inAWS calls AWS with the credentials that created the secrets.
func inAWS(t *testing.T, target string, in map[string]any) map[string]any {
	t.Helper()

	return inAWSAs(t, motoserver.Account{Region: awsRegion}, target, in)
}

func inAWSAs(t *testing.T, account motoserver.Account, target string, in map[string]any) map[string]any {
	t.Helper()

	out, err := aws.server.Call(t.Context(), account, target, in)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// awsCredentials makes the Secret that stores name.
func awsCredentials(t *testing.T, ns, key string) {
	t.Helper()

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "awssm-secret"},
		StringData: map[string]string{"access-key": key, "secret-access-key": awsSecret},
	}
	if err := product.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// awsConfig is a config of a kind, with the access key unless its spec says
// otherwise, and a store of the same name on it.
func awsConfig(name, kind, spec string) string {
	if !strings.Contains(spec, "auth") {
		spec += `
  auth:
    secretRef:
      accessKeyIDSecretRef: {name: awssm-secret, key: access-key}
      secretAccessKeySecretRef: {name: awssm-secret, key: secret-access-key}`
	}

	if !strings.Contains(spec, "region") {
		spec = "\n  region: " + awsRegion + spec
	}

	return strings.NewReplacer("NAME", name, "KIND", kind, "SPEC", spec).Replace(`---
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: KIND
metadata: {name: NAME}
spec: SPEC
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata: {name: NAME}
spec:
  providerConfig:
    providerRef: {kind: KIND, name: NAME}
`)
}

// awsES is an ExternalSecret with data or dataFrom.
func awsES(name, store, spec string) string {
	return strings.NewReplacer("NAME", name, "STORE", store).Replace(`---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: NAME}
spec:
  refreshInterval: 1h
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: STORE}
`) + spec
}

// Values, versions, stages, bytes and tags of Secrets Manager arrive in Secrets.
func TestAWSSecretsManager(t *testing.T) {
	t.Parallel()

	awsServer(t)

	ns := product.Namespace(t)
	awsCredentials(t, ns, awsKey)

	first := inAWS(t, "secretsmanager.CreateSecret", map[string]any{
		"Name": ns + "/db", "SecretString": `{"password":"first","n":5432}`,
		"Tags": []any{map[string]any{"Key": "team", "Value": "blue"}},
	})
	inAWS(t, "secretsmanager.PutSecretValue", map[string]any{"SecretId": ns + "/db", "SecretString": `{"password":"<one&only>","n":5432}`})
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns + "/bytes", "SecretBinary": base64.StdEncoding.EncodeToString([]byte{0, 1, 0xff, 0xfe, '\n'})})
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns + "-elsewhere", "SecretString": "not looked for"})

	product.Apply(t, ns, awsConfig("store", "AWSSecretManager", "")+awsConfig("below", "AWSSecretManager", "\n  prefix: NS/")+awsES("app", "store", strings.ReplaceAll(`
  dataFrom:
  - extract: {key: NS/db}
  data:
  - {secretKey: first, remoteRef: {key: NS/db, property: password, version: uuid/FIRST}}
  - {secretKey: previous, remoteRef: {key: NS/db, property: password, version: AWSPREVIOUS}}
  - {secretKey: bytes, remoteRef: {key: NS/bytes}}
  - {secretKey: team, remoteRef: {key: NS/db, property: team, metadataPolicy: Fetch}}
`, "FIRST", fmt.Sprint(first["VersionId"])))+awsES("below", "below", `
  data:
  - {secretKey: password, remoteRef: {key: db, property: password}}
`)+awsES("found", "store", `
  dataFrom:
  - find: {path: NS/, name: {regexp: "db$"}}
    rewrite: [{regexp: {source: ".*/", target: "by-name-"}}]
  - find: {tags: {team: blue}, path: NS}
    rewrite: [{regexp: {source: ".*/", target: "by-tag-"}}]
`))
	product.Synced(t, ns, "app")
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	for key, value := range map[string]string{
		"n": "5432", "password": "<one&only>", "first": "first", "previous": "first", "bytes": "\x00\x01\xff\xfe\n", "team": "blue",
	} {
		product.Holds(t, ns, "app", key, value)
	}

	product.Holds(t, ns, "below", "password", "<one&only>")
	product.Synced(t, ns, "found")

	found, err := product.Secret(t.Context(), ns, "found")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{"by-name-db": `{"password":"<one&only>","n":5432}`, "by-tag-db": `{"password":"<one&only>","n":5432}`}
	if diff := cmp.Diff(want, texts(found.Data)); diff != "" {
		t.Errorf("what was found (-want +got):\n%s", diff)
	}

	t.Run("what is missing is named", func(t *testing.T) {
		for what, read := range map[string]string{
			"ResourceNotFoundException": "{key: NS/nothing}", "has no property": "{key: NS/db, property: nothing}",
			`version "nothing"`: "{key: NS/db, version: nothing}",
		} {
			product.Apply(t, ns, awsES("missing", "store", "\n  data:\n  - {secretKey: x, remoteRef: "+read+"}\n"))
			product.Failing(t, ns, "missing", what)
		}
	})

	t.Run("a secret that is scheduled for deletion is absent", func(t *testing.T) {
		inAWS(t, "secretsmanager.DeleteSecret", map[string]any{"SecretId": ns + "/bytes"})
		product.Apply(t, ns, awsES("deleted", "store", "\n  data:\n  - {secretKey: x, remoteRef: {key: NS/bytes}}\n"))
		product.Failing(t, ns, "deleted", "was deleted", "restored")
	})
}

func texts(data map[string][]byte) map[string]string {
	all := map[string]string{}
	for key, value := range data {
		all[key] = string(value)
	}

	return all
}

// Values, versions, labels and tags of Parameter Store arrive in Secrets.
func TestAWSParameterStore(t *testing.T) {
	t.Parallel()

	awsServer(t)

	ns := product.Namespace(t)
	awsCredentials(t, ns, awsKey)

	inAWS(t, "AmazonSSM.PutParameter", map[string]any{
		"Name": "/" + ns + "/app/db", "Value": `{"password":"first"}`, "Type": "SecureString",
		"Tags": []any{map[string]any{"Key": "team", "Value": "blue"}},
	})
	inAWS(t, "AmazonSSM.LabelParameterVersion", map[string]any{"Name": "/" + ns + "/app/db", "Labels": []any{"stable"}, "ParameterVersion": 1})
	inAWS(t, "AmazonSSM.PutParameter", map[string]any{"Name": "/" + ns + "/app/db", "Value": `{"password":"second"}`, "Type": "SecureString", "Overwrite": true})

	for i := range 12 {
		inAWS(t, "AmazonSSM.PutParameter", map[string]any{"Name": fmt.Sprintf("/%s/many/p%d", ns, i), "Value": fmt.Sprintf("v%d", i), "Type": "String"})
	}

	product.Apply(t, ns, awsConfig("store", "AWSParameterStore", "")+awsConfig("below", "AWSParameterStore", "\n  prefix: /NS/app/")+awsES("app", "store", `
  dataFrom:
  - extract: {key: /NS/app/db}
  data:
  - {secretKey: first, remoteRef: {key: /NS/app/db, property: password, version: "1"}}
  - {secretKey: stable, remoteRef: {key: /NS/app/db, property: password, version: stable}}
  - {secretKey: whole, remoteRef: {key: /NS/app/db}}
  - {secretKey: team, remoteRef: {key: /NS/app/db, property: team, metadataPolicy: Fetch}}
`)+awsES("below", "below", `
  data:
  - {secretKey: password, remoteRef: {key: db, property: password}}
  dataFrom:
  - find: {name: {regexp: "."}}
`)+awsES("found", "store", `
  dataFrom:
  - find: {path: /NS/many}
    rewrite: [{regexp: {source: ".*/", target: ""}}]
  - find: {path: /NS/, tags: {team: blue}}
    rewrite: [{regexp: {source: ".*/", target: "by-tag-"}}]
  - find: {path: /NS, name: {regexp: "p1$"}}
    rewrite: [{regexp: {source: ".*/", target: "by-name-"}}]
`))
	product.Synced(t, ns, "app")
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	for key, value := range map[string]string{"password": "second", "first": "first", "stable": "first", "whole": `{"password":"second"}`, "team": "blue"} {
		product.Holds(t, ns, "app", key, value)
	}

	product.Holds(t, ns, "below", "password", "second")
	product.Holds(t, ns, "below", "db", `{"password":"second"}`)
	product.Synced(t, ns, "found")

	found, err := product.Secret(t.Context(), ns, "found")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{"by-tag-db": `{"password":"second"}`, "by-name-p1": "v1"}
	for i := range 12 {
		want[fmt.Sprintf("p%d", i)] = fmt.Sprintf("v%d", i)
	}

	if diff := cmp.Diff(want, texts(found.Data)); diff != "" {
		t.Errorf("what was found (-want +got):\n%s", diff)
	}

	t.Run("what is missing is named", func(t *testing.T) {
		for what, read := range map[string]string{
			"(ParameterNotFound": "{key: /NS/nothing}", "ParameterVersionNotFound": `{key: /NS/app/db, version: "7"}`,
			"neither a number nor a label": `{key: /NS/app/db, version: "a b"}`,
		} {
			product.Apply(t, ns, awsES("missing", "store", "\n  data:\n  - {secretKey: x, remoteRef: "+read+"}\n"))
			product.Failing(t, ns, "missing", what)
		}
	})
}

// The manifest of the proposal is accepted unchanged, and works where a
// provider is at its address. moto keeps what it holds apart by account, so the
// secret can only be read as the role.
func TestAWSManifestOfTheProposal(t *testing.T) {
	t.Parallel()

	awsServer(t)

	manifest, err := os.ReadFile("testdata/secretstore.yaml")
	if err != nil {
		t.Fatal(err)
	}

	product.RoundTrips(t, "default", string(manifest))

	ns := product.Namespace(t)
	awsCredentials(t, ns, awsKey)
	reviewsTokens(t, "aws")

	// The store has the operator show a token of its own: to a provider that asks
	// for one.
	p, err := product.StartInstance(t.Context(), installation.Instance{
		Provider: "aws", Name: "aws-" + ns, AllowedNamespaces: []string{ns}, Env: awsEnv(),
		Flags: []string{"--caller", installation.OperatorNamespace + "/external-secrets-operator"},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = product.Client.Delete(context.Background(), suite.SecretProvider("aws-"+ns))
		_ = p.Stop()
	})

	const role = "arn:aws:iam::111122223333:role/external-secrets"

	session, err := aws.server.AssumeRole(t.Context(), awsRegion, role)
	if err != nil {
		t.Fatal(err)
	}

	inAWSAs(t, motoserver.Account{Region: awsRegion, AccessKeyID: session}, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": `{"password":"s3cret"}`})

	here := strings.NewReplacer(
		"namespace: default", "namespace: NS", "http+unix:///path/to/aws.sock", p.Address, "  controller: dev\n", "",
		"arn:aws:iam::123456789012:role/external-secrets", role,
	).Replace(string(manifest))
	product.Apply(t, ns, here+awsES("app", "my-aws-store", "\n  data:\n  - {secretKey: password, remoteRef: {key: NS, property: password}}\n"))
	product.Holds(t, ns, "app", "password", "s3cret")
	product.StoreCondition(t, suite.SecretStore(ns, "my-aws-store"), v2alpha1.ReasonValid)
}

// reviewsTokens lets a provider verify the tokens that stores ask for with
// auth.serviceAccountRef.
func reviewsTokens(t *testing.T, name string) {
	t.Helper()

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews-tokens-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "external-secrets-provider-tokens"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "provider-" + name, Name: "external-secrets-provider-" + name}},
	}
	if err := product.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), binding) })
}

// Credentials that AWS refuses are reported, and new ones are used at once.
func TestAWSWrongCredentials(t *testing.T) {
	t.Parallel()

	server := awsServer(t)
	ns := product.Namespace(t)

	const wrong = "AKIAWRONGWRONGWRONG7"

	server.Refuse(wrong)
	awsCredentials(t, ns, wrong)
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": "s3cret"})
	inAWS(t, "AmazonSSM.PutParameter", map[string]any{"Name": "/" + ns, "Value": "p4rameter", "Type": "String"})

	product.Apply(t, ns, awsConfig("sm", "AWSSecretManager", "")+awsConfig("ps", "AWSParameterStore", "")+
		awsES("sm", "sm", "\n  data:\n  - {secretKey: x, remoteRef: {key: NS}}\n")+
		awsES("ps", "ps", "\n  data:\n  - {secretKey: x, remoteRef: {key: /NS}}\n"))

	for _, name := range []string{"sm", "ps"} {
		message := product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonInvalidProviderConfig, "AWS does not accept the credentials", "InvalidClientTokenId")
		message += product.Failing(t, ns, name, `"`+name+`"`)

		if strings.Contains(message, wrong) || strings.Contains(message, awsSecret) {
			t.Errorf("%s: the message holds a credential", name)
		}

		t.Log(message)
	}

	if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "awssm-secret", "-p", `{"stringData":{"access-key":"`+awsKey+`"}}`); err != nil {
		t.Fatal("cannot patch the Secret")
	}

	product.Holds(t, ns, "sm", "x", "s3cret")
	product.Holds(t, ns, "ps", "x", "p4rameter")
	product.StoreCondition(t, suite.SecretStore(ns, "sm"), v2alpha1.ReasonValid)

	t.Run("and refused later", func(t *testing.T) {
		product.Apply(t, ns, awsES("later", "sm", "\n  data:\n  - {secretKey: x, remoteRef: {key: NS}}\n"))
		product.Synced(t, ns, "later")

		const rotated = "AKIAROTATEDAWAY7EXAM"
		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "awssm-secret", "-p", `{"stringData":{"access-key":"`+rotated+`"}}`); err != nil {
			t.Fatal("cannot patch the Secret")
		}

		server.Refuse(awsKey)
		defer server.Accept(awsKey)

		// The old key is refused, and the provider finds the new one by itself.
		product.Apply(t, ns, awsES("rotated", "sm", "\n  data:\n  - {secretKey: x, remoteRef: {key: NS}}\n"))
		product.Holds(t, ns, "rotated", "x", "s3cret")
	})
}

// A ServiceAccount's token is exchanged for a role's credentials, and further
// roles are assumed after it.
func TestAWSRoles(t *testing.T) {
	t.Parallel()

	server := awsServer(t)
	ns := product.Namespace(t)

	for _, name := range []string{"app"} {
		if err := product.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}

	const (
		login = "arn:aws:iam::222233334444:role/login"
		last  = "arn:aws:iam::333344445555:role/team/last"
	)

	for role, value := range map[string]string{login: "of-login", last: "of-last"} {
		session, err := server.AssumeRole(t.Context(), awsRegion, role)
		if err != nil {
			t.Fatal(err)
		}

		inAWSAs(t, motoserver.Account{Region: awsRegion, AccessKeyID: session}, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": value})
	}

	jwt := "\n  auth: {jwt: {role: \"" + login + "\", serviceAccountRef: {name: ACCOUNT}}}"
	read := "\n  data:\n  - {secretKey: x, remoteRef: {key: NS}}\n"

	product.Apply(t, ns, awsConfig("login", "AWSSecretManager", strings.ReplaceAll(jwt, "ACCOUNT", "app"))+awsES("login", "login", read)+
		awsConfig("last", "AWSSecretManager", strings.ReplaceAll(jwt, "ACCOUNT", "app")+`
  additionalRoles: ["arn:aws:iam::444455556666:role/between"]
  role: `+last+`
  externalID: an-id
  sessionTags: [{key: team, value: blue}]
  transitiveTagKeys: [team]
`)+awsES("last", "last", read)+
		awsConfig("absent", "AWSSecretManager", strings.ReplaceAll(jwt, "ACCOUNT", "absent")))
	product.Holds(t, ns, "login", "x", "of-login")
	product.Holds(t, ns, "last", "x", "of-last")
	product.StoreCondition(t, suite.SecretStore(ns, "last"), v2alpha1.ReasonValid)
	product.StoreCondition(t, suite.SecretStore(ns, "absent"), v2alpha1.ReasonInvalidProviderConfig, "absent")
}

// Only configs in the namespaces that the flag lists may use the provider's own
// credentials.
func TestAWSOwnIdentity(t *testing.T) {
	t.Parallel()

	awsServer(t)

	ns := product.Namespace(t)
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": "s3cret"})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: awsOwnNamespace}}
	if err := product.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}

	manifest := awsConfig("own", "AWSSecretManager", "\n  auth: {}") + awsES("app", "own", "\n  data:\n  - {secretKey: x, remoteRef: {key: "+ns+"}}\n")

	product.Apply(t, ns, manifest)
	product.StoreCondition(t, suite.SecretStore(ns, "own"), v2alpha1.ReasonInvalidProviderConfig, "own identity", "spec.auth", "--own-identity-namespace="+ns)

	product.Apply(t, awsOwnNamespace, manifest)
	product.Holds(t, awsOwnNamespace, "app", "x", "s3cret")
}

// What a store costs at AWS: properties of one key are one read, however many
// ExternalSecrets want them at the same moment.
func TestAWSCalls(t *testing.T) {
	t.Parallel()

	// Of its own: other tests' ExternalSecrets refresh meanwhile.
	const key = "AKIACALLSCALLSCALLS7"

	server := awsServer(t)
	ns := product.Namespace(t)
	awsCredentials(t, ns, key)

	document := map[string]string{}

	var data strings.Builder
	for i := range 5 {
		document[fmt.Sprintf("p%d", i)] = "v"
		fmt.Fprintf(&data, "\n  - {secretKey: p%d, remoteRef: {key: NS, property: p%d}}", i, i)
	}

	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}

	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": string(text)})
	product.Apply(t, ns, awsConfig("store", "AWSSecretManager", ""))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	before := server.RequestsBy(key)

	const count = 100

	var manifest strings.Builder
	for i := range count {
		manifest.WriteString(awsES(fmt.Sprintf("app-%d", i), "store", "\n  data:"+data.String()+"\n"))
	}

	product.Apply(t, ns, manifest.String())

	for i := range count {
		product.Synced(t, ns, fmt.Sprintf("app-%d", i))
	}

	cost := server.RequestsBy(key)
	for operation, n := range before {
		if cost[operation] -= n; cost[operation] == 0 {
			delete(cost, operation)
		}
	}

	t.Logf("%d ExternalSecrets with 5 properties of one key cost %v", count, cost)

	if reads := cost["GetSecretValue"] + cost["BatchGetSecretValue"]; reads == 0 || reads > count {
		t.Errorf("%d reads for %d ExternalSecrets", reads, count)
	}

	metrics := suite.MetricsText(t, aws.provider.MetricsURL())
	if line := `externalsecrets_provider_backend_calls_total{call="GetSecretValue",code="OK",status="success"}`; !strings.Contains(metrics, line) {
		t.Errorf("the provider's metrics lack %s", line)
	}

	for operation := range cost {
		if operation != "GetSecretValue" && operation != "GetCallerIdentity" {
			t.Errorf("%s was called %d times", operation, cost[operation])
		}
	}
}

// What the schema can refuse it refuses at admission, with a sentence that says
// what to write.
func TestAWSAdmissionRefuses(t *testing.T) {
	t.Parallel()

	awsServer(t)

	ns := product.Namespace(t)

	for _, c := range []struct{ why, spec, want string }{
		{"a region becomes part of a host's name", "\n  region: evil.example.com/", "spec.region"},
		{"which of two logins is meant?", "\n  auth: {jwt: {role: 'arn:aws:iam::123456789012:role/a', serviceAccountRef: {name: a}}, secretRef: {accessKeyIDSecretRef: {name: a, key: a}, secretAccessKeySecretRef: {name: a, key: a}}}", "set one of secretRef and jwt"},
		{"half an access key", "\n  auth: {secretRef: {accessKeyIDSecretRef: {name: a, key: a}}}", "secretAccessKeySecretRef"},
		{"a ServiceAccount's annotation is not read", "\n  auth: {jwt: {serviceAccountRef: {name: a}}}", "spec.auth.jwt.role"},
		{"an external id is for a role", "\n  externalID: an-id", "set role"},
		{"a name is no ARN", "\n  role: external-secrets", "spec.role"},
		{"AWS takes from 7 to 30 days", "\n  secretsManager: {recoveryWindowInDays: 6}", "recoveryWindowInDays"},
		{"there is no window without recovery", "\n  secretsManager: {recoveryWindowInDays: 7, forceDeleteWithoutRecovery: true}", "set one of"},
		{"an endpoint is not the config's to choose", "\n  endpoint: http://evil.example.com", "field not declared in schema"},
		{"none is none", "\n  requestsPerSecond: 0", "requestsPerSecond"},
	} {
		t.Run(c.why, func(t *testing.T) {
			out, err := product.Kubectl(t.Context(), awsConfig("config", "AWSSecretManager", c.spec), "-n", ns, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want a refusal with %q, got: %v\n%s", c.want, err, out)
			}
		})
	}
}

// A crowd whose access keys AWS revokes or expires. It counts all requests to AWS,
// so nothing runs beside it.
func TestCredentialsThatExpire(t *testing.T) {
	server := awsServer(t)
	ns := product.Namespace(t)
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns, "SecretString": `{"p1":"1","p2":"2","p3":"3","p4":"4","p5":"5"}`})

	number := 0
	current := ""

	next := func() string {
		number++
		current = fmt.Sprintf("AKIANUMBER%010d", number)

		return current
	}

	awsCredentials(t, ns, next())
	product.Apply(t, ns, awsConfig("store", "AWSSecretManager", ""))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)
	product.Crowd(t, ns, ns)
	product.CrowdSynced(t, ns, time.Now())

	mend := func() {
		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "awssm-secret", "-p", `{"stringData":{"access-key":"`+next()+`"}}`); err != nil {
			t.Fatal("cannot patch the Secret")
		}
	}

	calls := func() int {
		n := 0
		for _, count := range server.Requests() {
			n += count
		}

		return n
	}

	for _, c := range []struct {
		name string
		fail func()
		text string
	}{
		{"revoked", func() { server.Refuse(current) }, "UnrecognizedClientException"},
		{"expired", func() { server.Expire(current) }, "ExpiredTokenException"},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite.Credential{Fail: c.fail, Restore: mend, Calls: calls, Budget: 120, Texts: []string{c.text, "Unauthenticated"}, Secrets: []string{current, awsSecret}}.Suffers(t, product, ns)
		})
	}
}
