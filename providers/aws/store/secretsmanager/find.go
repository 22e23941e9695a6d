package secretsmanager

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/batch"
)

const (
	// maxNames bounds the secrets that one search lists, matching or not.
	maxNames = 100_000
	// pageSize is AWS's maximum page size.
	pageSize = 100
	// maxFilters is AWS's maximum number of filters.
	maxFilters = 10
	// maxFound bounds the values of one search in memory.
	maxFound = maxBatch * batch.InFlight
)

// filterable matches texts that AWS accepts in a filter. Others are compared here
// only, as are those that begin with !, which is a negation in AWS's filters.
var filterable = regexp.MustCompile(`^[a-zA-Z0-9 :_@/+=.-][a-zA-Z0-9 :_@/+=.!-]{0,511}$`)

// Find lists the secrets whose names begin with the path, and reads those that
// match. A secret that may not be read fails the search: left out, it would seem
// to be deleted.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	keys, err := s.list(ctx, query)
	if err != nil {
		return err
	}

	for part := range slices.Chunk(keys, maxFound) {
		if err := s.report(ctx, part, found); err != nil {
			return err
		}
	}

	return nil
}

// report reads secrets and reports them.
func (s *Store) report(ctx context.Context, keys []string, found func(provider.Found) error) error {
	known := s.latest(ctx, keys)

	reads := make([]provider.Read, len(keys))
	for i, key := range keys {
		reads[i] = provider.Read{Key: key}
	}

	results := document.Read(ctx, reads, func(ctx context.Context, key, version string, _ bool) (document.Document, error) {
		if read, ok := known[key]; ok {
			return read.document, read.err
		}

		return s.value(ctx, key, version)
	})

	for i, result := range results {
		if result.Err != nil {
			// It was deleted after it was listed, or has no value.
			if provider.AsError(result.Err).Code == codes.NotFound {
				continue
			}

			return result.Err
		}

		if err := found(provider.Found{Key: keys[i], Value: result.Value}); err != nil {
			return err
		}
	}

	return nil
}

// list returns the keys that match, each once.
func (s *Store) list(ctx context.Context, query provider.Query) ([]string, error) {
	path := s.prefix
	if query.Path != nil {
		path += *query.Path
	}

	in := &secretsmanager.ListSecretsInput{Filters: filters(path, query.Tags), MaxResults: aws.Int32(pageSize)}
	seen, keys := map[string]bool{}, []string(nil)

	for {
		page, err := s.client.ListSecrets(ctx, in)
		if err != nil {
			return nil, s.session.Error(ctx, err, "list secrets")
		}

		for _, entry := range page.SecretList {
			name := aws.ToString(entry.Name)
			if name == "" || seen[name] {
				continue
			}

			seen[name] = true
			key := strings.TrimPrefix(name, s.prefix)

			if strings.HasPrefix(name, path) && key != "" && entry.DeletedDate == nil && query.Matches(key, tagsOf(entry.Tags)) {
				keys = append(keys, key)
			}
		}

		next := aws.ToString(page.NextToken)

		switch {
		case next == "":
			return keys, nil
		case next == aws.ToString(in.NextToken):
			return nil, provider.Unavailable("cannot list secrets: AWS repeats a page")
		case len(seen) > maxNames:
			return nil, &provider.Error{
				Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge,
				Message: "there are more than 100000 secrets to look at: narrow find by path or tags",
			}
		}

		in.NextToken = aws.String(next)
	}
}

// filters returns AWS's filters of a query, which match beginnings of words. The
// secrets that AWS lists are therefore compared again.
func filters(path string, tags map[string]string) []types.Filter {
	var filters []types.Filter

	add := func(key types.FilterNameStringType, value string) {
		if filterable.MatchString(value) && len(filters) < maxFilters {
			filters = append(filters, types.Filter{Key: key, Values: []string{value}})
		}
	}

	add(types.FilterNameStringTypeName, path)

	for key, value := range tags {
		add(types.FilterNameStringTypeTagKey, key)
		add(types.FilterNameStringTypeTagValue, value)
	}

	return filters
}
