package server

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/external-secrets/eso/sdk/internal/peer"
	"github.com/external-secrets/eso/sdk/internal/svid"
	"github.com/external-secrets/eso/sdk/internal/tlsfiles"
)

// security authenticates callers.
type security struct {
	credentials credentials.TransportCredentials
	// audience returns the audience that callers' tokens must be for; empty where
	// none is known.
	audience func() string
	close    func()
}

// secure returns the security of a listener, with certificates that are reloaded
// until close is called.
func secure(ctx context.Context, listener net.Listener, options Options, metrics *metrics) (*security, error) {
	given := func() string { return options.TokenAudience }

	if options.PeerIdentity != "" {
		return &security{credentials: peer.MemoryCredentials(options.PeerIdentity, options.OperatorIdentity), audience: given, close: func() {}}, nil
	}

	if listener.Addr().Network() == "unix" {
		return &security{credentials: peer.Credentials(options.SocketPeerUID), audience: given, close: func() {}}, nil
	}

	if options.WorkloadAPI != "" {
		svids, err := svid.Load(ctx, options.WorkloadAPI, options.OperatorIdentity)
		if err != nil {
			return nil, err
		}

		metrics.expires = svids.Expires

		return &security{credentials: credentials.NewTLS(svids.Config()), audience: given, close: svids.Close}, nil
	}

	files, err := tlsfiles.Load(tlsfiles.Options{Dir: options.TLSDir, ClientURI: options.OperatorIdentity, Log: options.Log, Reloaded: metrics.reloaded})
	if err != nil {
		return nil, err
	}

	// Calls in flight at shutdown still need the certificates.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))

	go files.Follow(following)

	metrics.expires = files.Expires

	audience := given
	if options.TokenAudience == "" {
		audience = files.ProviderIdentity
	}

	return &security{credentials: credentials.NewTLS(files.Config()), audience: audience, close: stop}, nil
}
