package secretsmanager

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/batch"
	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

const (
	// maxBatch is AWS's maximum number of secrets in a batch.
	maxBatch = 20
	// versionPrefix is the prefix of a version's id; without it a version is a
	// stage.
	versionPrefix = "uuid/"
	currentStage  = "AWSCURRENT"
)

// outcome of reading one secret.
type outcome struct {
	document document.Document
	err      error
}

// Read reads each key and version once, however many of its properties are read,
// and the latest versions of several keys in a batch.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	var keys []string

	for _, read := range reads {
		if read.Version == "" && !read.Metadata && !slices.Contains(keys, read.Key) {
			keys = append(keys, read.Key)
		}
	}

	known := s.latest(ctx, keys)

	return document.Read(ctx, reads, func(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
		if metadata {
			return s.metadata(ctx, key)
		}

		if read, ok := known[key]; ok && version == "" {
			return read.document, read.err
		}

		return s.value(ctx, key, version)
	})
}

// latest reads the latest versions of keys in batches, if AWS allows that. A key
// without an outcome has to be read on its own.
func (s *Store) latest(ctx context.Context, keys []string) map[string]outcome {
	// An ARN may lack its random suffix; the response would not show which key
	// was meant.
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return strings.HasPrefix(s.id(key), "arn:") })
	if len(keys) < 2 || !s.batches.Open() {
		return nil
	}

	return batch.Read(keys, maxBatch, func(some []string) map[string]outcome { return s.batch(ctx, some) })
}

// batch reads at most maxBatch keys.
func (s *Store) batch(ctx context.Context, keys []string) map[string]outcome {
	outcomes := map[string]outcome{}
	ids := make([]string, len(keys))
	byID := map[string]string{}

	for i, key := range keys {
		ids[i] = s.id(key)
		byID[ids[i]] = key
	}

	answer, err := s.client.BatchGetSecretValue(ctx, &secretsmanager.BatchGetSecretValueInput{SecretIdList: ids})
	if err != nil {
		s.batchFailed(ctx, err, keys, outcomes)

		return outcomes
	}

	for _, value := range answer.SecretValues {
		key, asked := byID[aws.ToString(value.Name)]
		if !asked {
			continue
		}

		outcomes[key] = held(key, value.SecretString, value.SecretBinary, value.VersionId)
	}

	for _, failed := range answer.Errors {
		key, asked := byID[aws.ToString(failed.SecretId)]
		if !asked {
			continue
		}

		code, message := aws.ToString(failed.ErrorCode), aws.ToString(failed.Message)

		if scheduled(code, message) {
			outcomes[key] = outcome{err: gone(key)}
		} else {
			outcomes[key] = outcome{err: s.session.Refusal(code, message, reading(key))}
		}
	}

	return outcomes
}

// batchFailed handles the failure of a whole batch. An error that each single
// read would have too is the outcome of each key; after any other error, such as
// that of one invalid key, the keys are read singly.
func (s *Store) batchFailed(ctx context.Context, err error, keys []string, outcomes map[string]outcome) {
	failed := s.session.Error(ctx, err, "read several secrets")

	switch typed := provider.AsError(failed); typed.Code {
	case codes.PermissionDenied:
		s.batches.Shut()
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
	default:
		for _, key := range keys {
			outcomes[key] = outcome{err: failed}
		}
	}
}

// value reads one version of a secret.
func (s *Store) value(ctx context.Context, key, version string) (document.Document, error) {
	in := &secretsmanager.GetSecretValueInput{SecretId: aws.String(s.id(key))}

	id, byID := strings.CutPrefix(version, versionPrefix)

	switch {
	case byID && id == "":
		return document.Document{}, provider.InvalidRequest("secret %q: version %q names no id after %s", key, version, versionPrefix)
	case byID:
		in.VersionId = aws.String(id)
	case version != "":
		in.VersionStage = aws.String(version)
	default:
		in.VersionStage = aws.String(currentStage)
	}

	answer, err := s.client.GetSecretValue(ctx, in)
	if err != nil {
		return document.Document{}, s.readError(ctx, err, key, version)
	}

	got := held(key, answer.SecretString, answer.SecretBinary, answer.VersionId)

	return got.document, got.err
}

func (s *Store) readError(ctx context.Context, err error, key, version string) error {
	var refusal smithy.APIError
	if errors.As(err, &refusal) && scheduled(refusal.ErrorCode(), refusal.ErrorMessage()) {
		return gone(key)
	}

	what := reading(key)
	if version != "" {
		what = "read version \"" + version + "\" of secret \"" + key + "\""
	}

	return s.session.Error(ctx, err, what)
}

func reading(key string) string { return "read secret \"" + key + "\"" }

// held returns the value of a secret, which is a text or binary.
func held(key string, text *string, binary []byte, version *string) outcome {
	raw := binary
	if text != nil {
		raw = []byte(*text)
	}

	if raw == nil {
		return outcome{err: provider.Unavailable("cannot read secret %q: AWS's answer holds no value", key)}
	}

	return outcome{document: document.Document{Raw: raw, Revision: aws.ToString(version)}}
}

// metadata returns the tags of a secret as a JSON object.
func (s *Store) metadata(ctx context.Context, key string) (document.Document, error) {
	described, err := s.describe(ctx, key)
	if err != nil {
		return document.Document{}, err
	}

	if described.DeletedDate != nil {
		return document.Document{}, gone(key)
	}

	text := tags.Document(tagsOf(described.Tags))

	return document.Document{Raw: text, Revision: tags.Revision(text)}, nil
}

func (s *Store) describe(ctx context.Context, key string) (*secretsmanager.DescribeSecretOutput, error) {
	described, err := s.client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: aws.String(s.id(key))})
	if err != nil {
		return nil, s.session.Error(ctx, err, "look at secret \""+key+"\"")
	}

	return described, nil
}

func tagsOf(list []types.Tag) map[string]string {
	values := make(map[string]string, len(list))
	for _, tag := range list {
		values[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}

	return values
}
