package secretsmanager

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/internal/batch"
	"github.com/external-secrets/eso/providers/aws/internal/session"
)

// probeKey is the key of no secret: reading it shows whether AWS accepts the
// credentials.
const probeKey = "external-secrets/validation"

// Store serves one AWSSecretManager.
type Store struct {
	session  *session.Session
	client   *secretsmanager.Client
	refs     provider.References
	prefix   string
	deletion v2alpha1.SecretsManagerDeletion
	batches  *batch.Gate
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
)

// New returns the store of a config.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.AWSSecretManager) (*Store, error) {
	const longest, shortest = 30, 7

	deletion := config.Spec.SecretsManager
	if days := deletion.RecoveryWindowInDays; days != 0 && (days < shortest || days > longest) {
		return nil, provider.InvalidConfig("spec.secretsManager.recoveryWindowInDays is %d: AWS takes from 7 to 30", days)
	}

	if deletion.ForceDeleteWithoutRecovery && deletion.RecoveryWindowInDays != 0 {
		return nil, provider.InvalidConfig("spec.secretsManager: set one of forceDeleteWithoutRecovery and recoveryWindowInDays")
	}

	s, err := session.New(ctx, env, config, &config.Spec.AWSAccess)
	if err != nil {
		return nil, err
	}

	return &Store{
		session: s, client: secretsmanager.NewFromConfig(s.Config()), refs: env.References,
		prefix: config.Spec.Prefix, deletion: deletion, batches: batch.New(time.Now),
	}, nil
}

// Validate checks that AWS accepts the credentials.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	return s.session.Check(ctx, func(ctx context.Context) error {
		_, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: aws.String(probeKey)})

		return s.session.Error(ctx, err, "reach Secrets Manager")
	})
}

// Close ends the connections.
func (s *Store) Close(context.Context) error {
	s.session.Close()

	return nil
}

// id returns AWS's name of a key.
func (s *Store) id(key string) string { return s.prefix + key }

// scheduled reports whether AWS refuses a call because the secret is scheduled
// for deletion. AWS has no separate code for that.
func scheduled(code, message string) bool {
	return code == "InvalidRequestException" && (strings.Contains(message, "marked for deletion") ||
		strings.Contains(message, "scheduled for deletion") || strings.Contains(message, "marked deleted"))
}

// gone returns the error of a secret that is scheduled for deletion, which cannot
// be read.
func gone(key string) error {
	return provider.NotFound("secret %q was deleted; until its recovery window ends, it can be restored", key)
}
