package server

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	kindSecretStore        = "SecretStore"
	kindClusterSecretStore = "ClusterSecretStore"
	kindGenerator          = "Generator"
	kindClusterGenerator   = "ClusterGenerator"
)

// storeKinds are the kinds of object through which a call of a store goes, and
// generatorKinds those of a generator. A generator may also be called for the
// store that its credential is pushed to.
func storeKinds() []string { return []string{kindSecretStore, kindClusterSecretStore} }

func generatorKinds() []string { return append(storeKinds(), kindGenerator, kindClusterGenerator) }

// check refuses a call whose context is incomplete, or whose object is not of one
// of the kinds, or whose combination of namespaces is not allowed: a SecretStore
// never leaves its namespace, and a ClusterSecretStore authenticates in the
// namespace of its config or in that of the object that uses it. The same holds
// for a Generator and a ClusterGenerator. The caller has been authenticated
// before.
func check(c *pb.CallContext, kinds []string) error {
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

	if !slices.Contains(kinds, store.GetKind()) {
		return provider.InvalidRequest("context.store.kind is %q, not %s", store.GetKind(), strings.Join(kinds, " or "))
	}

	source, auth := c.GetSourceNamespace(), c.GetAuthenticationNamespace()

	if store.GetKind() == kindSecretStore || store.GetKind() == kindGenerator {
		own := store.GetNamespace()
		if own == "" || config.GetNamespace() != own || auth != own || (source != "" && source != own) {
			return forbidden("a %s stays in its namespace: its own is %q, the config's %q, the source's %q, and it authenticates in %q", store.GetKind(), own, config.GetNamespace(), source, auth)
		}

		return nil
	}

	if store.GetNamespace() != "" {
		return forbidden("a %s has no namespace, not %q", store.GetKind(), store.GetNamespace())
	}

	if auth != config.GetNamespace() && auth != source {
		return forbidden("a %s authenticates in the namespace of its config, %q, or of the object that uses it, %q, not in %q", store.GetKind(), config.GetNamespace(), source, auth)
	}

	return nil
}

// checkUse is check for a call on behalf of an object, which has a namespace.
// Only Validate has no such object, and may be called before it is known in which
// namespace references resolve.
func checkUse(c *pb.CallContext, kinds []string) error {
	if err := check(c, kinds); err != nil {
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
