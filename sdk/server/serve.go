package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/caller"
	"github.com/external-secrets/eso/sdk/internal/session"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxMessageBytes bounds a message in either direction.
	maxMessageBytes = 4 << 20
	// maxBatchSize bounds the reads of one GetSecrets.
	maxBatchSize = 256
	// drainPause lies between the health answer NOT_SERVING and the closing of
	// connections, so that balancers look elsewhere first.
	drainPause = 500 * time.Millisecond
	// closeGrace is how long the closing of stores may take at shutdown: with
	// the grace of calls less than the 30 s that Kubernetes gives a Pod.
	closeGrace = 5 * time.Second
	// webTimeout bounds the reading of a request for metrics.
	webTimeout = 5 * time.Second
	// maxConnectionAge makes callers connect anew, so that they spread over
	// the replicas and show a current certificate.
	maxConnectionAge = time.Hour
)

// serve runs until ctx ends, then stops in order.
func serve(ctx context.Context, p provider.Provider, options Options, log *slog.Logger) error {
	if p.Name == "" || len(p.Kinds) == 0 {
		return errors.New("the provider has no name or no kinds: it cannot be registered")
	}

	kube, apiServer, err := kubernetes(p, options.Kubeconfig)
	if err != nil {
		return err
	}

	listener, err := options.listener()
	if err != nil {
		return err
	}

	options.apiServer = apiServer

	return serveOn(ctx, listener, kube, p, options, log)
}

func serveOn(ctx context.Context, listener net.Listener, kube client.Client, p provider.Provider, options Options, log *slog.Logger) error {
	meter := newMeter(p.Name)
	serverOptions := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(1024),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: maxConnectionAge, MaxConnectionAgeGrace: options.Grace, Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}

	secured, err := secure(ctx, options, meter, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer secured.close()

	serverOptions = append(serverOptions, grpc.Creds(tellRefusals(secured.credentials, meter, log)))

	sessions := session.New(kube, p.Kinds, session.Options{Log: log, Calls: meter.backend, OwnIdentity: options.OwnIdentity, APIServer: options.apiServer})
	meter.stores = sessions.Len
	watcher := &observer{meter: meter, log: log}
	callers := &callers{verifier: caller.New(caller.Options{Client: kube, Audience: secured.audience, Accounts: options.Callers})}
	bounded := limits{call: maxCallTime, stream: maxStreamTime}
	serverOptions = append(serverOptions,
		grpc.ChainUnaryInterceptor(bounded.unary, watcher.unary, callers.unary),
		grpc.ChainStreamInterceptor(bounded.streams, watcher.stream, callers.stream))

	watches := newWatches()
	serverOptions = append(serverOptions, grpc.ChainStreamInterceptor(watches.stream))

	grpcServer := grpc.NewServer(serverOptions...)
	status := &ownStatus{meter: meter}
	healthServer := health.NewServer()

	pb.RegisterProviderInfoServer(grpcServer, &infoService{provider: p, status: status})
	pb.RegisterSecretStoreServer(grpcServer, &storeService{sessions: sessions})
	healthpb.RegisterHealthServer(grpcServer, healthServer)

	if options.Reflection {
		reflection.Register(grpcServer)
	}

	web, err := serveWeb(options.MetricsListen, meter, status)
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

// stop lets calls in flight end, but not for ever.
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

// serveWeb serves metrics and probes in plain HTTP: the kubelet cannot show a
// client certificate. Without an address it serves nothing.
func serveWeb(address string, meter *meter, status *ownStatus) (*http.Server, error) {
	if address == "" {
		return &http.Server{ReadHeaderTimeout: webTimeout}, nil
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on --metrics-listen %s: %w", address, err)
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(meter.registry, promhttp.HandlerOpts{}))
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
