package server

import (
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// check refuses a call whose context is incomplete, or whose namespaces may
// not stand together: a SecretStore never leaves its namespace, and a
// ClusterSecretStore authenticates in its config's namespace or in that of the
// object it serves. TLS has pinned the caller before.
func check(c *pb.CallContext) error {
	store, config := c.GetStore(), c.GetConfig()

	for _, field := range []struct{ name, value string }{
		{"context.request_id", c.GetRequestId()},
		{"context.store.name", store.GetName()},
		{"context.store.uid", store.GetUid()},
		{"context.config.api_version", config.GetApiVersion()},
		{"context.config.kind", config.GetKind()},
		{"context.config.namespace", config.GetNamespace()},
		{"context.config.name", config.GetName()},
		{"context.config.uid", config.GetUid()},
	} {
		if field.value == "" {
			return provider.InvalidRequest("%s is empty", field.name)
		}
	}

	if retry := c.GetRetry(); retry.GetMaxRetries() < 0 || retry.GetRetryInterval().AsDuration() < 0 {
		return provider.InvalidRequest("context.retry is negative")
	}

	source, auth := c.GetSourceNamespace(), c.GetAuthenticationNamespace()

	switch store.GetKind() {
	case "SecretStore":
		own := store.GetNamespace()
		if own == "" || config.GetNamespace() != own || auth != own || (source != "" && source != own) {
			return forbidden("a SecretStore stays in its namespace: store %q, config %q, source %q, authentication %q", own, config.GetNamespace(), source, auth)
		}
	case "ClusterSecretStore":
		if store.GetNamespace() != "" {
			return forbidden("a ClusterSecretStore has no namespace, not %q", store.GetNamespace())
		}

		if auth != config.GetNamespace() && auth != source {
			return forbidden("a ClusterSecretStore authenticates in the namespace of its config, %q, or of its user, %q, not in %q", config.GetNamespace(), source, auth)
		}
	default:
		return provider.InvalidRequest("context.store.kind is %q, not SecretStore or ClusterSecretStore", store.GetKind())
	}

	return nil
}

// checkUse is check for a call on behalf of an object, which lives in a
// namespace. Only a validation is on nobody's behalf, and may come before it is
// known where references resolve.
func checkUse(c *pb.CallContext) error {
	if err := check(c); err != nil {
		return err
	}

	if c.GetSourceNamespace() == "" {
		return provider.InvalidRequest("context.source_namespace is empty")
	}

	return nil
}

func forbidden(format string, args ...any) error {
	e := provider.AccessDenied(format, args...)
	e.Code, e.Reason, e.StoreScope = codes.PermissionDenied, pb.ReasonReferenceDenied, true

	return e
}
