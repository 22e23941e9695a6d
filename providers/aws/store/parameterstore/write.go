package parameterstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

// maxValue is AWS's maximum size of a parameter of the largest tier, in bytes.
const maxValue = 8192

// Push writes a value to a parameter, or to a property of one.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	set, err := decode(push.Settings)
	if err != nil {
		return provider.Pushed{}, err
	}

	if set.EncodeAsDecoded && push.Property == "" {
		push.Value = decoded(push.Value)
	}

	there, err := s.present(ctx, push.Key)
	if err != nil {
		return provider.Pushed{}, err
	}

	var present []byte
	if there != nil {
		present = []byte(aws.ToString(there.Value))
	}

	if there != nil && push.IfNotExists && (push.Property == "" || document.Has(present, push.Property)) {
		return provider.Pushed{Revision: revision(there.Version, there)}, nil
	}

	if there == nil {
		value, err := wanted(push, nil)
		if err != nil {
			return provider.Pushed{}, err
		}

		return s.put(ctx, push, set, value, nil)
	}

	changed, err := s.marked(ctx, push, set)
	if err != nil {
		return provider.Pushed{}, err
	}

	value, err := wanted(push, present)
	if err != nil {
		return provider.Pushed{}, err
	}

	same := string(value) == string(present) && (set.SecretType == "" || set.SecretType == there.Type)
	if same {
		if same, err = s.described(ctx, push.Key, set); err != nil {
			return provider.Pushed{}, err
		}
	}

	if same {
		return provider.Pushed{Changed: changed, Revision: revision(there.Version, there)}, nil
	}

	return s.put(ctx, push, set, value, there)
}

// present returns a parameter, nil where there is none.
func (s *Store) present(ctx context.Context, key string) (*types.Parameter, error) {
	there, err := s.parameter(ctx, key, "")
	if err != nil && provider.AsError(err).Code == codes.NotFound {
		return nil, nil
	}

	return there, err
}

// marked adds the mark and the tags that a parameter lacks, if the owner may write
// it, and reports whether it added any. AWS sets tags of an existing parameter in a
// request of their own only.
func (s *Store) marked(ctx context.Context, push provider.Push, set settings) (bool, error) {
	has, err := s.tagged(ctx, push.Key)
	if err != nil {
		return false, err
	}

	if err := tags.Owners().Check(fmt.Sprintf("parameter %q", push.Key), ownership.MarkOf(has), push.Owner, push.Adopt); err != nil {
		return false, err
	}

	missing := ownership.Missing(has, tags.Owners().Tags(push.Owner, set.Tags))
	if len(missing) == 0 {
		return false, nil
	}

	_, err = s.client.AddTagsToResource(ctx, &ssm.AddTagsToResourceInput{
		ResourceType: types.ResourceTypeForTaggingParameter, ResourceId: aws.String(s.id(push.Key)), Tags: wire(missing),
	})

	return err == nil, s.session.Error(ctx, err, fmt.Sprintf("tag parameter %q", push.Key))
}

// described reports whether a parameter already has the settings besides its
// value. Without such settings there is no call.
func (s *Store) described(ctx context.Context, key string, set settings) (bool, error) {
	if set.Description == "" && set.KMSKeyID == "" && set.Tier.Type == "" && len(set.Tier.Policies) == 0 {
		return true, nil
	}

	answer, err := s.client.DescribeParameters(ctx, &ssm.DescribeParametersInput{
		ParameterFilters: []types.ParameterStringFilter{{Key: aws.String("Name"), Option: aws.String("Equals"), Values: []string{s.id(key)}}},
	})
	if err != nil {
		return false, s.session.Error(ctx, err, fmt.Sprintf("look at parameter %q", key))
	}

	for _, has := range answer.Parameters {
		if aws.ToString(has.Name) != s.id(key) {
			continue
		}

		return (set.Description == "" || set.Description == aws.ToString(has.Description)) &&
			(set.KMSKeyID == "" || sameKey(set.KMSKeyID, aws.ToString(has.KeyId))) &&
			sameTier(set.Tier.Type, has.Tier) && samePolicies(set.Tier.Policies, has.Policies), nil
	}

	return false, nil
}

// put creates or overwrites a parameter.
func (s *Store) put(ctx context.Context, push provider.Push, set settings, value []byte, there *types.Parameter) (provider.Pushed, error) {
	in := &ssm.PutParameterInput{
		Name: aws.String(s.id(push.Key)), Value: aws.String(string(value)), Type: set.SecretType, Tier: set.Tier.Type,
		Overwrite: aws.Bool(there != nil),
	}

	switch {
	case there == nil:
		in.Tags = wire(tags.Owners().Tags(push.Owner, set.Tags))

		if in.Type == "" {
			in.Type = types.ParameterTypeString
		}
	case in.Type == "":
		in.Type = there.Type
	}

	if set.KMSKeyID != "" {
		in.KeyId = aws.String(set.KMSKeyID)
	}

	if set.Description != "" {
		in.Description = aws.String(set.Description)
	}

	if len(set.Tier.Policies) > 0 {
		in.Policies = aws.String(string(set.Tier.Policies))
	}

	put, err := s.client.PutParameter(ctx, in)
	if err != nil {
		return provider.Pushed{}, s.session.Error(ctx, err, fmt.Sprintf("write parameter %q", push.Key), value, push.Value)
	}

	// The time of the write is part of the revision, and AWS returns it only to
	// reads.
	written, err := s.parameter(ctx, push.Key, "")
	if err != nil || written.Version != put.Version {
		return provider.Pushed{Changed: true}, nil //nolint:nilerr // it is written; a revision is only of use to the next read
	}

	return provider.Pushed{Changed: true, Revision: revision(written.Version, written)}, nil
}

// Delete deletes a parameter, or a property of one.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	there, err := s.present(ctx, deletion.Key)
	if err != nil || there == nil {
		return false, err
	}

	present := []byte(aws.ToString(there.Value))
	if deletion.Property != "" && !document.Has(present, deletion.Property) {
		return false, nil
	}

	has, err := s.tagged(ctx, deletion.Key)
	if err != nil {
		if provider.AsError(err).Code == codes.NotFound {
			return false, nil
		}

		return false, err
	}

	if err := tags.Owners().Check(fmt.Sprintf("parameter %q", deletion.Key), ownership.MarkOf(has), deletion.Owner, false); err != nil {
		return false, err
	}

	if deletion.Property != "" {
		rest, left, err := document.Remove(deletion.Key, present, deletion.Property)
		if err != nil {
			return false, err
		}

		if left {
			_, err := s.put(ctx, provider.Push{Key: deletion.Key, Owner: deletion.Owner}, settings{}, rest, there)

			return err == nil, err
		}
	}

	_, err = s.client.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: aws.String(s.id(deletion.Key))})
	failed := s.session.Error(ctx, err, fmt.Sprintf("delete parameter %q", deletion.Key))

	if failed != nil && provider.AsError(failed).Code == codes.NotFound {
		return false, nil
	}

	return failed == nil, failed
}

// Exists reports whether a parameter, or a property of it, is there.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	there, err := s.present(ctx, key)
	if err != nil || there == nil {
		return false, err
	}

	return property == "" || document.Has([]byte(aws.ToString(there.Value)), property), nil
}

// wanted returns the whole value to write.
func wanted(push provider.Push, present []byte) ([]byte, error) {
	value := push.Value

	if push.Property != "" {
		if present != nil && document.Holds(present, push.Property, push.Value) {
			return present, nil
		}

		var err error
		if value, err = document.Set(push.Key, present, push.Property, push.Value); err != nil {
			return nil, err
		}
	}

	switch {
	case !utf8.Valid(value):
		return nil, provider.InvalidRequest("cannot write parameter %q: the value is not UTF-8, and AWS keeps nothing else in a parameter", push.Key)
	case len(value) == 0:
		return nil, provider.InvalidRequest("cannot write parameter %q: the value is empty, and AWS keeps no empty parameter", push.Key)
	case len(value) > maxValue:
		return nil, provider.InvalidRequest("cannot write parameter %q: the value would have %d bytes, more than AWS's %d", push.Key, len(value), maxValue)
	default:
		return value, nil
	}
}

// sameKey reports whether AWS's name of a KMS key is the requested one, which may
// be the end of an ARN.
func sameKey(asked, has string) bool {
	return asked == has || strings.HasSuffix(has, "/"+asked) || strings.HasSuffix(has, ":"+asked)
}

// sameTier reports whether a parameter is in the tier that is asked for. AWS
// chooses where it is left to do so, and takes none back.
func sameTier(asked, has types.ParameterTier) bool {
	return asked == "" || asked == has || asked == types.ParameterTierIntelligentTiering || has == types.ParameterTierAdvanced
}

// samePolicies reports whether a parameter has the policies that are asked for.
func samePolicies(asked json.RawMessage, has []types.ParameterInlinePolicy) bool {
	if len(asked) == 0 {
		return true
	}

	var list []json.RawMessage
	if json.Unmarshal(asked, &list) != nil || len(list) != len(has) {
		return false
	}

	for i, policy := range list {
		if !document.Equal(policy, []byte(aws.ToString(has[i].PolicyText))) {
			return false
		}
	}

	return true
}

func wire(tagged map[string]string) []types.Tag {
	list := make([]types.Tag, 0, len(tagged))
	for key, value := range tagged {
		list = append(list, types.Tag{Key: aws.String(key), Value: aws.String(value)})
	}

	return list
}
