package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/caller"
	"github.com/external-secrets/eso/sdk/internal/idempotency"
	"github.com/external-secrets/eso/sdk/internal/session"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxMessageBytes bounds a message in either direction.
	maxMessageBytes = 4 << 20
	// maxBatchSize bounds the reads of one GetSecrets.
	maxBatchSize = 256
	// drainPause is the time between the health status NOT_SERVING and the closing
	// of connections, in which balancers choose other replicas.
	drainPause = 500 * time.Millisecond
	// closeGrace is how long the closing of stores may take at shutdown. With the
	// grace of calls it is less than the 30 s that Kubernetes gives a Pod.
	closeGrace = 5 * time.Second
	// webTimeout bounds the reading of a request for metrics.
	webTimeout = 5 * time.Second
	// maxConnectionAge is after what time callers have to connect again, so that
	// they spread over the replicas and show a current certificate.
	maxConnectionAge = time.Hour
)

// Serve serves a provider on a listener, which it closes, until ctx is done. It
// then reports NOT_SERVING, waits for calls in flight, and closes the stores. The
// calls pass the same checks whatever the listener is; Options says how callers
// are authenticated. It returns an error when it cannot serve, and nil after ctx
// is done.
func Serve(ctx context.Context, listener net.Listener, p provider.Provider, options Options) error {
	// No load balancer watches the health of a process's own memory.
	if options.PeerIdentity == "" {
		options.drain = drainPause
	}

	return serve(ctx, listener, p, options)
}

func serve(ctx context.Context, listener net.Listener, p provider.Provider, options Options) error {
	options.setDefaults()

	if err := options.validate(p, listener); err != nil {
		return errors.Join(err, listener.Close())
	}

	log, metrics := options.Log, newMetrics()
	serverOptions := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(1024),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: maxConnectionAge, MaxConnectionAgeGrace: options.Grace, Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}

	secured, err := secure(ctx, listener, options, metrics)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer secured.close()

	serverOptions = append(serverOptions, grpc.Creds(logRefusals(secured.credentials, metrics, log)))

	sessions := session.New(options.Client, p.Kinds, session.Options{Log: log, Calls: metrics.backend, OwnIdentity: options.OwnIdentity, APIServer: options.APIServer})
	metrics.stores = sessions.Len
	observer := &observer{metrics: metrics, log: log}
	callers := &callers{verifier: caller.New(caller.Options{Client: options.Client, Audience: secured.audience, Accounts: options.Callers})}
	limits := limits{call: maxCallTime, stream: maxStreamTime}
	watches := newWatches()

	serverOptions = append(serverOptions,
		grpc.ChainUnaryInterceptor(limits.unary, observer.unary, callers.unary),
		grpc.ChainStreamInterceptor(limits.streams, observer.stream, callers.stream, watches.stream))

	grpcServer := grpc.NewServer(serverOptions...)
	status := &ownStatus{metrics: metrics}
	healthServer := health.NewServer()

	pb.RegisterProviderInfoServer(grpcServer, &infoService{provider: p, status: status})
	pb.RegisterSecretStoreServer(grpcServer, &storeService{sessions: sessions})
	healthpb.RegisterHealthServer(grpcServer, healthServer)

	if slices.ContainsFunc(p.Kinds, func(k provider.Kind) bool { return k.Definition().Service == pb.Service_SERVICE_GENERATOR }) {
		pb.RegisterGeneratorServer(grpcServer, &generatorService{sessions: sessions, results: idempotency.New(), panicked: observer.panicked})
	}

	if options.Reflection {
		reflection.Register(grpcServer)
	}

	web, err := serveWeb(options.MetricsListen, metrics, status)
	if err != nil {
		return errors.Join(err, sessions.Close(ctx), listener.Close())
	}

	failed := make(chan error, 1)

	go func() { failed <- grpcServer.Serve(listener) }()

	log.Info("serving", "provider", p.Name, "version", p.Version, "address", listener.Addr().String(), "metrics", web.Addr)

	select {
	case err = <-failed:
		err = fmt.Errorf("cannot serve gRPC: %w", err)
	case <-ctx.Done():
		log.Info("stopping", "grace", options.Grace.String())
		status.drain()
		healthServer.Shutdown()
		time.Sleep(options.drain)
		watches.end()
		stop(grpcServer, options.Grace)
	}

	closing, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()

	if closeErr := sessions.Close(closing); closeErr != nil {
		log.Warn("stopped with stores still open", "error", closeErr.Error())
	}

	_ = web.Close()

	return err
}

// stop waits until calls in flight end, for the grace at most.
func stop(s *grpc.Server, grace time.Duration) {
	done := make(chan struct{})

	go func() {
		s.GracefulStop()
		close(done)
	}()

	select {
	case <-done:
	case <-time.After(grace):
		s.Stop()
		<-done
	}
}

// serveWeb serves metrics and probes in plain HTTP, because the kubelet has no
// client certificate. Without an address it serves nothing.
func serveWeb(address string, metrics *metrics, status *ownStatus) (*http.Server, error) {
	if address == "" {
		return &http.Server{ReadHeaderTimeout: webTimeout}, nil
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on --metrics-listen %s: %w", address, err)
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if state, reason := status.now(); state == pb.GetStatusResponse_STATE_FAILING {
			http.Error(w, reason, http.StatusServiceUnavailable)

			return
		}

		_, _ = w.Write([]byte("ok\n"))
	})

	web := &http.Server{Addr: listener.Addr().String(), Handler: mux, ReadHeaderTimeout: webTimeout}

	go func() { _ = web.Serve(listener) }()

	return web, nil
}
