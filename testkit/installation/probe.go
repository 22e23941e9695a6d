package installation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// probe asks /readyz, as a kubelet would.
func probe(ctx context.Context, port int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port))+"/readyz", nil)
	if err != nil {
		return err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}

	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}

	return nil
}
