package cluster

import (
	"context"
	"crypto/tls"
	"net/url"

	"golang.org/x/oauth2"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// fromKubeconfig returns the server and the login of a kubeconfig's current
// context. The author of the config writes it too: fields that would run a
// program, read the provider's files, use a proxy or impersonate a user are
// refused.
func fromKubeconfig(ctx context.Context, references provider.References, ref metav1alpha1.SecretKeySelector) (*target, error) {
	text, err := references.SecretKey(ctx, ref)
	if err != nil {
		return nil, err
	}

	wrong := func(what string) error {
		return provider.InvalidConfig("spec.authRef: key %q of Secret %q: %s", ref.Key, ref.Name, what)
	}

	// The library's errors may quote the file.
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, wrong("it is no kubeconfig")
	}

	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, wrong("its current-context is missing")
	}

	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]

	switch {
	case cluster == nil:
		return nil, wrong("the cluster of its current context is missing")
	case user == nil:
		return nil, wrong("the user of its current context is missing")
	}

	if field := forbidden(cluster, user); field != "" {
		return nil, wrong(field + " is not allowed")
	}

	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil {
		return nil, wrong("the server is no https URL")
	}

	t := &target{server: cluster.Server, serverName: cluster.TLSServerName}

	if len(cluster.CertificateAuthorityData) > 0 {
		if err := t.trust("certificate-authority-data", cluster.CertificateAuthorityData); err != nil {
			return nil, wrong("certificate-authority-data holds no PEM certificate")
		}
	}

	switch {
	case len(user.ClientCertificateData) > 0:
		pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
		if err != nil {
			return nil, wrong("client-certificate-data and client-key-data are no certificate and its private key")
		}

		t.certificates = []tls.Certificate{pair}
	case isToken(user.Token):
		t.token = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: user.Token})
	default:
		return nil, wrong("its user has neither client-certificate-data nor a token")
	}

	return t, nil
}

// forbidden returns the first field that is not allowed.
func forbidden(cluster *api.Cluster, user *api.AuthInfo) string {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"exec", user.Exec != nil},
		{"auth-provider", user.AuthProvider != nil},
		{"tokenFile", user.TokenFile != ""},
		{"client-certificate", user.ClientCertificate != ""},
		{"client-key", user.ClientKey != ""},
		{"username", user.Username != "" || user.Password != ""},
		{"as", user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0},
		{"certificate-authority", cluster.CertificateAuthority != ""},
		{"insecure-skip-tls-verify", cluster.InsecureSkipTLSVerify},
		{"proxy-url", cluster.ProxyURL != ""},
	} {
		if field.set {
			return field.name
		}
	}

	return ""
}
