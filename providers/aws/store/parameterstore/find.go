package parameterstore

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/internal/batch"
)

const (
	// maxNames bounds the parameters that one search lists, matching or not.
	maxNames = 100_000
	// pathPage and listPage are AWS's maximum page sizes.
	pathPage = 10
	listPage = 50
	// maxFound bounds the values of one search in memory.
	maxFound = maxBatch * batch.InFlight
)

// Find returns the parameters below a path of the hierarchy, or those that are
// listed. A parameter that may not be read fails the search: left out, it would
// seem to be deleted.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	path := s.prefix
	if query.Path != nil {
		path += *query.Path
	}

	w := &walk{store: s, query: query, found: found, seen: map[string]bool{}}

	if len(query.Tags) == 0 && strings.HasPrefix(path, "/") && (query.Path != nil || strings.HasSuffix(path, "/")) {
		return w.below(ctx, path)
	}

	return w.listed(ctx, path)
}

// walk is one search.
type walk struct {
	store *Store
	query provider.Query
	found func(provider.Found) error
	seen  map[string]bool
}

// wanted reports whether a name matches and was not found before, and returns its
// key.
func (w *walk) wanted(name *string) (key string, ok bool, err error) {
	if w.seen[aws.ToString(name)] {
		return "", false, nil
	}

	w.seen[aws.ToString(name)] = true

	if len(w.seen) > maxNames {
		return "", false, &provider.Error{
			Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge,
			Message: "there are more than 100000 parameters to look at: narrow find by path or tags",
		}
	}

	key, below := strings.CutPrefix(aws.ToString(name), w.store.prefix)

	return key, below && key != "" && w.query.Matches(key, w.query.Tags), nil
}

// below reads the parameters below a path of the hierarchy.
func (w *walk) below(ctx context.Context, path string) error {
	if len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}

	if path == "" {
		path = "/"
	}

	in := &ssm.GetParametersByPathInput{Path: aws.String(path), Recursive: aws.Bool(true), WithDecryption: aws.Bool(true), MaxResults: aws.Int32(pathPage)}

	for {
		page, err := w.store.client.GetParametersByPath(ctx, in)
		if err != nil {
			return w.store.session.Error(ctx, err, "read the parameters below \""+path+"\"")
		}

		for _, parameter := range page.Parameters {
			key, ok, err := w.wanted(parameter.Name)
			if err != nil {
				return err
			}

			if !ok {
				continue
			}

			got := held(key, &parameter)
			if got.err != nil {
				return got.err
			}

			if err := w.found(provider.Found{Key: key, Value: got.document.Raw}); err != nil {
				return err
			}
		}

		next := aws.ToString(page.NextToken)
		if next == "" {
			return nil
		}

		if next == aws.ToString(in.NextToken) {
			return provider.Unavailable("cannot read the parameters below %q: AWS repeats a page", path)
		}

		in.NextToken = aws.String(next)
	}
}

// listed lists the parameters whose names begin with the path and that have the
// tags, and reads them.
func (w *walk) listed(ctx context.Context, path string) error {
	in := &ssm.DescribeParametersInput{ParameterFilters: filters(path, w.query), MaxResults: aws.Int32(listPage)}

	for {
		page, err := w.store.client.DescribeParameters(ctx, in)
		if err != nil {
			return w.store.session.Error(ctx, err, "list parameters")
		}

		var keys []string

		for _, entry := range page.Parameters {
			key, ok, err := w.wanted(entry.Name)
			if err != nil {
				return err
			}

			if ok && within(aws.ToString(entry.Name), path, w.query.Path != nil) {
				keys = append(keys, key)
			}
		}

		if err := w.report(ctx, keys); err != nil {
			return err
		}

		next := aws.ToString(page.NextToken)
		if next == "" {
			return nil
		}

		if next == aws.ToString(in.NextToken) {
			return provider.Unavailable("cannot list parameters: AWS repeats a page")
		}

		in.NextToken = aws.String(next)
	}
}

// report reads parameters and reports them.
func (w *walk) report(ctx context.Context, keys []string) error {
	for part := range slices.Chunk(keys, maxFound) {
		reads := make([]provider.Read, len(part))
		for i, key := range part {
			reads[i] = provider.Read{Key: key}
		}

		for i, result := range w.store.Read(ctx, reads) {
			if result.Err != nil {
				// It was deleted after it was listed.
				if provider.AsError(result.Err).Code == codes.NotFound {
					continue
				}

				return result.Err
			}

			if err := w.found(provider.Found{Key: part[i], Value: result.Value}); err != nil {
				return err
			}
		}
	}

	return nil
}

// within reports whether a name is below a path of the hierarchy, or, where it is
// none, begins with it.
func within(name, path string, hierarchy bool) bool {
	if hierarchy && strings.HasPrefix(path, "/") {
		path = strings.TrimRight(path, "/") + "/"
	}

	return strings.HasPrefix(name, path)
}

// filters returns AWS's filters of a query.
func filters(path string, query provider.Query) []types.ParameterStringFilter {
	var filters []types.ParameterStringFilter

	if path != "" && path != "/" {
		filters = append(filters, types.ParameterStringFilter{Key: aws.String("Name"), Option: aws.String("BeginsWith"), Values: []string{path}})
	}

	for key, value := range query.Tags {
		filter := types.ParameterStringFilter{Key: aws.String("tag:" + key), Option: aws.String("Equals"), Values: []string{value}}
		filters = append(filters, filter)
	}

	return filters
}
