package session

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
)

const (
	// tokenAudience of tokens that are requested for a ServiceAccount.
	tokenAudience = "sts.amazonaws.com"
	// loginTimeout bounds one step of a login.
	loginTimeout = 30 * time.Second
	// renewBefore is how long before their expiry credentials are renewed at the
	// earliest, if their lifetime is twice as long; AWS issues none for less than
	// 15 minutes.
	renewBefore = 5 * time.Minute
	// renewPause is the time until the next attempt if credentials could not be
	// renewed and are still valid.
	renewPause = 30 * time.Second
	// maxSessionName bounds the name of a role's session.
	maxSessionName = 64
)

// notInSessionName matches characters that AWS does not allow in the name of a
// role's session.
var notInSessionName = regexp.MustCompile(`[^a-zA-Z0-9_+=,.@-]`)

// identity returns the first credentials: those of the config, or nil if the SDK
// has to find those of the process.
func (s *Session) identity(ctx context.Context, env provider.Environment, object metav1.Object, auth *v2alpha1.AWSAuth) (aws.CredentialsProvider, []func(*config.LoadOptions) error, error) {
	switch {
	case auth.SecretRef != nil && auth.JWT != nil:
		return nil, nil, provider.InvalidConfig("spec.auth: set one of secretRef and jwt")
	case auth.SecretRef == nil && auth.JWT == nil:
		if !env.OwnIdentity {
			return nil, nil, provider.OwnIdentityDenied(object.GetNamespace())
		}

		return nil, nil, nil
	}

	var base aws.CredentialsProvider = aws.AnonymousCredentials{}

	if auth.SecretRef != nil {
		key, err := s.accessKey(ctx, env, auth.SecretRef)
		if err != nil {
			return nil, nil, err
		}

		base = credentials.StaticCredentialsProvider{Value: key}
	}

	// This replaces the SDK's own search for credentials.
	return base, []func(*config.LoadOptions) error{config.WithCredentialsProvider(base)}, nil
}

// accessKey resolves the access key that the config names.
func (s *Session) accessKey(ctx context.Context, env provider.Environment, refs *v2alpha1.AWSAuthSecretRef) (aws.Credentials, error) {
	var key aws.Credentials

	for _, part := range []struct {
		field string
		ref   *metav1alpha1.SecretKeySelector
		into  *string
	}{
		{"accessKeyIDSecretRef", &refs.AccessKeyIDSecretRef, &key.AccessKeyID},
		{"secretAccessKeySecretRef", &refs.SecretAccessKeySecretRef, &key.SecretAccessKey},
		{"sessionTokenSecretRef", refs.SessionTokenSecretRef, &key.SessionToken},
	} {
		if part.ref == nil {
			continue
		}

		value, err := env.References.SecretKey(ctx, *part.ref)
		if err != nil {
			return key, err
		}

		trimmed := strings.TrimSpace(string(value))

		switch {
		case trimmed == "":
			return key, provider.InvalidConfig("spec.auth.secretRef.%s: key %q of Secret %q is empty", part.field, part.ref.Key, part.ref.Name)
		case strings.ContainsFunc(trimmed, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
			return key, provider.InvalidConfig("spec.auth.secretRef.%s: key %q of Secret %q is no part of an access key: it holds spaces or what cannot be printed", part.field, part.ref.Key, part.ref.Name)
		}

		*part.into = trimmed
	}

	s.hide("access key", key)

	return key, nil
}

// login returns the chain of credentials: those of the config or the process,
// then those of each role in turn. Each is cached, and renewed before it expires.
func (s *Session) login(env provider.Environment, object metav1.Object, access *v2alpha1.AWSAccess, base aws.CredentialsProvider) {
	name := sessionName(object)

	switch jwt := access.Auth.JWT; {
	case jwt != nil:
		s.step("log in to role "+string(jwt.Role), &webIdentity{
			client: sts.NewFromConfig(s.config), references: env.References, account: jwt.ServiceAccountRef, role: string(jwt.Role), name: name, hide: s.hide,
		})
	case base == nil:
		s.step("use the provider's own identity", s.config.Credentials)
	}

	for _, role := range access.AdditionalRoles {
		s.assume(role, func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = name })
	}

	if access.Role == "" {
		return
	}

	s.assume(access.Role, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = name
		o.TransitiveTagKeys = access.TransitiveTagKeys

		if access.ExternalID != "" {
			o.ExternalID = aws.String(access.ExternalID)
		}

		for _, tag := range access.SessionTags {
			o.Tags = append(o.Tags, types.Tag{Key: aws.String(tag.Key), Value: aws.String(tag.Value)})
		}
	})
}

func (s *Session) assume(role v2alpha1.RoleARN, options func(*stscreds.AssumeRoleOptions)) {
	s.step("assume role "+string(role), stscreds.NewAssumeRoleProvider(sts.NewFromConfig(s.config), string(role), options))
}

// step adds a provider of credentials to the chain.
func (s *Session) step(what string, from aws.CredentialsProvider) {
	s.config.Credentials = aws.NewCredentialsCache(&step{session: s, what: what, from: from, now: time.Now})
}

// step is one step of a login.
type step struct {
	session *Session
	what    string
	from    aws.CredentialsProvider
	now     func() time.Time
	// ends is when the current credentials expire. Its callers are serialised.
	ends time.Time
}

var _ aws.HandleFailRefreshCredentialsCacheStrategy = (*step)(nil)

// Retrieve requests new credentials. It is not called concurrently.
func (l *step) Retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()

	got, err := l.from.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, l.session.loginError(ctx, err, l.what)
	}

	l.session.hide(l.what, got)
	l.ends = got.Expires

	// They are renewed some time before, with jitter, so that not all stores of
	// the provider do it at the same moment.
	if got.CanExpire {
		early := min(renewBefore, got.Expires.Sub(l.now())/2)
		got.Expires = got.Expires.Add(-early/2 - rand.N(max(early/2, 1))) //nolint:gosec // to spread load, not to guard
	}

	return got, nil
}

// HandleFailToRefresh returns credentials that are still valid: AWS may be
// unavailable for a moment.
func (l *step) HandleFailToRefresh(_ context.Context, previous aws.Credentials, err error) (aws.Credentials, error) {
	now := l.now()

	// A refusal is returned: the role may have been revoked.
	if provider.AsError(err).Code == codes.Unauthenticated || !l.ends.After(now) {
		return aws.Credentials{}, err
	}

	previous.Expires = now.Add(renewPause)
	if l.ends.Before(previous.Expires) {
		previous.Expires = l.ends
	}

	return previous, nil
}

// webIdentity exchanges a ServiceAccount's token for credentials of a role.
type webIdentity struct {
	client     *sts.Client
	references provider.References
	account    metav1alpha1.ServiceAccountSelector
	role, name string
	hide       func(string, aws.Credentials)
}

// Retrieve exchanges a new token: those of ServiceAccounts expire after ten
// minutes.
func (w *webIdentity) Retrieve(ctx context.Context) (aws.Credentials, error) {
	token, err := w.references.ServiceAccountToken(ctx, w.account, tokenAudience)
	if err != nil {
		return aws.Credentials{}, err
	}

	w.hide("token of ServiceAccount", aws.Credentials{SessionToken: token})

	got, err := w.client.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: aws.String(w.role), RoleSessionName: aws.String(w.name), WebIdentityToken: aws.String(token),
	})
	if err != nil {
		return aws.Credentials{}, err
	}

	if got.Credentials == nil || got.Credentials.Expiration == nil {
		return aws.Credentials{}, provider.Unavailable("cannot log in to role %s: AWS answered no credentials", w.role)
	}

	return aws.Credentials{
		AccessKeyID: aws.ToString(got.Credentials.AccessKeyId), SecretAccessKey: aws.ToString(got.Credentials.SecretAccessKey),
		SessionToken: aws.ToString(got.Credentials.SessionToken), CanExpire: true, Expires: *got.Credentials.Expiration,
	}, nil
}

// sessionName returns the name that identifies the session in AWS's audit log.
func sessionName(object metav1.Object) string {
	name := notInSessionName.ReplaceAllString("external-secrets@"+object.GetNamespace()+"."+object.GetName(), "-")

	return name[:min(len(name), maxSessionName)]
}

// hide records credentials that must not be in errors.
func (s *Session) hide(from string, got aws.Credentials) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.hidden[from] = got
}
