package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/testkit/conformance"
	"github.com/external-secrets/eso/testkit/motoserver"
)

// The provider conforms to the protocol with both of its kinds.
func TestConformance(t *testing.T) {
	t.Parallel()
	awsServer(t)

	kit := conformance.New(t, product, "aws")
	kit.Env = awsEnv()

	t.Run("Secrets Manager", func(t *testing.T) {
		t.Parallel()
		conformsSecretsManager(t, kit)
	})
	t.Run("Parameter Store", func(t *testing.T) {
		t.Parallel()
		conformsParameterStore(t, kit)
	})
}

// awsConfigs makes the configs that the kit wants: one that works, one that is
// slow, one whose credentials are missing.
func awsConfigs(t *testing.T, kit *conformance.Kit, ns, kind string) (target map[string]any) {
	t.Helper()

	awsCredentials(t, ns, awsKey)

	auth := func(secret string) string {
		return `
  auth:
    secretRef:
      accessKeyIDSecretRef: {name: ` + secret + `, key: access-key}
      secretAccessKeySecretRef: {name: ` + secret + `, key: secret-access-key}`
	}

	product.Apply(t, ns, awsConfig("backend", kind, "")+awsConfig("slow", kind, "\n  region: "+motoserver.SlowRegion+auth("awssm-secret"))+
		awsConfig("invalid", kind, auth("no-such-secret")))

	credential := filepath.Join(t.TempDir(), "secret-access-key")
	if err := os.WriteFile(credential, []byte(awsSecret), 0o600); err != nil {
		t.Fatal(err)
	}

	return map[string]any{
		"config": kit.ConfigOf(t, kind, ns, "backend"),
		"fixtures": map[string]any{
			"invalidConfig":   kit.ConfigOf(t, kind, ns, "invalid"),
			"credentialFiles": []string{credential},
		},
	}
}

const (
	awsFirst  = `{"password":"first-password","user":"app-user"}`
	awsSecond = `{"password":"second-password","user":"app-user"}`
)

// awsFixture is the secret that most tests of the kit read.
func awsFixture(key string) map[string]any {
	return map[string]any{
		"key": key, "value": awsSecond, "properties": map[string]string{"password": "second-password"}, "missingProperty": "nothing",
		"map": map[string]string{"password": "second-password", "user": "app-user"}, "metadata": map[string]string{"team": "blue-team"},
	}
}

func conformsSecretsManager(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	const kind = "AWSSecretManager"

	ns := product.Namespace(t)
	target := awsConfigs(t, kit, ns, kind)
	db := ns + "/app/db"
	tags := []any{map[string]any{"Key": "team", "Value": "blue-team"}}

	first := inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": db, "SecretString": awsFirst, "Tags": tags})
	inAWS(t, "secretsmanager.PutSecretValue", map[string]any{"SecretId": db, "SecretString": awsSecond})
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns + "/app/text", "SecretString": "a-plain-text"})
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns + "/binary", "SecretBinary": base64.StdEncoding.EncodeToString([]byte{0, 1, 2, 0xff})})
	inAWS(t, "secretsmanager.CreateSecret", map[string]any{"Name": ns + "/by-hand", "SecretString": "made-by-hand"})
	inAWSAs(t, motoserver.Account{Region: motoserver.SlowRegion}, "secretsmanager.CreateSecret", map[string]any{"Name": db, "SecretString": awsFirst})

	fixture := awsFixture(db)
	fixture["versions"] = map[string]string{fmt.Sprint("uuid/", first["VersionId"]): awsFirst, "AWSPREVIOUS": awsFirst, "AWSCURRENT": awsSecond}
	fixture["missingVersion"] = "AWSNOTHING"

	fixtures, _ := target["fixtures"].(map[string]any)
	fixtures["secrets"] = []any{
		fixture,
		map[string]any{"key": ns + "/app/text", "value": "a-plain-text"},
		map[string]any{"key": ns + "/binary", "binary": "AAEC/w=="},
	}
	fixtures["missingKey"] = ns + "/nothing"
	fixtures["find"] = []any{
		map[string]any{"path": ns + "/app/", "keys": []string{db, ns + "/app/text"}},
		map[string]any{"path": ns, "tags": map[string]string{"team": "blue-team"}, "keys": []string{db}},
	}
	fixtures["slow"] = map[string]any{"config": kit.ConfigOf(t, kind, ns, "slow"), "key": db}

	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "policy"}, Data: map[string]string{
		"policy.json": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"secretsmanager:GetSecretValue","Resource":"*"}]}`,
	}}
	if err := product.Client.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}

	// With all that a push can set.
	fixtures["write"] = map[string]any{"prefix": ns + "/conformance/", "unowned": ns + "/by-hand", "metadata": map[string]any{
		"apiVersion": "kubernetes.external-secrets.io/v1alpha1", "kind": "PushSecretMetadata",
		"spec": map[string]any{
			"description": "of the kit", "tags": map[string]string{"team": "blue"},
			"resourcePolicy": map[string]any{"policySourceRef": map[string]string{"kind": "ConfigMap", "name": "policy", "key": "policy.json"}},
		},
	}}

	kit.Run(t, target)
}

func conformsParameterStore(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	const kind = "AWSParameterStore"

	ns := product.Namespace(t)
	target := awsConfigs(t, kit, ns, kind)
	db := "/" + ns + "/app/db"

	put := func(account motoserver.Account, name, value string, more map[string]any) {
		in := map[string]any{"Name": name, "Value": value, "Type": "SecureString"}
		maps.Copy(in, more)

		inAWSAs(t, account, "AmazonSSM.PutParameter", in)
	}

	here := motoserver.Account{Region: awsRegion}
	put(here, db, awsFirst, map[string]any{"Tags": []any{map[string]any{"Key": "team", "Value": "blue-team"}}})
	put(here, db, awsSecond, map[string]any{"Overwrite": true})
	put(here, "/"+ns+"/app/text", "a-plain-text", nil)
	put(here, "/"+ns+"/by-hand", `{"made":"by-hand"}`, nil)
	put(motoserver.Account{Region: motoserver.SlowRegion}, db, awsFirst, nil)

	fixture := awsFixture(db)
	fixture["versions"] = map[string]string{"1": awsFirst, "2": awsSecond}
	fixture["missingVersion"] = "3"

	fixtures, _ := target["fixtures"].(map[string]any)
	fixtures["secrets"] = []any{fixture, map[string]any{"key": "/" + ns + "/app/text", "value": "a-plain-text"}}
	fixtures["missingKey"] = "/" + ns + "/nothing"
	fixtures["find"] = []any{
		map[string]any{"path": "/" + ns + "/app", "keys": []string{db, "/" + ns + "/app/text"}},
		map[string]any{"path": "/" + ns, "tags": map[string]string{"team": "blue-team"}, "keys": []string{db}},
	}
	fixtures["slow"] = map[string]any{"config": kit.ConfigOf(t, kind, ns, "slow"), "key": db}
	// Not of bytes: a parameter is a text.
	fixtures["write"] = map[string]any{"prefix": "/" + ns + "/conformance/", "unowned": "/" + ns + "/by-hand", "documents": true}

	kit.Run(t, target, "read.binary")
}
