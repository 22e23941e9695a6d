package functional

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// Failures are reported where the user looks: in the condition, with what,
// where, and what to do.
func TestConditionsTellWhatIsWrong(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore)
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	for _, c := range []struct {
		name, why string
		edit      []string
		want      []string
	}{
		{
			"absent-store", "a reference to a store that is not there",
			[]string{"name: store", "name: nowhere"},
			[]string{`SecretStore "nowhere" in namespace "` + ns + `" does not exist`, "tried again when an object"},
		},
		{
			"wrong-kind", "a namespaced store that is named as a cluster-wide one",
			[]string{"    name: store", "    kind: ClusterSecretStore\n    name: store"},
			[]string{`ClusterSecretStore "store" does not exist`},
		},
		{
			"wrong-api-version", "an absent apiVersion means v1, which this build does not serve",
			[]string{"    apiVersion: secretstore.external-secrets.io/v2alpha1\n", ""},
			[]string{"spec.secretStoreRef.apiVersion", "external-secrets.io/v1", "set it to secretstore.external-secrets.io/v2alpha1"},
		},
		{
			"absent-key", "a key that the backend does not have",
			[]string{"key: db", "key: nothing"},
			[]string{`spec.data[0]`, `SecretStore "store"`, `key "nothing" property "password"`, `secret "nothing" does not exist`, "NotFound", "request ", "next try in"},
		},
		{
			"absent-property", "a property that the secret does not have",
			[]string{"property: password", "property: nothing"},
			[]string{`key "db" property "nothing"`, `secret "db" has no property "nothing"`, "NotFound"},
		},
		{
			"absent-version", "a version that the secret does not have",
			[]string{"property: password", "version: \"7\""},
			[]string{`key "db" version "7"`, `has no version "7"`},
		},
		{
			"not-base64", "a value that is not what decodingStrategy says",
			[]string{"property: password", "property: password, decodingStrategy: Base64"},
			[]string{`spec.data[0]: the value of key "password" is not Base64`},
		},
		{
			"later", "a field whose behaviour comes later is refused, not ignored",
			[]string{"  data:", "  dataFrom: [{sourceRef: {generatorRef: {kind: Password, name: x}}}]\n  data:"},
			[]string{"not supported yet: spec.dataFrom[0].sourceRef.generatorRef"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			manifest := suite.SimpleES(c.name, "store")

			edited := strings.ReplaceAll(manifest, c.edit[0], c.edit[1])
			if edited == manifest {
				t.Fatal("the case changes nothing")
			}

			product.Apply(t, ns, edited)
			message := product.Failing(t, ns, c.name, c.want...)
			t.Logf("%s: %s", c.why, message)

			if strings.Contains(message, "s3cret") {
				t.Error("the message holds a value")
			}
		})
	}
}

// A tenant's address is data, not trust: one that is not registered is never
// dialled.
func TestUnregisteredAddressIsNotDialled(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	listener := suite.Listen(t)

	var dialled atomic.Int32

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			dialled.Add(1)

			_ = conn.Close()
		}
	}()

	for name, address := range map[string]string{
		"mine":     listener.Addr().String(),
		"resolved": "dns:///" + listener.Addr().String(),
		"https":    "https://" + listener.Addr().String(),
		"socket":   "unix:///run/provider.sock",
	} {
		product.Apply(t, ns, strings.NewReplacer("name: store", "name: "+name, "  providerConfig:", "  providerConfig:\n    address: "+address).Replace(suite.FakeStore)+suite.SimpleES(name, name))
		t.Logf("%s: %s", address, product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonProviderNotRegistered, "nothing was dialled"))
		product.Failing(t, ns, name, "is not Ready", "nothing was dialled")
	}

	t.Run("nothing was dialled", func(t *testing.T) {
		if n := dialled.Load(); n != 0 {
			t.Fatalf("the address was dialled %d times", n)
		}

		// The counter counts.
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()

		suite.Eventually(t, func(context.Context) error {
			if n := dialled.Load(); n != 1 {
				return fmt.Errorf("%d connections", n)
			}

			return nil
		})
	})

	t.Run("the registered address is taken in any spelling", func(t *testing.T) {
		product.Apply(t, ns, strings.NewReplacer("name: store", "name: registered", "  providerConfig:", "  providerConfig:\n    address: dns:///"+product.Providers["fake"].Address).Replace(suite.FakeStore)+suite.SimpleES("registered", "registered"))
		product.Holds(t, ns, "registered", "password", "s3cret")
	})

	t.Run("a SecretStore may not use another namespace's config", func(t *testing.T) {
		product.Apply(t, ns, strings.NewReplacer("name: store", "name: elsewhere", "kind: Fake\n      name: backend", "kind: Fake\n      name: backend\n      namespace: kube-system").Replace(suite.FakeStore))
		product.StoreCondition(t, suite.SecretStore(ns, "elsewhere"), v2alpha1.ReasonInvalidProviderConfig, `its own namespace`)
	})

	t.Run("a provider whose allowedNamespaces leave the namespace out", func(t *testing.T) {
		other := product.Namespace(t)
		registration := product.Register(t, "closed-"+ns, listener.Addr().String(), other)
		registration.Spec.AllowedNamespaces = []string{other}

		if err := product.Client.Update(t.Context(), registration); err != nil {
			t.Fatal(err)
		}

		product.StoreCondition(t, suite.SecretStore(ns, "mine"), v2alpha1.ReasonProviderNotRegistered, "allowedNamespaces leave out namespace")
	})
}

// A provider that is not who it should be, or speaks another protocol, or
// answers more than it may, harms no other provider.
func TestProvidersThatAreNotTrusted(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)

	t.Run("a foreign certificate", func(t *testing.T) {
		name, listener := "foreign-"+ns, suite.Listen(t)
		suite.Serve(t, listener, foreignCertificate(t), nil, &suite.Stub{Info: suite.StubInfo(name)})
		product.Register(t, name, listener.Addr().String(), ns)
		t.Log(product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonUntrusted, "do not trust each other", "x509: certificate signed by unknown authority"))

		product.Apply(t, ns, stubStore(name, listener.Addr().String())+suite.SimpleES(name, name))
		t.Log(product.Failing(t, ns, name, "has not said yet what it serves", "do not trust each other"))
	})

	t.Run("another provider's valid certificate", func(t *testing.T) {
		name, listener := "stolen-"+ns, suite.Listen(t)
		pair, clients := product.Issued(t, "provider-fake", "fake")
		suite.Serve(t, listener, pair, clients, &suite.Stub{Info: suite.StubInfo(name)})
		product.Register(t, name, listener.Addr().String(), ns)
		t.Log(product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonUntrusted, `the certificate of "fake" is not for "spiffe://external-secrets.io/provider/`+name))
	})

	t.Run("an unknown protocol version", func(t *testing.T) {
		name, listener := "newer-"+ns, suite.Listen(t)
		product.Register(t, name, listener.Addr().String(), ns)

		pair, clients := product.Issued(t, ns, name)
		info := suite.StubInfo("newer")
		info.ProtocolVersions = []string{"v3"}
		suite.Serve(t, listener, pair, clients, &suite.Stub{Info: info})

		t.Log(product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonUnsupportedProtocol, "provider newer 9.9.9 speaks protocol v3, this operator v2alpha1", "install a version"))
		product.Apply(t, ns, stubStore(name, listener.Addr().String())+suite.SimpleES(name, name))
		t.Log(product.Failing(t, ns, name, "speaks protocol v3"))
	})

	t.Run("an answer over the size limit", func(t *testing.T) {
		name := "large-" + ns
		stubProvider(t, ns, name, func(request *pb.GetSecretsRequest) *pb.GetSecretsResponse {
			return &pb.GetSecretsResponse{Results: []*pb.SecretResult{{
				Id: request.GetReads()[0].GetId(), Outcome: &pb.SecretResult_Value{Value: bytes.Repeat([]byte("x"), 8<<20)},
			}}}
		})
		t.Log(product.Failing(t, ns, name, "is over the limit of", "larger than max"))
	})

	t.Run("an answer that a Secret cannot hold", func(t *testing.T) {
		name := "big-" + ns
		stubProvider(t, ns, name, func(request *pb.GetSecretsRequest) *pb.GetSecretsResponse {
			return &pb.GetSecretsResponse{Results: []*pb.SecretResult{{
				Id: request.GetReads()[0].GetId(), Outcome: &pb.SecretResult_Value{Value: bytes.Repeat([]byte("x"), 2<<20)},
			}}}
		})
		t.Log(product.Failing(t, ns, name, "the target's data has 2097160 bytes: a Secret holds 1048576"))
	})

	t.Run("an answer to a read that was not made", func(t *testing.T) {
		name := "odd-" + ns
		stubProvider(t, ns, name, func(*pb.GetSecretsRequest) *pb.GetSecretsResponse {
			return &pb.GetSecretsResponse{Results: []*pb.SecretResult{{Id: "../../x", Outcome: &pb.SecretResult_Value{Value: []byte("x")}}}}
		})
		t.Log(product.Failing(t, ns, name, "breaks the protocol", "../../x"))
	})
}

// stubProvider registers and serves a stub, with a store and an ExternalSecret
// of the same name on it.
func stubProvider(t *testing.T, ns, name string, read func(*pb.GetSecretsRequest) *pb.GetSecretsResponse) {
	t.Helper()

	listener := suite.Listen(t)
	product.Register(t, name, listener.Addr().String(), ns)

	pair, clients := product.Issued(t, ns, name)
	suite.Serve(t, listener, pair, clients, &suite.Stub{Info: suite.StubInfo(name), Read: read})
	product.StoreCondition(t, suite.SecretProvider(name), v2alpha1.ReasonServing)
	product.Apply(t, ns, stubStore(name, listener.Addr().String())+suite.SimpleES(name, name))
}

// stubStore is a store at an address; its Fake is there to be named.
func stubStore(name, address string) string {
	return strings.NewReplacer("name: store", "name: "+name, "  providerConfig:", "  providerConfig:\n    address: "+address).Replace(suite.FakeStore)
}
