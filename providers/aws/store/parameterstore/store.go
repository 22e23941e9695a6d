package parameterstore

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/internal/batch"
	"github.com/external-secrets/eso/providers/aws/internal/session"
)

// probeKey is the key of no parameter: reading it shows whether AWS accepts the
// credentials.
const probeKey = "/external-secrets/validation"

// Store serves one AWSParameterStore.
type Store struct {
	session *session.Session
	client  *ssm.Client
	prefix  string
	batches *batch.Gate
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
)

// New returns the store of a config.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.AWSParameterStore) (*Store, error) {
	s, err := session.New(ctx, env, config, &config.Spec.AWSAccess)
	if err != nil {
		return nil, err
	}

	return &Store{session: s, client: ssm.NewFromConfig(s.Config()), prefix: config.Spec.Prefix, batches: batch.New(time.Now)}, nil
}

// Validate checks that AWS accepts the credentials.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	return s.session.Check(ctx, func(ctx context.Context) error {
		_, err := s.client.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(probeKey)})

		return s.session.Error(ctx, err, "reach Parameter Store")
	})
}

// Close ends the connections.
func (s *Store) Close(context.Context) error {
	s.session.Close()

	return nil
}

// id returns AWS's name of a key.
func (s *Store) id(key string) string { return s.prefix + key }
