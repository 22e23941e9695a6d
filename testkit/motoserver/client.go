package motoserver

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	// callHeader marks requests of Call.
	callHeader = "X-Motoserver-Call"
)

// Account is who calls, and where. moto keeps what it holds apart by region and
// by the account that the access key belongs to.
type Account struct {
	// AccessKeyID; empty stands for one of account 123456789012.
	AccessKeyID string
	// Region of the service.
	Region string
}

// Call performs an operation of Secrets Manager or Parameter Store, such as
// "secretsmanager.CreateSecret" or "AmazonSSM.PutParameter".
func (s *Server) Call(ctx context.Context, account Account, target string, in map[string]any) (map[string]any, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("cannot call %s: %w", target, err)
	}

	service, _, _ := strings.Cut(target, ".")
	if service == "AmazonSSM" {
		service = "ssm"
	}

	answer, err := s.post(ctx, account, service, map[string]string{"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}, text)
	if err != nil {
		return nil, fmt.Errorf("cannot call %s: %w", target, err)
	}

	var out map[string]any
	if len(answer) > 0 {
		if err := json.Unmarshal(answer, &out); err != nil {
			return nil, fmt.Errorf("cannot read the answer to %s: %w", target, err)
		}
	}

	return out, nil
}

// AssumeRole gives the id of an access key of a role's session.
func (s *Server) AssumeRole(ctx context.Context, region, role string) (accessKeyID string, err error) {
	form := url.Values{"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {"test"}}

	answer, err := s.post(ctx, Account{Region: region}, "sts", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, []byte(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("cannot assume %s: %w", role, err)
	}

	var out struct {
		ID string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
	}
	if err := xml.Unmarshal(answer, &out); err != nil || out.ID == "" {
		return "", fmt.Errorf("cannot assume %s: there is no access key in the answer", role)
	}

	return out.ID, nil
}

func (s *Server) post(ctx context.Context, account Account, service string, header map[string]string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.proxy.address+"/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	key := account.AccessKeyID
	if key == "" {
		key = "AKIAIOSFODNN7EXAMPLE"
	}

	request.Header.Set(callHeader, "true")
	request.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/20260101/%s/%s/aws4_request, SignedHeaders=host, Signature=0", key, account.Region, service))

	for name, value := range header {
		request.Header.Set(name, value)
	}

	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, err
	}

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, code(answer))
	}

	return answer, nil
}

// code is all that is reported of a refusal: the rest may hold values.
func code(answer []byte) string {
	var refusal struct {
		Type string `json:"__type"`
	}
	if err := json.Unmarshal(answer, &refusal); err != nil {
		return "no code"
	}

	return refusal.Type
}
