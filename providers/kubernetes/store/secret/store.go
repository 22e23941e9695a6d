package secret

import (
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
	"github.com/external-secrets/eso/providers/kubernetes/internal/cluster"
)

const (
	requestTimeout = 20 * time.Second
	// maxReads bounds the concurrent reads of one batch.
	maxReads = 8
	// pageSize is the page size of a search.
	pageSize = 200
)

// Store serves the Secrets of one namespace.
type Store struct {
	cluster   *cluster.Cluster
	core      coreclient.CoreV1Interface
	access    authorizationclient.AuthorizationV1Interface
	metadata  metadata.Interface
	namespace string
	// patience is the interval before another watch after one that ended early.
	patience time.Duration
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
	_ provider.Watcher = (*Store)(nil)
)

// New returns the store of a config.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.Kubernetes) (*Store, error) {
	target, err := cluster.Open(ctx, env, &config.Spec.Cluster)
	if err != nil {
		return nil, err
	}

	s := &Store{cluster: target, namespace: config.Spec.RemoteNamespace, patience: patience}
	if s.namespace == "" {
		s.namespace = metav1.NamespaceDefault
	}

	if s.core, err = coreclient.NewForConfigAndClient(target.Config, target.Client); err == nil {
		if s.access, err = authorizationclient.NewForConfigAndClient(target.Config, target.Client); err == nil {
			s.metadata, err = metadata.NewForConfigAndClient(target.Config, target.Client)
		}
	}

	if err != nil {
		target.Close()

		return nil, provider.InvalidConfig("spec.server: %v", err)
	}

	return s, nil
}

// Read reads each Secret once, however many of its properties are read.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	var wait sync.WaitGroup

	results := make([]provider.Result, len(reads))
	free := make(chan struct{}, maxReads)

	// The indexes of the reads, by key.
	wanted := map[string][]int{}
	for i, read := range reads {
		wanted[read.Key] = append(wanted[read.Key], i)
	}

	for key, indexes := range wanted {
		free <- struct{}{}

		wait.Go(func() {
			defer func() { <-free }()

			secret, err := s.get(ctx, key)

			for _, i := range indexes {
				if err != nil {
					results[i] = provider.Result{Err: err}
				} else {
					results[i] = answer(reads[i], secret)
				}
			}
		})
	}

	wait.Wait()

	return results
}

// Find reads the Secrets that match, page by page. Tags are labels.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	if query.Path != nil && *query.Path != "" {
		return provider.Unsupported("find by path: Secrets of a namespace have no paths")
	}

	selector := labels.SelectorFromSet(query.Tags)
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: pageSize}

	for {
		page, err := s.list(ctx, options)
		if err != nil {
			return err
		}

		for i := range page.Items {
			secret := &page.Items[i]
			if !query.Matches(secret.Name, secret.Labels) {
				continue
			}

			raw, err := whole(secret)
			if err != nil {
				return err
			}

			if err := found(provider.Found{Key: secret.Name, Value: raw}); err != nil {
				return err
			}
		}

		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (s *Store) list(ctx context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	page, err := s.core.Secrets(s.namespace).List(ctx, options)
	if err != nil {
		return nil, cluster.Error("list Secrets in namespace \""+s.namespace+"\"", err)
	}

	return page, nil
}

// Exists reports whether a Secret, or a key of its data, exists.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	secret, err := s.get(ctx, key)

	switch {
	case isNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case property == "":
		return true, nil
	}

	_, there := secret.Data[property]

	return there, nil
}

// Validate reviews the login's access at the API server.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	review, err := s.access.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return provider.Validation{}, cluster.Error("ask what the login may do", err)
	}

	for _, rule := range review.Status.ResourceRules {
		if names(rule.Verbs, "get") && names(rule.APIGroups, "") && names(rule.Resources, "secrets") {
			return provider.Validation{}, nil
		}
	}

	if review.Status.Incomplete {
		return provider.Validation{Unknown: true, Message: "the API server cannot list all permissions of the login"}, nil
	}

	return provider.Validation{}, provider.AccessDenied("the login may not get Secrets in namespace %q: grant it get of secrets there", s.namespace)
}

// Close ends the connections.
func (s *Store) Close(context.Context) error {
	s.cluster.Close()

	return nil
}

// get reads one Secret.
func (s *Store) get(ctx context.Context, key string) (*corev1.Secret, error) {
	if err := checkName(key); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	secret, err := s.core.Secrets(s.namespace).Get(ctx, key, metav1.GetOptions{})
	if err != nil {
		return nil, cluster.Error("read "+s.name(key), err)
	}

	return secret, nil
}

// name returns the name of a Secret in errors.
func (s *Store) name(key string) string {
	return "Secret \"" + key + "\" in namespace \"" + s.namespace + "\""
}

func checkName(key string) error {
	if faults := validation.IsDNS1123Subdomain(key); len(faults) > 0 {
		return provider.InvalidRequest("key %q is no name of a Secret: %s", key, faults[0])
	}

	return nil
}

// revision returns the revision of a Secret, which changes with every write.
func revision(secret *corev1.Secret) string {
	return string(secret.UID) + "@" + secret.ResourceVersion
}

// answer returns the result of one read.
func answer(read provider.Read, secret *corev1.Secret) provider.Result {
	result := provider.Result{Revision: revision(secret)}

	switch {
	case read.Version != "":
		return provider.Result{Err: provider.InvalidRequest("version %q of Secret %q: Kubernetes keeps no versions", read.Version, secret.Name)}
	case read.KnownRevision != "" && read.KnownRevision == result.Revision:
		return provider.Result{NotModified: true, Revision: result.Revision}
	case read.Metadata:
		return metadataOf(read, secret)
	case read.Property == "" && read.Shape == provider.Map:
		result.Map = secret.Data
		if result.Map == nil {
			result.Map = map[string][]byte{}
		}
	case read.Property == "":
		result.Value, result.Err = whole(secret)
	default:
		value, there := secret.Data[read.Property]

		switch {
		case !there:
			result.Err = provider.PropertyNotFound("Secret %q has no key %q", secret.Name, read.Property)
		case read.Shape == provider.Map:
			result.Map, result.Err = document.Map(secret.Name, value, "")
		default:
			result.Value = value
		}
	}

	if result.Err != nil {
		return provider.Result{Err: result.Err}
	}

	return result
}

// metadataOf returns labels and annotations as a JSON object.
func metadataOf(read provider.Read, secret *corev1.Secret) provider.Result {
	annotations := map[string]string{}

	for name, value := range secret.Annotations {
		// This annotation contains the data.
		if name != corev1.LastAppliedConfigAnnotation {
			annotations[name] = value
		}
	}

	found := secret.Labels
	if found == nil {
		found = map[string]string{}
	}

	raw, err := document.Encode(map[string]any{"labels": found, "annotations": annotations})
	if err != nil {
		return provider.Result{Err: provider.InvalidRequest("cannot encode the metadata of Secret %q", secret.Name)}
	}

	return document.Answer(read, document.Document{Raw: raw, Revision: revision(secret)})
}

// whole returns a Secret's data as a JSON object of texts. A value that is no
// text is an error.
func whole(secret *corev1.Secret) ([]byte, error) {
	texts := make(map[string]string, len(secret.Data))

	for name, value := range secret.Data {
		if !utf8.Valid(value) {
			return nil, provider.InvalidRequest("Secret %q as a whole: its key %q holds bytes that JSON cannot: name a property, or use dataFrom.extract", secret.Name, name)
		}

		texts[name] = string(value)
	}

	raw, err := document.Encode(texts)
	if err != nil {
		return nil, provider.InvalidRequest("cannot encode Secret %q", secret.Name)
	}

	return raw, nil
}

func names(list []string, wanted string) bool {
	return slices.Contains(list, wanted) || slices.Contains(list, "*")
}

func isNotFound(err error) bool {
	return err != nil && provider.AsError(err).Code == codes.NotFound
}
