package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/controller/clusterexternalsecret"
	"github.com/external-secrets/eso/core/internal/controller/externalsecret"
	"github.com/external-secrets/eso/core/internal/controller/secretprovider"
	"github.com/external-secrets/eso/core/internal/controller/secretstore"
	"github.com/external-secrets/eso/core/internal/identity/ca"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/internal/metrics"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/store/source"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/sync/report"
	"github.com/external-secrets/eso/core/internal/template"
	"github.com/external-secrets/eso/core/internal/version"
)

const (
	// storeWorkers and clusterStoreWorkers validate stores: one that hangs
	// must not keep the others waiting.
	storeWorkers        = 16
	clusterStoreWorkers = 8
)

// Run runs the operator until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = float32(options.QPS), options.Burst
	config.UserAgent = "external-secrets/" + version.Version

	known, err := newScheme()
	if err != nil {
		return err
	}

	mgr, err := manager.New(config, managerOptions(known, options))
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}

	direct, err := client.New(config, client.Options{Scheme: known, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("cannot make a Kubernetes client: %w", err)
	}

	ca := ca.New(direct, ca.Options{
		Namespace: options.Namespace, CALifetime: options.CALifetime, LeafLifetime: options.CertificateLifetime,
	})
	if err := mgr.Add(ca); err != nil {
		return fmt.Errorf("cannot add the certificate authority: %w", err)
	}

	measured := metrics.New(mgr.GetClient(), ca)
	if err := ctrlmetrics.Registry.Register(measured); err != nil {
		return fmt.Errorf("cannot register the metrics: %w", err)
	}
	defer ctrlmetrics.Registry.Unregister(measured)

	clients, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("cannot make a Kubernetes client: %w", err)
	}

	trusted := mtls.NewSource(mtls.Options{Own: ca, Reader: direct, WorkloadAPI: options.WorkloadAPI})
	defer trusted.Close()

	pool := providerclient.NewPool(providerclient.Options{
		Credentials: trusted, Tokens: token.New(clients, config), UserAgent: config.UserAgent, Called: measured.Called,
	})
	defer pool.Close()

	if err := addControllers(ctx, mgr, direct, ca, pool, measured, options); err != nil {
		return err
	}

	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("cannot add a health check: %w", err)
	}

	// Ready means that the caches are filled: before that nothing is synced.
	if err := mgr.AddReadyzCheck("caches", func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("the caches are not filled yet")
		}

		return nil
	}); err != nil {
		return fmt.Errorf("cannot add a readiness check: %w", err)
	}

	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("cannot run: %w", err)
	}

	return nil
}

func addControllers(ctx context.Context, mgr manager.Manager, direct client.Client, ca *ca.Authority, pool *providerclient.Pool, measured *metrics.Recorder, options Options) error {
	cached := mgr.GetClient()
	events := mgr.GetEventRecorder("external-secrets")
	configs := secretstore.NewConfigs(mgr.GetCache(), mgr.GetRESTMapper())
	policy := resolver.Policy{
		Allowed: options.AllowedAddresses, SocketDir: options.SocketDir, SocketUID: options.SocketUID,
		SPIFFE: options.WorkloadAPI != "", Namespace: options.Namespace,
	}
	resolver := resolver.NewResolver(cached, configs, policy)

	allowed := make([]providerclient.Endpoint, 0, len(policy.Allowed))
	for _, a := range policy.Allowed {
		allowed = append(allowed, policy.Unregistered(a))
	}

	providers := secretprovider.New(cached, direct, resolver, pool, ca, events, allowed)
	if err := providers.SetupWithManager(mgr, ca); err != nil {
		return err
	}

	for kind, workers := range map[string]int{v2alpha1.SecretStoreKind: storeWorkers, v2alpha1.ClusterSecretStoreKind: clusterStoreWorkers} {
		stores := secretstore.New(kind, cached, resolver, pool, events,
			secretstore.Options{Class: options.Class, RefreshInterval: options.StoreRefreshInterval, Workers: workers})
		if err := stores.SetupWithManager(ctx, mgr, configs); err != nil {
			return err
		}
	}

	// The labels of namespaces, for the conditions of ClusterSecretStores and
	// the selectors of ClusterExternalSecrets.
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))

	if _, err := mgr.GetCache().GetInformer(ctx, namespaces, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cannot watch namespaces: %w", err)
	}

	var secrets *externalsecret.Reconciler

	openers := source.Registry{v2alpha1.GroupVersion.String(): source.NewV2Alpha1(cached, resolver, pool, options.MaxFound,
		func(kind, namespace, name string) { secrets.StoreRecovered(kind, namespace, name) })}

	secrets = externalsecret.New(externalsecret.Dependencies{
		Client: cached, Direct: direct, Openers: openers, Reporter: report.New(cached, events), Meter: measured,
		Renderer: render.New(
			template.New(template.Options{Left: options.LeftDelimiter, Right: options.RightDelimiter}),
			template.New(template.Options{}),
		),
	}, externalsecret.Options{Class: options.Class, Concurrent: options.Concurrent, MemoryBytes: options.MemoryBytes, GenericTargets: options.GenericTargets})

	if err := secrets.SetupWithManager(ctx, mgr); err != nil {
		return err
	}

	if !options.ClusterExternalSecrets {
		return nil
	}

	return clusterexternalsecret.New(cached, direct).SetupWithManager(ctx, mgr)
}

func newScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()

	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, esv1.AddToScheme, v2alpha1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, fmt.Errorf("cannot build the scheme: %w", err)
		}
	}

	return known, nil
}

func managerOptions(known *runtime.Scheme, options Options) manager.Options {
	managed := &metav1.PartialObjectMetadata{}
	managed.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

	return manager.Options{
		Scheme:                        known,
		Metrics:                       server.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress:        options.LiveAddress,
		LeaderElection:                options.LeaderElection,
		LeaderElectionID:              options.LeaderElectionID,
		LeaderElectionNamespace:       options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			// Of Secrets only the metadata, and only of those that an
			// ExternalSecret keeps in sync: the others of a cluster may be
			// many and large.
			ByObject: map[client.Object]cache.ByObject{
				managed: {Label: labels.SelectorFromSet(labels.Set{esv1.LabelManaged: esv1.LabelManagedValue})},
			},
			// A read must never start a watch by accident: that of whole
			// Secrets, say.
			ReaderFailOnMissingInformer: true,
		},
	}
}
