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
	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/ca"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/internal/metrics"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/sync/report"
	"github.com/external-secrets/eso/core/internal/template"
	"github.com/external-secrets/eso/core/internal/version"
	"github.com/external-secrets/eso/core/store"
)

const (
	// storeWorkers and clusterStoreWorkers validate stores: one that hangs
	// must not keep the others waiting.
	storeWorkers        = 16
	clusterStoreWorkers = 8
)

// Run runs the operator until ctx ends. It may be called once at a time in a
// process, as metrics are those of the process.
func Run(ctx context.Context, config *rest.Config, options Options, extensions ...Extension) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = float32(options.QPS), options.Burst
	config.UserAgent = "external-secrets/" + version.Version

	known, err := newScheme(extensions)
	if err != nil {
		return err
	}

	mgr, err := manager.New(config, managerOptions(known, options))
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}

	direct, err := client.New(config, client.Options{Scheme: known, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("cannot create a Kubernetes client: %w", err)
	}

	authority := ca.New(direct, ca.Options{
		Namespace: options.Namespace, CALifetime: options.CALifetime, LeafLifetime: options.CertificateLifetime,
	})
	if err := mgr.Add(authority); err != nil {
		return fmt.Errorf("cannot add the certificate authority: %w", err)
	}

	measured := metrics.New(mgr.GetClient(), authority)
	if err := ctrlmetrics.Registry.Register(measured); err != nil {
		return fmt.Errorf("cannot register the metrics: %w", err)
	}
	defer ctrlmetrics.Registry.Unregister(measured)

	clients, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("cannot create a Kubernetes client: %w", err)
	}

	trusted := mtls.NewSource(mtls.Options{Own: authority, Reader: direct, WorkloadAPI: options.WorkloadAPI})
	defer trusted.Close()

	pool := providerclient.NewPool(providerclient.Options{
		Credentials: trusted, Tokens: token.New(clients, config), UserAgent: config.UserAgent, Called: measured.Called, Dial: options.Dial,
	})
	defer pool.Close()

	if err := addControllers(ctx, mgr, direct, authority, pool, measured, options, extensions); err != nil {
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

func addControllers(
	ctx context.Context, mgr manager.Manager, direct client.Client, authority *ca.Authority, pool *providerclient.Pool,
	measured *metrics.Recorder, options Options, extensions []Extension,
) error {
	cached := mgr.GetClient()
	events := mgr.GetEventRecorder("external-secrets")
	configs := secretstore.NewConfigs(mgr.GetCache(), mgr.GetRESTMapper())

	if err := mgr.Add(configs); err != nil {
		return fmt.Errorf("cannot watch provider configs: %w", err)
	}

	policy, err := addressPolicy(options)
	if err != nil {
		return err
	}

	if err := resolver.IndexRegistrations(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	binder := resolver.NewBinder(cached, resolver.IndexedRegistrations{Reader: cached}, configs, policy)

	allowed := make([]providerclient.Endpoint, 0, len(policy.Allowed))
	for _, a := range policy.Allowed {
		allowed = append(allowed, policy.Unregistered(a))
	}

	providers := secretprovider.New(cached, direct, binder, pool, authority, events, allowed)
	if err := providers.SetupWithManager(mgr, authority); err != nil {
		return err
	}

	for kind, workers := range map[string]int{v2alpha1.SecretStoreKind: storeWorkers, v2alpha1.ClusterSecretStoreKind: clusterStoreWorkers} {
		stores := secretstore.New(kind, cached, binder, pool, events,
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

	environment := Environment{Manager: mgr, Reader: cached, Recovered: func(s store.Selector) { secrets.StoreRecovered(s) }}

	stores, generators, err := resolvers(environment, append([]Extension{secretStores(binder, pool, options.Class, options.MaxFound)}, extensions...))
	if err != nil {
		return err
	}

	secrets = externalsecret.New(externalsecret.Dependencies{
		Client: cached, Direct: direct, Stores: stores, Generators: generators, Reporter: report.New(cached, events), Metrics: measured,
		Renderer: render.New(
			template.New(template.Options{Left: options.LeftDelimiter, Right: options.RightDelimiter}),
			template.New(template.Options{}),
		),
	}, externalsecret.Options{Class: options.Class, Concurrent: options.Concurrent, MemoryBytes: options.MemoryBytes, GenericTargets: options.GenericTargets})

	if err := secrets.SetupWithManager(ctx, mgr); err != nil {
		return err
	}

	if options.ClusterExternalSecrets {
		if err := clusterexternalsecret.New(cached, direct).SetupWithManager(ctx, mgr); err != nil {
			return err
		}
	}

	for _, extension := range extensions {
		if extension.Controllers == nil {
			continue
		}

		if err := extension.Controllers(ctx, mgr); err != nil {
			return fmt.Errorf("cannot add the controllers of an extension: %w", err)
		}
	}

	return nil
}

// secretStores serves SecretStores and ClusterSecretStores, as any extension
// serves its stores.
func secretStores(binder *resolver.Binder, pool *providerclient.Pool, class string, maxFound int) Extension {
	return Extension{Stores: map[string]func(Environment) (store.Resolver, error){
		v2alpha1.GroupVersion.String(): func(e Environment) (store.Resolver, error) {
			return resolver.New(e.Reader, binder, pool, class, maxFound, e.Recovered), nil
		},
	}}
}

// addressPolicy returns the policy for addresses of providers that the flags
// define.
func addressPolicy(options Options) (resolver.Policy, error) {
	policy := resolver.Policy{
		SocketDir: options.SocketDir, SocketUID: options.SocketUID,
		SPIFFE: options.WorkloadAPI != "", Namespace: options.Namespace,
	}

	for _, allowed := range options.AllowedAddresses {
		parsed, err := address.Parse(allowed)
		if err != nil {
			return resolver.Policy{}, fmt.Errorf("cannot allow a provider's address: %w", err)
		}

		policy.Allowed = append(policy.Allowed, parsed)
	}

	return policy, nil
}

func newScheme(extensions []Extension) (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	adders := []func(*runtime.Scheme) error{scheme.AddToScheme, esv1.AddToScheme, v2alpha1.AddToScheme}

	for _, extension := range extensions {
		if extension.AddToScheme != nil {
			adders = append(adders, extension.AddToScheme)
		}
	}

	for _, add := range adders {
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
