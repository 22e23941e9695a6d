package token

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// lifetime that is asked for; the API server may give another.
	lifetime = time.Hour
	// requestTimeout bounds the getting of a token, which callers share.
	requestTimeout = 10 * time.Second
	// failurePause is how long a failure is answered without asking again.
	failurePause = 5 * time.Second
	// maxKept bounds the tokens that are kept.
	maxKept = 10000
	// userPrefix of a ServiceAccount's user name.
	userPrefix = "system:serviceaccount:"
)

// Identity says whose token a call carries. The zero value means none;
// identities compare with ==.
type Identity struct {
	// Namespace and Name of the ServiceAccount; both empty mean the operator's
	// own.
	Namespace, Name string
	// Audience of the token; never empty.
	Audience string
}

// Own reports whether it is the operator's own ServiceAccount.
func (i Identity) Own() bool { return i.Name == "" }

// None reports whether calls carry no token.
func (i Identity) None() bool { return i == Identity{} }

// String names the ServiceAccount, for messages.
func (i Identity) String() string {
	if i.Own() {
		return "the operator's own ServiceAccount"
	}

	return fmt.Sprintf("ServiceAccount %q in namespace %q", i.Name, i.Namespace)
}

// Source gets tokens.
type Source struct {
	clients kubernetes.Interface
	config  *rest.Config
	now     func() time.Time

	mu   sync.Mutex
	kept map[Identity]*entry
	own  Identity
}

// entry is one token, or the getting of it.
type entry struct {
	done  chan struct{}
	token string
	err   error
	// renew is when to get another one, ends when this one must not be used any
	// more.
	renew, ends time.Time
	renewing    bool
}

// New returns a source. config is the operator's own: of it only address and
// authorities are used, to see whether the API server would accept a token.
func New(clients kubernetes.Interface, config *rest.Config) *Source {
	return &Source{clients: clients, config: rest.AnonymousClientConfig(config), now: time.Now, kept: map[Identity]*entry{}}
}

// Token gives a token that is good for some minutes at least. It is renewed
// when four fifths of its life are over, while the former one is still given.
func (s *Source) Token(ctx context.Context, who Identity) (string, error) {
	e := s.entry(ctx, who)

	select {
	case <-e.done:
		return e.token, e.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Forget drops a token that a provider has refused, unless there is another one
// already: the ServiceAccount may have been created again.
func (s *Source) Forget(who Identity, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	e, ok := s.kept[who]
	if !ok {
		return
	}

	select {
	case <-e.done:
		if e.err == nil && e.token == refused {
			delete(s.kept, who)
		}
	default:
	}
}

func (s *Source) entry(ctx context.Context, who Identity) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()

	if e, ok := s.kept[who]; ok {
		select {
		case <-e.done:
		default:
			return e
		}

		switch {
		case !now.Before(e.ends):
		case e.err == nil && !now.Before(e.renew) && !e.renewing:
			e.renewing = true

			go s.renewal(context.WithoutCancel(ctx), who, e)

			return e
		default:
			return e
		}
	}

	if len(s.kept) >= maxKept {
		s.sweep(now)
	}

	e := &entry{done: make(chan struct{})}
	s.kept[who] = e

	go func(ctx context.Context) {
		s.fill(ctx, who, e)
		close(e.done)
	}(context.WithoutCancel(ctx))

	return e
}

// renewal replaces a token before it ends. Where that fails the former one is
// used on, and the next caller tries again.
func (s *Source) renewal(ctx context.Context, who Identity, former *entry) {
	e := &entry{done: make(chan struct{})}
	s.fill(ctx, who, e)
	close(e.done)

	s.mu.Lock()
	defer s.mu.Unlock()

	former.renewing = false

	switch {
	case e.err == nil && s.kept[who] == former:
		s.kept[who] = e
	case e.err != nil:
		former.renew = s.now().Add(failurePause)
	}
}

// sweep drops what has ended, and, where that is nothing, everything that is
// there: it is got again.
func (s *Source) sweep(now time.Time) {
	for who, e := range s.kept {
		select {
		case <-e.done:
			if !now.Before(e.ends) {
				delete(s.kept, who)
			}
		default:
		}
	}

	if len(s.kept) >= maxKept {
		clear(s.kept)
	}
}

func (s *Source) fill(ctx context.Context, who Identity, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	now := s.now()

	status, err := s.request(ctx, who)
	if err != nil {
		e.err, e.ends = err, now.Add(failurePause)

		return
	}

	// By this process's clock: the API server's may be another.
	life := min(max(status.ExpirationTimestamp.Sub(now), 0), lifetime)
	e.token = status.Token
	e.renew, e.ends = now.Add(life*4/5), now.Add(life*19/20)
}

func (s *Source) request(ctx context.Context, who Identity) (*authenticationv1.TokenRequestStatus, error) {
	account := who

	if who.Own() {
		own, err := s.myself(ctx)
		if err != nil {
			return nil, err
		}

		account.Namespace, account.Name = own.Namespace, own.Name
	}

	seconds := int64(lifetime / time.Second)

	answer, err := s.clients.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{who.Audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cannot get a token of %s: it does not exist", account)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("cannot get a token of %s: the operator may not create serviceaccounts/token there: bind the ClusterRole external-secrets-operator-tokens to it", account)
	case err != nil:
		return nil, fmt.Errorf("cannot get a token of %s: %w", account, err)
	case answer.Status.Token == "":
		return nil, fmt.Errorf("cannot get a token of %s: the API server gave none", account)
	}

	if err := s.harmless(ctx, answer.Status.Token); err != nil {
		return nil, fmt.Errorf("cannot use a token of %s for audience %q: %w", account, who.Audience, err)
	}

	return &answer.Status, nil
}

// errPowerful refuses a token with which a provider could act as the
// ServiceAccount.
var errPowerful = errors.New("the API server accepts it, so that the provider could act as the ServiceAccount: choose another audience")

// harmless proves that a token is of no use at the API server, by trying it
// there.
func (s *Source) harmless(ctx context.Context, token string) error {
	config := rest.CopyConfig(s.config)
	config.BearerToken = token

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	_, err = clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})

	switch {
	case apierrors.IsUnauthorized(err):
		return nil
	case err == nil, apierrors.IsForbidden(err):
		return errPowerful
	default:
		return fmt.Errorf("cannot determine whether the API server accepts it: %w", err)
	}
}

// myself finds the operator's own ServiceAccount.
func (s *Source) myself(ctx context.Context) (Identity, error) {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()

	if own.Name != "" {
		return own, nil
	}

	review, err := s.clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return Identity{}, fmt.Errorf("cannot determine the operator's own ServiceAccount: %w", err)
	}

	user := review.Status.UserInfo.Username

	namespace, name, ok := strings.Cut(strings.TrimPrefix(user, userPrefix), ":")
	if !ok || !strings.HasPrefix(user, userPrefix) {
		return Identity{}, fmt.Errorf("cannot get a token of the operator's own ServiceAccount: the operator runs as user %q, which is none", user)
	}

	own = Identity{Namespace: namespace, Name: name}

	s.mu.Lock()
	s.own = own
	s.mu.Unlock()

	return own, nil
}
