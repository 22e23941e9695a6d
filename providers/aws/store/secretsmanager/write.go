package secretsmanager

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

// maxValue is AWS's maximum size of a secret, in bytes.
const maxValue = 65536

// Push writes a value to a secret, or to a property of one. A secret that is
// scheduled for deletion counts as absent; it is restored first if the owner may
// write it.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	set, err := decode(push.Settings)
	if err != nil {
		return provider.Pushed{}, err
	}

	described, err := s.describe(ctx, push.Key)
	if provider.AsError(orUnknown(err)).Code == codes.NotFound {
		return s.create(ctx, push, set)
	}

	if err != nil {
		return provider.Pushed{}, err
	}

	return s.update(ctx, push, set, described)
}

// orUnknown returns an error with the code Unknown for nil, for AsError.
func orUnknown(err error) error {
	if err == nil {
		return &provider.Error{Code: codes.Unknown}
	}

	return err
}

// create creates a secret.
func (s *Store) create(ctx context.Context, push provider.Push, set settings) (provider.Pushed, error) {
	value, err := wanted(push, nil)
	if err != nil {
		return provider.Pushed{}, err
	}

	in := &secretsmanager.CreateSecretInput{Name: aws.String(s.id(push.Key)), Tags: wire(tags.Owners().Tags(push.Owner, set.Tags))}

	if in.SecretString, in.SecretBinary, err = formatted(push.Key, value, set.SecretPushFormat, formatBinary); err != nil {
		return provider.Pushed{}, err
	}

	if set.Description != "" {
		in.Description = aws.String(set.Description)
	}

	if set.KMSKeyID != "" {
		in.KmsKeyId = aws.String(set.KMSKeyID)
	}

	for _, location := range set.ReplicationLocations {
		in.AddReplicaRegions = append(in.AddReplicaRegions, location.wire())
	}

	// The token, with which AWS recognises a repeated request, is a random one of
	// the SDK's: a secret that is deleted and created again must not have an old
	// revision.
	made, err := s.client.CreateSecret(ctx, in)
	if err != nil {
		return provider.Pushed{}, s.session.Error(ctx, err, "create secret \""+push.Key+"\"", value, push.Value)
	}

	if _, err := s.policy(ctx, push.Key, set.ResourcePolicy); err != nil {
		return provider.Pushed{}, err
	}

	return provider.Pushed{Changed: true, Revision: aws.ToString(made.VersionId)}, nil
}

// update writes an existing secret.
func (s *Store) update(ctx context.Context, push provider.Push, set settings, described *secretsmanager.DescribeSecretOutput) (provider.Pushed, error) {
	deleted := described.DeletedDate != nil

	var (
		held  *secretsmanager.GetSecretValueOutput
		value []byte
		err   error
	)

	if !deleted {
		if held, value, err = s.current(ctx, push.Key); err != nil {
			return provider.Pushed{}, err
		}

		if push.IfNotExists && (push.Property == "" || document.Has(value, push.Property)) {
			return provider.Pushed{Revision: revision(held)}, nil
		}
	}

	has := tagsOf(described.Tags)
	if err := tags.Owners().Check(fmt.Sprintf("secret %q", push.Key), ownership.MarkOf(has), push.Owner, push.Adopt); err != nil {
		return provider.Pushed{}, err
	}

	if deleted {
		if _, err := s.client.RestoreSecret(ctx, &secretsmanager.RestoreSecretInput{SecretId: described.ARN}); err != nil {
			return provider.Pushed{}, s.session.Error(ctx, err, "restore secret \""+push.Key+"\", which is scheduled for deletion,")
		}

		if held, value, err = s.current(ctx, push.Key); err != nil {
			return provider.Pushed{}, err
		}
	}

	// The mark is written first, so that a push that was interrupted can be
	// repeated.
	changed, err := s.describedAs(ctx, push, set, described, has)
	if err != nil {
		return provider.Pushed{}, err
	}

	want, err := wanted(push, value)
	if err != nil {
		return provider.Pushed{}, err
	}

	pushed := provider.Pushed{Changed: changed || deleted, Revision: revision(held)}

	if held == nil || !bytes.Equal(value, want) || misformatted(held, set.SecretPushFormat) {
		if pushed.Revision, err = s.put(ctx, push.Key, described, held, want, set.SecretPushFormat); err != nil {
			return provider.Pushed{}, err
		}

		pushed.Changed = true
	}

	return pushed, nil
}

// describedAs writes all settings of a secret besides its value, and reports
// whether it changed any.
func (s *Store) describedAs(ctx context.Context, push provider.Push, set settings, described *secretsmanager.DescribeSecretOutput, has map[string]string) (changed bool, err error) {
	if missing := ownership.Missing(has, tags.Owners().Tags(push.Owner, set.Tags)); len(missing) > 0 {
		if _, err := s.client.TagResource(ctx, &secretsmanager.TagResourceInput{SecretId: described.ARN, Tags: wire(missing)}); err != nil {
			return false, s.session.Error(ctx, err, "tag secret \""+push.Key+"\"")
		}

		changed = true
	}

	description := set.Description != "" && set.Description != aws.ToString(described.Description)
	key := set.KMSKeyID != "" && !sameKey(set.KMSKeyID, aws.ToString(described.KmsKeyId))

	if description || key {
		in := &secretsmanager.UpdateSecretInput{SecretId: described.ARN, Description: described.Description}
		if description {
			in.Description = aws.String(set.Description)
		}

		if key {
			in.KmsKeyId = aws.String(set.KMSKeyID)
		}

		if _, err := s.client.UpdateSecret(ctx, in); err != nil {
			return false, s.session.Error(ctx, err, "update secret \""+push.Key+"\"")
		}

		changed = true
	}

	var missing []types.ReplicaRegionType

	for _, location := range set.ReplicationLocations {
		if !replicated(described.ReplicationStatus, location.Region) {
			missing = append(missing, location.wire())
		}
	}

	if len(missing) > 0 {
		if _, err := s.client.ReplicateSecretToRegions(ctx, &secretsmanager.ReplicateSecretToRegionsInput{SecretId: described.ARN, AddReplicaRegions: missing}); err != nil {
			return false, s.session.Error(ctx, err, "replicate secret \""+push.Key+"\"")
		}

		changed = true
	}

	set2, err := s.policy(ctx, push.Key, set.ResourcePolicy)

	return changed || set2, err
}

// policy sets the resource policy of a secret if it differs, and reports whether
// it did.
func (s *Store) policy(ctx context.Context, key string, wanted *resourcePolicy) (changed bool, err error) {
	if wanted == nil {
		return false, nil
	}

	text, err := s.policyText(ctx, wanted.PolicySourceRef)
	if err != nil {
		return false, err
	}

	id := aws.String(s.id(key))

	there, err := s.client.GetResourcePolicy(ctx, &secretsmanager.GetResourcePolicyInput{SecretId: id})
	if err != nil {
		return false, s.session.Error(ctx, err, "read the resource policy of secret \""+key+"\"")
	}

	if there.ResourcePolicy != nil && document.Equal([]byte(*there.ResourcePolicy), text) {
		return false, nil
	}

	block := wanted.BlockPublicPolicy == nil || *wanted.BlockPublicPolicy

	if _, err := s.client.PutResourcePolicy(ctx, &secretsmanager.PutResourcePolicyInput{
		SecretId: id, ResourcePolicy: aws.String(string(text)), BlockPublicPolicy: aws.Bool(block),
	}); err != nil {
		return false, s.session.Error(ctx, err, "set the resource policy of secret \""+key+"\"", text)
	}

	return true, nil
}

// policyText reads a policy from its object.
func (s *Store) policyText(ctx context.Context, source policySource) ([]byte, error) {
	if source.Kind == "Secret" {
		return s.refs.SecretKey(ctx, metav1alpha1.SecretKeySelector{Name: source.Name, Key: source.Key})
	}

	// CABundle reads any key of a ConfigMap.
	return s.refs.CABundle(ctx, metav1alpha1.CASource{ConfigMapRef: &metav1alpha1.ConfigMapKeySelector{Name: source.Name, Key: source.Key}})
}

// put writes a new version of a secret.
func (s *Store) put(ctx context.Context, key string, described *secretsmanager.DescribeSecretOutput, held *secretsmanager.GetSecretValueOutput, value []byte, format string) (string, error) {
	otherwise := formatBinary
	if held != nil && held.SecretString != nil {
		otherwise = formatText
	}

	in := &secretsmanager.PutSecretValueInput{SecretId: described.ARN, ClientRequestToken: aws.String(token(described, held))}

	var err error
	if in.SecretString, in.SecretBinary, err = formatted(key, value, format, otherwise); err != nil {
		return "", err
	}

	put, err := s.client.PutSecretValue(ctx, in)
	if err != nil {
		return "", s.session.Error(ctx, err, "write secret \""+key+"\"", value)
	}

	return aws.ToString(put.VersionId), nil
}

// token returns the id of the version that follows the current one, so that AWS
// recognises a repeated request, and refuses the later of two concurrent writers.
// It does not depend on the value, because tokens are not secret. An id that
// exists already, because the secret was reverted to an earlier version, is
// skipped.
func token(described *secretsmanager.DescribeSecretOutput, held *secretsmanager.GetSecretValueOutput) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", aws.ToString(described.ARN), revision(held), n))
		name := fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])

		if _, there := described.VersionIdsToStages[name]; !there {
			return name
		}
	}
}

// current returns the latest version, nil where the secret has none yet.
func (s *Store) current(ctx context.Context, key string) (*secretsmanager.GetSecretValueOutput, []byte, error) {
	held, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String(s.id(key)), VersionStage: aws.String(currentStage)})

	var absent *types.ResourceNotFoundException

	switch {
	case errors.As(err, &absent):
		return nil, nil, nil
	case err != nil:
		return nil, nil, s.readError(ctx, err, key, "")
	case held.SecretString != nil:
		return held, []byte(*held.SecretString), nil
	default:
		return held, held.SecretBinary, nil
	}
}

// Delete deletes a secret, or a property of one.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	described, err := s.describe(ctx, deletion.Key)

	switch {
	case err != nil && provider.AsError(err).Code == codes.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case described.DeletedDate != nil:
		return false, nil
	}

	has := tagsOf(described.Tags)

	if deletion.Property == "" {
		if err := tags.Owners().Check(fmt.Sprintf("secret %q", deletion.Key), ownership.MarkOf(has), deletion.Owner, false); err != nil {
			return false, err
		}

		return true, s.remove(ctx, deletion.Key, described)
	}

	held, value, err := s.current(ctx, deletion.Key)
	if err != nil || !document.Has(value, deletion.Property) {
		return false, err
	}

	if err := tags.Owners().Check(fmt.Sprintf("secret %q", deletion.Key), ownership.MarkOf(has), deletion.Owner, false); err != nil {
		return false, err
	}

	rest, left, err := document.Remove(deletion.Key, value, deletion.Property)
	if err != nil {
		return false, err
	}

	if !left {
		return true, s.remove(ctx, deletion.Key, described)
	}

	_, err = s.put(ctx, deletion.Key, described, held, rest, "")

	return err == nil, err
}

// remove deletes a whole secret, as the config says.
func (s *Store) remove(ctx context.Context, key string, described *secretsmanager.DescribeSecretOutput) error {
	// AWS does not delete a secret with replicas.
	var regions []string
	for _, copied := range described.ReplicationStatus {
		regions = append(regions, aws.ToString(copied.Region))
	}

	if len(regions) > 0 {
		if _, err := s.client.RemoveRegionsFromReplication(ctx, &secretsmanager.RemoveRegionsFromReplicationInput{SecretId: described.ARN, RemoveReplicaRegions: regions}); err != nil {
			return s.session.Error(ctx, err, "delete the copies of secret \""+key+"\"")
		}
	}

	in := &secretsmanager.DeleteSecretInput{SecretId: described.ARN}

	switch {
	case s.deletion.ForceDeleteWithoutRecovery:
		in.ForceDeleteWithoutRecovery = aws.Bool(true)
	case s.deletion.RecoveryWindowInDays != 0:
		in.RecoveryWindowInDays = aws.Int64(s.deletion.RecoveryWindowInDays)
	}

	_, err := s.client.DeleteSecret(ctx, in)

	return s.session.Error(ctx, err, "delete secret \""+key+"\"")
}

// Exists reports whether a secret, or a property of it, is there. One that is
// scheduled for deletion is not.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	described, err := s.describe(ctx, key)

	switch {
	case err != nil && provider.AsError(err).Code == codes.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case described.DeletedDate != nil:
		return false, nil
	case property == "":
		return true, nil
	}

	_, value, err := s.current(ctx, key)

	return err == nil && document.Has(value, property), err
}

// wanted returns the whole value to write.
func wanted(push provider.Push, held []byte) ([]byte, error) {
	value := push.Value

	if push.Property != "" {
		if held != nil && document.Holds(held, push.Property, push.Value) {
			return held, nil
		}

		var err error
		if value, err = document.Set(push.Key, held, push.Property, push.Value); err != nil {
			return nil, err
		}
	}

	switch {
	case len(value) == 0:
		return nil, provider.InvalidRequest("cannot write secret %q: the value is empty, and AWS keeps no empty secret", push.Key)
	case len(value) > maxValue:
		return nil, provider.InvalidRequest("cannot write secret %q: the value would have %d bytes, more than AWS's %d", push.Key, len(value), maxValue)
	default:
		return value, nil
	}
}

// formatted returns a value in the requested format.
func formatted(key string, value []byte, format, otherwise string) (text *string, binary []byte, err error) {
	if format == "" {
		// A value that is no text has to be binary.
		if format = otherwise; !utf8.Valid(value) {
			format = formatBinary
		}
	}

	switch {
	case format == formatBinary:
		return nil, value, nil
	case !utf8.Valid(value):
		return nil, nil, provider.InvalidRequest("cannot write secret %q as text: the value is not UTF-8; set secretPushFormat to binary", key)
	default:
		return aws.String(string(value)), nil, nil
	}
}

// misformatted reports whether a secret does not have the requested format.
func misformatted(held *secretsmanager.GetSecretValueOutput, format string) bool {
	return (format == formatText && held.SecretString == nil) || (format == formatBinary && held.SecretString != nil)
}

func revision(held *secretsmanager.GetSecretValueOutput) string {
	if held == nil {
		return ""
	}

	return aws.ToString(held.VersionId)
}

// sameKey reports whether AWS's name of a KMS key is the requested one, which may
// be the end of an ARN.
func sameKey(asked, has string) bool {
	return asked == has || strings.HasSuffix(has, "/"+asked) || strings.HasSuffix(has, ":"+asked)
}

func replicated(status []types.ReplicationStatusType, region string) bool {
	for _, copied := range status {
		if aws.ToString(copied.Region) == region {
			return true
		}
	}

	return false
}

func (r replica) wire() types.ReplicaRegionType {
	region := types.ReplicaRegionType{Region: aws.String(r.Region)}
	if r.KMSKeyID != "" {
		region.KmsKeyId = aws.String(r.KMSKeyID)
	}

	return region
}

func wire(tagged map[string]string) []types.Tag {
	list := make([]types.Tag, 0, len(tagged))
	for key, value := range tagged {
		list = append(list, types.Tag{Key: aws.String(key), Value: aws.String(value)})
	}

	return list
}
