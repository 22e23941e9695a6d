package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	"github.com/external-secrets/eso/sdk/provider"
)

// Main runs a provider process: it reads the flags, serves until SIGTERM or
// SIGINT, and returns the exit status: 0 after an orderly shutdown, 2 for invalid
// flags, 1 for any other failure.
func Main(p provider.Provider) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	return run(ctx, p, os.Args[1:], os.Stdout, os.Stderr)
}

func run(ctx context.Context, p provider.Provider, args []string, stdout, stderr io.Writer) int {
	var (
		settings    settings
		showVersion bool
	)

	flags := flag.NewFlagSet("provider-"+p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&showVersion, "version", false, "print the version and exit")
	settings.register(flags)

	if p.Flags != nil {
		p.Flags(flags)
	}

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}

	if showVersion {
		fmt.Fprintf(stdout, "provider-%s %s (%s)\n", p.Name, p.Version, p.Commit)

		return 0
	}

	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "provider-%s: unexpected argument %q\n", p.Name, flags.Arg(0))

		return 2
	}

	if err := settings.validate(); err != nil {
		fmt.Fprintf(stderr, "provider-%s: %v\n", p.Name, err)

		return 2
	}

	settings.Log = settings.logger(stderr)
	sink := logr.FromSlogHandler(settings.Log.Handler())
	crlog.SetLogger(sink)
	klog.SetLogger(sink)

	if err := listenAndServe(ctx, p, settings); err != nil {
		settings.Log.Error("cannot serve", "error", err.Error())

		return 1
	}

	return 0
}

func listenAndServe(ctx context.Context, p provider.Provider, s settings) (err error) {
	if s.Client, s.APIServer, err = kubernetes(p, s.kubeconfig); err != nil {
		return err
	}

	listener, err := s.listener()
	if err != nil {
		return err
	}

	return Serve(ctx, listener, p, s.Options)
}

// kubernetes returns a client that can read the provider's configs and what they
// refer to, and the address of its API server.
func kubernetes(p provider.Provider, kubeconfig string) (client.Client, provider.APIServer, error) {
	var server provider.APIServer

	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, server, fmt.Errorf("cannot build the scheme: %w", err)
	}

	for _, kind := range p.Kinds {
		if err := kind.Definition().AddToScheme(known); err != nil {
			return nil, server, fmt.Errorf("cannot build the scheme: %w", err)
		}
	}

	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, server, err
	}

	// A kubeconfig may name a file with the authorities.
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, server, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}

	server = provider.APIServer{URL: config.Host, CABundle: config.CAData}

	config.QPS, config.Burst = 50, 100
	config.UserAgent = "external-secrets-provider-" + p.Name + "/" + p.Version
	config.Timeout = 30 * time.Second

	c, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return nil, server, fmt.Errorf("cannot create a Kubernetes client: %w", err)
	}

	return c, server, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig

	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the Kubernetes API server (--kubeconfig, KUBECONFIG or a Pod's ServiceAccount): %w", err)
	}

	return config, nil
}
