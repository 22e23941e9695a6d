package store

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// banner is what an internal service says, which no tenant may read.
const banner = "internal-service-banner"

// greet answers every request with the same text.
func greet(t *testing.T, text string) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})

	go func() {
		defer close(done)

		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			// The request is read first: closing before would reset the connection.
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})

	return listener.Addr().String()
}

// issued makes a server show a certificate for a name, valid until a time.
func issued(t *testing.T, name string, until time.Time) func(*tls.Config) {
	t.Helper()

	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until, DNSNames: []string{name}}
	if address := net.ParseIP(name); address != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{address}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	return func(c *tls.Config) {
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	}
}

// The author of a config chooses the server: errors that quoted its answers would
// expose any service of the provider's network.
func TestFaultsOfServers(t *testing.T) {
	t.Parallel()

	const broken = "the connection broke, or what came is no answer of HTTP"

	for _, c := range []struct {
		why    string
		server func(*testing.T) string
		want   string
	}{
		{"a status that is none", func(t *testing.T) string { return "http://" + greet(t, "HTTP/1.1 "+banner+"\r\n\r\n") }, broken},
		{"a protocol that greets", func(t *testing.T) string { return "http://" + greet(t, "220 "+banner+" ESMTP\r\n") }, broken},
		{"a header that is none", func(t *testing.T) string { return "http://" + greet(t, "HTTP/1.1 200 OK\r\n"+banner+"\r\n\r\n") }, broken},
		{
			"an answer that is no JSON", func(t *testing.T) string {
				return "http://" + greet(t, "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n"+banner)
			}, broken,
		},
		{
			"an answer of another type", func(t *testing.T) string {
				return "http://" + greet(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+`{"lease_duration":"`+banner+`"}`)
			}, broken,
		},
		{
			"a redirect to nowhere", func(t *testing.T) string {
				return "http://" + greet(t, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://%"+banner+"\r\nContent-Length: 0\r\n\r\n")
			}, broken,
		},
		{"HTTP in place of HTTPS", func(t *testing.T) string { return "https://" + greet(t, "HTTP/1.1 400 "+banner+"\r\n\r\n") }, "it does not speak TLS"},
		{"no TLS", func(t *testing.T) string { return "https://" + greet(t, "220 "+banner+" ESMTP\r\n") }, "it does not speak TLS"},
		{"an unknown authority", func(t *testing.T) string { return newVault(t, issued(t, "127.0.0.1", time.Now().Add(time.Hour))).URL }, "unknown authority"},
		{
			"too much", func(t *testing.T) string {
				return "http://" + greet(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", maxAnswer+1, strings.Repeat("x", maxAnswer+1)))
			}, "the backend's answer has more than 8388608 bytes",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			server := c.server(t)
			_, err := with(newVault(t), func(s *setup) { s.spec.Server, s.spec.CABundle = server, nil }).try(t)

			got := errorOf(t, err)
			if !strings.Contains(got.Message, c.want) || strings.Contains(got.Message, banner) || !got.StoreScope {
				t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
			}
		})
	}
}

// A certificate of a known authority may still be the wrong one.
func TestCertificatesOfServers(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  string
		name string
		life time.Duration
		want string
	}{
		{"for another host, whose name is not reported", banner, time.Hour, "its certificate is not for the host of spec.server"},
		{"that has expired", "127.0.0.1", -time.Minute, "its certificate has expired"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			_, err := with(newVault(t, issued(t, c.name, time.Now().Add(c.life)))).try(t)

			got := errorOf(t, err)
			if got.Code != codes.Unavailable || !strings.Contains(got.Message, c.want) || strings.Contains(got.Message, banner) {
				t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
			}
		})
	}
}

// What a read, a list or a write gets in place of Vault's answer is not quoted.
func TestAnswersOfOthers(t *testing.T) {
	t.Parallel()

	for _, body := range []string{`{"errors":["` + banner + `"],"x":1}`, `{"data":"` + banner + `"}`, banner} {
		v := newVault(t)
		v.answer(appPath, http.StatusOK, body)

		s := with(v).open(t)

		_, written := s.state(t.Context(), "app")
		for _, err := range []error{read(t, s).Err, written} {
			if got := errorOf(t, err); got.Code != codes.Unavailable || got.Reason != pb.ReasonUnavailable || strings.Contains(got.Message, banner) {
				t.Errorf("%s: %v %s: %s", body, got.Code, got.Reason, got.Message)
			}
		}
	}
}
