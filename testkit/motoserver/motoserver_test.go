package motoserver

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The server speaks enough of AWS for the tests that use it, keeps accounts and
// regions apart, counts, and refuses.
func TestServer(t *testing.T) {
	if Waived() {
		t.Skip(WithoutEnv + " leaves moto out")
	}

	server, err := Start(t.Context(), Options{Progress: t.Output(), Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := server.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}()

	ctx, here := t.Context(), Account{Region: "eu-central-1"}

	if _, err := server.Call(ctx, here, "secretsmanager.CreateSecret", map[string]any{"Name": "a", "SecretString": "v"}); err != nil {
		t.Fatal(err)
	}

	if _, err := server.Call(ctx, here, "AmazonSSM.PutParameter", map[string]any{"Name": "/a", "Value": "v", "Type": "SecureString"}); err != nil {
		t.Fatal(err)
	}

	read := map[string]any{"SecretId": "a"}
	if out, err := server.Call(ctx, here, "secretsmanager.GetSecretValue", read); err != nil || out["SecretString"] != "v" {
		t.Errorf("GetSecretValue: %v", err)
	}

	elsewhere, err := server.AssumeRole(ctx, here.Region, "arn:aws:iam::111122223333:role/reader")
	if err != nil {
		t.Fatal(err)
	}

	for name, account := range map[string]Account{"another region": {Region: "us-east-1"}, "another account": {Region: here.Region, AccessKeyID: elsewhere}} {
		if _, err := server.Call(ctx, account, "secretsmanager.GetSecretValue", read); err == nil || !strings.Contains(err.Error(), "ResourceNotFoundException") {
			t.Errorf("GetSecretValue from %s: %v", name, err)
		}
	}

	refused := Account{Region: here.Region, AccessKeyID: "AKIAREFUSED"}
	server.Refuse(refused.AccessKeyID)

	if _, err := server.Call(ctx, refused, "secretsmanager.GetSecretValue", read); err == nil || !strings.Contains(err.Error(), "UnrecognizedClientException") {
		t.Errorf("GetSecretValue with a key that is refused: %v", err)
	}

	server.Accept(refused.AccessKeyID)

	if _, err := server.Call(ctx, refused, "secretsmanager.GetSecretValue", read); err != nil {
		t.Errorf("GetSecretValue with a key that is accepted again: %v", err)
	}

	if got := server.Requests(); len(got) != 0 {
		t.Errorf("Requests: %v, though only Call was used", got)
	}
}
