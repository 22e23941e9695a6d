package kit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// bare makes a call over HTTP/2 without gRPC's client, so that only the provider
// can enforce the deadline. It returns an error if the call has not ended after
// the patience.
func (r *run) bare(ctx context.Context, method string, request proto.Message, deadline, patience time.Duration) (codes.Code, error) {
	message, err := proto.Marshal(request)
	if err != nil {
		return codes.Unknown, fmt.Errorf("cannot encode a request: %w", err)
	}

	// The connection of a call that is cut off is not idle yet when this returns: it
	// is closed as soon as it is.
	transport := &http.Transport{Protocols: &http.Protocols{}, DisableCompression: true, IdleConnTimeout: 100 * time.Millisecond}
	defer transport.CloseIdleConnections()

	address := "https://" + r.target.Address

	if path, unix := strings.CutPrefix(r.target.Address, "unix://"); unix {
		address = "http://localhost"

		transport.Protocols.SetUnencryptedHTTP2(true)
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if r.options.Dial != nil {
				return r.options.Dial(ctx)
			}

			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	} else {
		transport.Protocols.SetHTTP2(true)
		transport.TLSClientConfig = r.clientTLS(*r.certificate)
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // a small message

	call, err := http.NewRequestWithContext(ctx, http.MethodPost, address+method, bytes.NewReader(append(body, message...)))
	if err != nil {
		return codes.Unknown, fmt.Errorf("cannot make a request: %w", err)
	}

	call.Header.Set("Content-Type", "application/grpc")
	call.Header.Set("TE", "trailers")
	call.Header.Set("Grpc-Timeout", strconv.FormatInt(deadline.Milliseconds(), 10)+"m")

	response, err := (&http.Client{Transport: transport}).Do(call)
	if err == nil {
		defer response.Body.Close()

		_, err = io.Copy(io.Discard, response.Body)
	}

	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return codes.Unknown, ctx.Err()
	case err != nil:
		// The provider has ended the stream without a status.
		return codes.Canceled, nil
	}

	for name, values := range response.Trailer {
		r.record.note("the trailer "+name+" of a call past its deadline", strings.Join(values, " "))
	}

	text := response.Trailer.Get("Grpc-Status")
	if text == "" {
		text = response.Header.Get("Grpc-Status")
	}

	code, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return codes.Unknown, nil
	}

	return codes.Code(code), nil
}
