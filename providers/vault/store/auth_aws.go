package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	// awsAudience of tokens that AWS accepts.
	awsAudience = "sts.amazonaws.com"
	// identityBody is the body of a GetCallerIdentity request.
	identityBody = "Action=GetCallerIdentity&Version=2011-06-15"
	// identityDigest is the SHA-256 of identityBody, in hexadecimal.
	identityDigest = "ab821ae955788b0e33ebd34c208442ccfc2d406e2edc5e7a39bd6458fbb4f843"
	// sessionName of roles that are assumed.
	sessionName = "external-secrets-provider-vault"
)

// iam returns the login of Vault's AWS method: a signed request of AWS, which Vault
// performs to identify the signer.
func (c credentials) iam(ctx context.Context, method *v2alpha1.VaultIAMAuth) (attempt, error) {
	region := method.Region
	if region == "" {
		region = "us-east-1"
	}

	identity, err := c.awsIdentity(ctx, method, region)
	if err != nil {
		return attempt{}, err
	}

	keys, err := identity.Retrieve(ctx)
	if err != nil {
		return attempt{}, awsError(err)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+stsHost(method.Region)+"/", strings.NewReader(identityBody))
	if err != nil {
		return attempt{}, provider.InvalidConfig("spec.auth.iam.region: %v", err)
	}

	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")

	if method.VaultAWSIAMServerID != "" {
		request.Header.Set("X-Vault-Aws-Iam-Server-Id", method.VaultAWSIAMServerID)
	}

	if err := signer.NewSigner().SignHTTP(ctx, keys, request, identityDigest, "sts", region, time.Now()); err != nil {
		return attempt{}, provider.InvalidConfig("spec.auth.iam: cannot sign the request that proves the identity")
	}

	headers, err := json.Marshal(request.Header)
	if err != nil {
		return attempt{}, provider.InvalidConfig("spec.auth.iam: cannot encode the request that proves the identity")
	}

	encode := base64.StdEncoding.EncodeToString

	return to(method.Path, "aws", "login", method.VaultRole, map[string]any{
		"role":                    method.VaultRole,
		"iam_http_request_method": http.MethodPost,
		"iam_request_url":         encode([]byte(request.URL.String())),
		"iam_request_body":        encode([]byte(identityBody)),
		"iam_request_headers":     encode(headers),
	})
}

// stsHost returns the host of AWS STS in a region.
func stsHost(region string) string {
	switch {
	case region == "":
		return "sts.amazonaws.com"
	case strings.HasPrefix(region, "cn-"):
		return "sts." + region + ".amazonaws.com.cn"
	default:
		return "sts." + region + ".amazonaws.com"
	}
}

// awsIdentity returns the credentials of the identity to log in as, with the role
// assumed.
func (c credentials) awsIdentity(ctx context.Context, method *v2alpha1.VaultIAMAuth, region string) (aws.CredentialsProvider, error) {
	settings := aws.Config{Region: region}

	switch {
	case method.JWT != nil:
		token := &accountToken{ctx: ctx, credentials: c, method: method.JWT}
		assume := func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = sessionName }

		return stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(settings), method.Role, token, assume), nil
	case method.SecretRef != nil:
		keys, err := c.awsKeys(ctx, method.SecretRef)
		if err != nil {
			return nil, err
		}

		settings.Credentials = keys
	case c.own:
		var err error
		if settings, err = config.LoadDefaultConfig(ctx, config.WithRegion(region)); err != nil {
			return nil, provider.InvalidConfig("spec.auth.iam: cannot find the provider's own identity in AWS: %v", err)
		}
	default:
		return nil, provider.OwnIdentityDenied(c.namespace)
	}

	if method.Role == "" {
		return settings.Credentials, nil
	}

	return stscreds.NewAssumeRoleProvider(sts.NewFromConfig(settings), method.Role, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = sessionName
		if method.ExternalID != "" {
			o.ExternalID = aws.String(method.ExternalID)
		}
	}), nil
}

func (c credentials) awsKeys(ctx context.Context, refs *v2alpha1.VaultAWSKeys) (aws.CredentialsProvider, error) {
	id, err := c.text(ctx, "spec.auth.iam.secretRef.accessKeyIDSecretRef", refs.AccessKeyIDSecretRef)
	if err != nil {
		return nil, err
	}

	key, err := c.text(ctx, "spec.auth.iam.secretRef.secretAccessKeySecretRef", refs.SecretAccessKeySecretRef)
	if err != nil {
		return nil, err
	}

	session := ""

	if refs.SessionTokenSecretRef != nil {
		if session, err = c.text(ctx, "spec.auth.iam.secretRef.sessionTokenSecretRef", *refs.SessionTokenSecretRef); err != nil {
			return nil, err
		}
	}

	return awscredentials.NewStaticCredentialsProvider(id, key, session), nil
}

// accountToken returns a ServiceAccount's token to the library, whose interface has no
// context.
type accountToken struct {
	ctx         context.Context //nolint:containedctx // it lives as long as one login
	credentials credentials
	method      *v2alpha1.VaultAWSToken
}

// GetIdentityToken requests a token.
func (t *accountToken) GetIdentityToken() ([]byte, error) {
	token, err := t.credentials.references.ServiceAccountToken(t.ctx, t.method.ServiceAccountRef, awsAudience)

	return []byte(token), err
}

// awsError returns the error of a request for an identity. AWS's message contains
// accounts and roles, and no credential.
func awsError(err error) error {
	var (
		typed   *provider.Error
		refusal smithy.APIError
	)

	switch {
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refusal) && refusal.ErrorFault() == smithy.FaultClient:
		return provider.Unauthenticated("cannot log in with spec.auth.iam: AWS refuses: %s: %s", refusal.ErrorCode(), brief([]string{refusal.ErrorMessage()}))
	default:
		return provider.Unavailable("cannot log in with spec.auth.iam: AWS gives no credentials: %s", brief([]string{err.Error()}))
	}
}
