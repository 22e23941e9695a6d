package server

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/credentials"

	"github.com/external-secrets/eso/sdk/internal/peer"
	"github.com/external-secrets/eso/sdk/internal/svid"
	"github.com/external-secrets/eso/sdk/internal/tlsfiles"
)

// security is how callers are told apart from anybody else.
type security struct {
	credentials credentials.TransportCredentials
	// audience that callers' tokens must be for; empty where none is known.
	audience func() string
	close    func()
}

// secure follows the certificates that the options name, until close.
func secure(ctx context.Context, options Options, meter *meter, log *slog.Logger) (*security, error) {
	given := func() string { return options.TokenAudience }

	if options.unix() {
		return &security{credentials: peer.Credentials(options.SocketPeerUID), audience: given, close: func() {}}, nil
	}

	if options.WorkloadAPI != "" {
		svids, err := svid.Load(ctx, options.WorkloadAPI, options.OperatorIdentity)
		if err != nil {
			return nil, err
		}

		meter.expires = svids.Expires

		return &security{credentials: credentials.NewTLS(svids.Config()), audience: given, close: svids.Close}, nil
	}

	files, err := tlsfiles.Load(tlsfiles.Options{Dir: options.TLSDir, ClientURI: options.OperatorIdentity, Log: log, Reloaded: meter.reloaded})
	if err != nil {
		return nil, err
	}

	// Calls in flight at shutdown still need them.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))

	go files.Follow(following)

	meter.expires = files.Expires

	audience := given
	if options.TokenAudience == "" {
		audience = files.ProviderIdentity
	}

	return &security{credentials: credentials.NewTLS(files.Config()), audience: audience, close: stop}, nil
}
