package caller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// userPrefix of a ServiceAccount's user name.
	userPrefix = "system:serviceaccount:"
	// maxTokenBytes bounds a token.
	maxTokenBytes = 16 << 10
	// reviewTimeout bounds a TokenReview.
	reviewTimeout = 5 * time.Second
	// goodFor and badFor are how long the result of a review is cached: a deleted
	// ServiceAccount is refused after that time.
	goodFor = time.Minute
	badFor  = 10 * time.Second
	// maxKept bounds the cached results.
	maxKept = 4096
)

// Options of a Verifier.
type Options struct {
	// Client creates TokenReviews.
	Client client.Client
	// Audience that a token must be for; an empty one refuses all tokens.
	Audience func() string
	// Accounts that calls must come from. Empty means that a call needs no
	// token; one that it carries all the same must be that of a ServiceAccount
	// in the namespace of the call's config.
	Accounts []types.NamespacedName
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Verifier verifies the tokens of calls.
type Verifier struct {
	options Options

	mu   sync.Mutex
	kept map[[sha256.Size]byte]*verdict
}

// verdict is the result of the review of a token, or a running review.
type verdict struct {
	done    chan struct{}
	account types.NamespacedName
	err     error
	ends    time.Time
}

// New returns a verifier.
func New(options Options) *Verifier {
	if options.Now == nil {
		options.Now = time.Now
	}

	return &Verifier{options: options, kept: map[[sha256.Size]byte]*verdict{}}
}

// Verify returns an error for a call whose required token is missing, or whose
// token is not valid.
func (v *Verifier) Verify(ctx context.Context, call *pb.CallContext) error {
	carried := metadata.ValueFromIncomingContext(ctx, pb.TokenMetadata)

	switch {
	case len(carried) == 0 && len(v.options.Accounts) == 0:
		return nil
	case len(carried) == 0:
		return refuse("the call carries no token: this provider takes calls of %s only; set spec.providerConfig.auth.serviceAccountRef in the store", v.accounts())
	case len(carried) > 1:
		return refuse("the call carries %d tokens", len(carried))
	}

	token, ok := strings.CutPrefix(carried[0], pb.TokenScheme)
	if !ok || token == "" || len(token) > maxTokenBytes {
		return refuse("the call's %s is not %sand a token of at most %d bytes", pb.TokenMetadata, pb.TokenScheme, maxTokenBytes)
	}

	account, err := v.account(ctx, token)
	if err != nil {
		return err
	}

	switch {
	case slices.Contains(v.options.Accounts, account):
		return nil
	case len(v.options.Accounts) > 0:
		return refuse("the token is that of ServiceAccount %s: this provider takes calls of %s only", account, v.accounts())
	case account.Namespace != call.GetConfig().GetNamespace():
		return refuse("the token is that of ServiceAccount %s, which is not in the namespace of the config, %q; the provider's --caller can allow it", account, call.GetConfig().GetNamespace())
	default:
		return nil
	}
}

func (v *Verifier) accounts() string {
	names := make([]string, 0, len(v.options.Accounts))
	for _, account := range v.options.Accounts {
		names = append(names, account.String())
	}

	return strings.Join(names, ", ")
}

// account returns the ServiceAccount of a token.
func (v *Verifier) account(ctx context.Context, token string) (types.NamespacedName, error) {
	d, fresh := v.verdict(sha256.Sum256([]byte(token)))
	if fresh {
		go v.fill(context.WithoutCancel(ctx), token, d)
	}

	select {
	case <-d.done:
		return d.account, d.err
	case <-ctx.Done():
		return types.NamespacedName{}, provider.AsError(ctx.Err())
	}
}

// verdict returns the verdict on a token by its digest, and whether the caller has
// to fill it.
func (v *Verifier) verdict(digest [sha256.Size]byte) (*verdict, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	now := v.options.Now()

	if d, ok := v.kept[digest]; ok {
		select {
		case <-d.done:
			// A clock that was set back must not extend a result.
			if now.Before(d.ends) && !now.Add(goodFor).Before(d.ends) {
				return d, false
			}
		default:
			return d, false
		}
	}

	// A caller with many invalid tokens can only cause more reviews.
	if len(v.kept) >= maxKept {
		clear(v.kept)
	}

	d := &verdict{done: make(chan struct{})}
	v.kept[digest] = d

	return d, true
}

func (v *Verifier) fill(ctx context.Context, token string, d *verdict) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	defer close(d.done)

	d.account, d.err = v.review(ctx, token)
	d.ends = v.options.Now().Add(goodFor)

	if d.err != nil {
		d.ends = v.options.Now().Add(badFor)
	}
}

func (v *Verifier) review(ctx context.Context, token string) (types.NamespacedName, error) {
	audience := v.options.Audience()
	if audience == "" {
		return types.NamespacedName{}, refuse("this provider takes no tokens: it does not know its own audience; set its --token-audience")
	}

	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}

	err := v.options.Client.Create(ctx, review)

	switch {
	case apierrors.IsForbidden(err):
		return types.NamespacedName{}, refuse("this provider may not create tokenreviews: bind the ClusterRole external-secrets-provider-tokens to its ServiceAccount")
	case err != nil:
		// Not the error itself, which may quote the token.
		return types.NamespacedName{}, provider.Unavailable("cannot have the call's token reviewed: the API server answers %s", apierrors.ReasonForError(err))
	case !review.Status.Authenticated:
		return types.NamespacedName{}, refuse("the token does not hold for audience %q", audience)
	case !slices.Contains(review.Status.Audiences, audience):
		return types.NamespacedName{}, refuse("the token is for %q, not for audience %q", review.Status.Audiences, audience)
	}

	namespace, name, ok := strings.Cut(strings.TrimPrefix(review.Status.User.Username, userPrefix), ":")
	if !ok || !strings.HasPrefix(review.Status.User.Username, userPrefix) {
		return types.NamespacedName{}, refuse("the token is that of user %q, which is no ServiceAccount", review.Status.User.Username)
	}

	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func refuse(format string, args ...any) error {
	return &provider.Error{Code: codes.Unauthenticated, Reason: pb.ReasonCallerRefused, StoreScope: true, Message: fmt.Sprintf(format, args...)}
}
