package vaultserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	// maxReply is far above what a test writes, in bytes.
	maxReply = 16 << 20

	kv1Mount = "kv1/"
	kv2Mount = "secret/"
)

// Write writes a secret to one of the KV engines, as "vault kv put" does: the
// path is "secret/name" for a new version, or "kv1/name".
func (s *Server) Write(ctx context.Context, path string, data map[string]any) error {
	apiPath, version2, err := kvPath(path, "data/")
	if err == nil {
		if version2 {
			data = map[string]any{"data": data}
		}
		_, err = s.Request(ctx, http.MethodPost, apiPath, data)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Delete deletes a secret that Write has written, with all its versions. A
// secret that is not there is not an error.
func (s *Server) Delete(ctx context.Context, path string) error {
	apiPath, _, err := kvPath(path, "metadata/")
	if err == nil {
		_, err = s.Request(ctx, http.MethodDelete, apiPath, nil)
	}
	if err != nil {
		return fmt.Errorf("cannot delete %s: %w", path, err)
	}
	return nil
}

// kvPath turns the path of a secret into that of the API, where an engine of
// version 2 has a kind of access between its mount and the secret's name.
func kvPath(path, access string) (apiPath string, version2 bool, err error) {
	if name, ok := strings.CutPrefix(path, kv2Mount); ok {
		return kv2Mount + access + name, true, nil
	}
	if strings.HasPrefix(path, kv1Mount) {
		return path, false, nil
	}
	return "", false, fmt.Errorf("there is no KV engine for it; %s and %s have one", kv2Mount, kv1Mount)
}

// Request sends any request of Vault's HTTP API with the root token: the path
// is what follows /v1/, the body is sent as JSON unless it is nil. It returns
// the reply's JSON, nil if that is empty. A status of 400 or more is an error
// that quotes the status and Vault's messages.
func (s *Server) Request(ctx context.Context, method, path string, body any) (map[string]any, error) {
	reply, err := s.request(ctx, method, path, body)
	if err != nil {
		return nil, fmt.Errorf("cannot %s %s: %w", method, path, err)
	}
	return reply, nil
}

func (s *Server) request(ctx context.Context, method, path string, body any) (map[string]any, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.address+"/v1/"+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Vault-Token", s.rootToken)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	encoded, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s%s", response.Status, messages(encoded))
	}
	if len(encoded) == 0 {
		return nil, nil
	}
	var reply map[string]any
	if err := json.Unmarshal(encoded, &reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// messages takes from a refusal what Vault says about it, and nothing else: a
// reply may hold values.
func messages(reply []byte) string {
	var refusal struct {
		Errors []string `json:"errors"`
	}
	if err := json.Unmarshal(reply, &refusal); err != nil || len(refusal.Errors) == 0 {
		return ""
	}
	return ": " + strings.Join(refusal.Errors, "; ")
}
