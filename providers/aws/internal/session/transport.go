package session

import (
	"bytes"
	"io"
	"net/http"
)

// detached sends a copy of each request's body. The SDK closes the body as soon
// as the response begins; package http, which may not have read the end of the
// body yet, would treat that as a failure and close the connection in the middle
// of the response.
type detached struct{ base http.RoundTripper }

var _ http.RoundTripper = detached{}

// RoundTrip performs a request.
func (d detached) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return d.base.RoundTrip(request)
	}

	body, err := io.ReadAll(request.Body)
	request.Body.Close()

	if err != nil {
		return nil, err
	}

	copied := request.WithContext(request.Context())
	copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	copied.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }

	return d.base.RoundTrip(copied)
}
