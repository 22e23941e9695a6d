package parameterstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/batch"
	"github.com/external-secrets/eso/providers/aws/internal/tags"
)

const (
	// maxBatch is AWS's maximum number of parameters in a batch.
	maxBatch = 10
)

// version is a number or a label.
var version = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,100}$`)

// selection is one version of one parameter.
type selection struct{ key, version string }

// outcome of reading one.
type outcome struct {
	document document.Document
	err      error
}

// Read reads each key and version once, however many of its properties are read,
// and several keys in a batch.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	var selections []selection

	keys := map[string]bool{}

	for _, read := range reads {
		if read.Metadata || keys[read.Key] || (read.Version != "" && !version.MatchString(read.Version)) {
			continue
		}

		// Two versions of one parameter cannot be distinguished in a response.
		keys[read.Key] = true

		selections = append(selections, selection{read.Key, read.Version})
	}

	known := s.several(ctx, selections)

	return document.Read(ctx, reads, func(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
		if metadata {
			return s.metadata(ctx, key)
		}

		if read, ok := known[selection{key, version}]; ok {
			return read.document, read.err
		}

		return s.value(ctx, key, version)
	})
}

// several reads parameters in batches, if AWS allows that. A parameter without an
// outcome has to be read on its own: a batch has the same response for a
// parameter that does not exist and for an invalid name.
func (s *Store) several(ctx context.Context, selections []selection) map[selection]outcome {
	if len(selections) < 2 || !s.batches.Open() {
		return nil
	}

	return batch.Read(selections, maxBatch, func(some []selection) map[selection]outcome { return s.batch(ctx, some) })
}

// batch reads at most maxBatch parameters.
func (s *Store) batch(ctx context.Context, selections []selection) map[selection]outcome {
	outcomes := map[selection]outcome{}
	names := make([]string, len(selections))
	byName := map[string]selection{}

	for i, one := range selections {
		names[i] = s.name(one.key, one.version)
		byName[s.id(one.key)] = one
	}

	answer, err := s.client.GetParameters(ctx, &ssm.GetParametersInput{Names: names, WithDecryption: aws.Bool(true)})
	if err != nil {
		failed := s.session.Error(ctx, err, "read several parameters")

		switch provider.AsError(failed).Code {
		case codes.PermissionDenied:
			s.batches.Shut()
		case codes.InvalidArgument, codes.NotFound:
		default:
			// Each single read would fail in the same way.
			for _, one := range selections {
				outcomes[one] = outcome{err: failed}
			}
		}

		return outcomes
	}

	for _, parameter := range answer.Parameters {
		for _, name := range []*string{parameter.Name, parameter.ARN} {
			one, asked := byName[aws.ToString(name)]
			if asked && name != nil && one.answered(&parameter) {
				outcomes[one] = held(one.key, &parameter)
			}
		}
	}

	return outcomes
}

// answered reports whether a parameter is the requested version.
func (s selection) answered(parameter *types.Parameter) bool {
	selector := strings.TrimPrefix(aws.ToString(parameter.Selector), ":")

	return selector == s.version || (selector == "" && s.version == strconv.FormatInt(parameter.Version, 10))
}

// value reads one version of a parameter.
func (s *Store) value(ctx context.Context, key, selector string) (document.Document, error) {
	if selector != "" && !version.MatchString(selector) {
		return document.Document{}, provider.InvalidRequest("parameter %q: version %q is neither a number nor a label", key, selector)
	}

	parameter, err := s.parameter(ctx, key, selector)
	if err != nil {
		return document.Document{}, err
	}

	got := held(key, parameter)

	return got.document, got.err
}

// parameter reads one version of a parameter.
func (s *Store) parameter(ctx context.Context, key, selector string) (*types.Parameter, error) {
	what := fmt.Sprintf("read parameter %q", key)
	if selector != "" {
		what = fmt.Sprintf("read version %q of parameter %q", selector, key)
	}

	answer, err := s.client.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(s.name(key, selector)), WithDecryption: aws.Bool(true)})
	if err != nil {
		return nil, s.session.Error(ctx, err, what)
	}

	if answer.Parameter == nil {
		return nil, provider.Unavailable("cannot %s: AWS's answer holds no parameter", what)
	}

	return answer.Parameter, nil
}

// name returns AWS's name of one version of a parameter.
func (s *Store) name(key, selector string) string {
	if selector == "" {
		return s.id(key)
	}

	return s.id(key) + ":" + selector
}

// held returns the value of a parameter.
func held(key string, parameter *types.Parameter) outcome {
	if parameter.Value == nil {
		return outcome{err: provider.Unavailable("cannot read parameter %q: AWS's answer holds no value", key)}
	}

	return outcome{document: document.Document{Raw: []byte(*parameter.Value), Revision: revision(parameter.Version, parameter)}}
}

// revision returns the number of a version and the time of its write, because the
// numbers of a parameter that was deleted and created again start over.
func revision(number int64, parameter *types.Parameter) string {
	if parameter == nil || parameter.LastModifiedDate == nil {
		return strconv.FormatInt(number, 10)
	}

	return fmt.Sprintf("%d@%d", number, parameter.LastModifiedDate.UnixMilli())
}

// metadata returns the tags of a parameter as a JSON object.
func (s *Store) metadata(ctx context.Context, key string) (document.Document, error) {
	has, err := s.tagged(ctx, key)
	if err != nil {
		return document.Document{}, err
	}

	text := tags.Document(has)

	return document.Document{Raw: text, Revision: tags.Revision(text)}, nil
}

// tagged returns the tags of a parameter.
func (s *Store) tagged(ctx context.Context, key string) (map[string]string, error) {
	answer, err := s.client.ListTagsForResource(ctx, &ssm.ListTagsForResourceInput{
		ResourceType: types.ResourceTypeForTaggingParameter, ResourceId: aws.String(s.id(key)),
	})

	var absent *types.InvalidResourceId

	switch {
	case errors.As(err, &absent):
		// The name may also be invalid: only a read of the parameter shows that.
		_, err := s.parameter(ctx, key, "")
		if err == nil {
			err = provider.Unavailable("cannot read the tags of parameter %q: AWS knows the parameter, and not its tags", key)
		}

		return nil, err
	case err != nil:
		return nil, s.session.Error(ctx, err, fmt.Sprintf("read the tags of parameter %q", key))
	}

	has := make(map[string]string, len(answer.TagList))
	for _, tag := range answer.TagList {
		has[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}

	return has, nil
}
