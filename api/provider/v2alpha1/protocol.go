// Package providerv2alpha1 is the protocol between the operator and providers:
// the Go code of provider.proto, and the names that both sides use in it.
package providerv2alpha1

// ProtocolVersion is the protocol version of this package, as in the response of
// GetInfo.
const ProtocolVersion = "v2alpha1"

// ErrorDomain is the domain of every google.rpc.ErrorInfo of the protocol.
const ErrorDomain = "externalsecrets.provider"

// MetadataScope is the key in ErrorInfo's metadata of an error's scope: ScopeStore
// or ScopeItem.
const MetadataScope = "scope"

// Scopes of an error.
const (
	// ScopeStore concerns every call through the same store.
	ScopeStore = "store"
	// ScopeItem concerns one secret.
	ScopeItem = "item"
)

// TokenMetadata is the gRPC metadata that carries a caller's token, which is a
// ServiceAccount's and is verified by TokenReview for the provider's own
// audience: TokenScheme and the token. It travels over TLS only.
const (
	TokenMetadata = "authorization"
	TokenScheme   = "Bearer "
)

// OperatorIdentity is the URI name in the certificate that the operator issues
// to itself; by default the only caller that a provider accepts.
const OperatorIdentity = "spiffe://external-secrets.io/operator"

// ProviderIdentityPrefix is followed by the name of a SecretProvider: the URI
// name in the certificate that the operator issues to a provider, and the
// audience of the tokens that it sends to the provider.
const ProviderIdentityPrefix = "spiffe://external-secrets.io/provider/"

// Reasons of errors. A provider may use others.
const (
	// ReasonNotFound: the secret, or the version of it, does not exist.
	ReasonNotFound = "NOT_FOUND"
	// ReasonPropertyNotFound: the secret exists, the property does not.
	ReasonPropertyNotFound = "PROPERTY_NOT_FOUND"
	// ReasonAccessDenied: the backend refuses the caller this secret.
	ReasonAccessDenied = "ACCESS_DENIED"
	// ReasonUnauthenticated: the backend refuses the caller.
	ReasonUnauthenticated = "UNAUTHENTICATED"
	// ReasonCallerRefused: the caller's token is missing or not accepted by the
	// provider.
	ReasonCallerRefused = "CALLER_REFUSED"
	// ReasonInvalidConfig: the provider config cannot be used.
	ReasonInvalidConfig = "INVALID_CONFIG"
	// ReasonInvalidRequest: the request breaks the protocol.
	ReasonInvalidRequest = "INVALID_REQUEST"
	// ReasonReferenceDenied: a reference of the config may not be resolved.
	ReasonReferenceDenied = "REFERENCE_DENIED"
	// ReasonReferenceNotFound: a reference of the config names an object or key that
	// does not exist.
	ReasonReferenceNotFound = "REFERENCE_NOT_FOUND"
	// ReasonThrottled: the backend limits the rate of calls.
	ReasonThrottled = "THROTTLED"
	// ReasonUnavailable: the backend does not respond.
	ReasonUnavailable = "BACKEND_UNAVAILABLE"
	// ReasonConfigOutdated: the provider cannot yet read the config at the generation
	// of the call.
	ReasonConfigOutdated = "CONFIG_OUTDATED"
	// ReasonUnsupported: the provider does not support this for the kind.
	ReasonUnsupported = "UNSUPPORTED"
	// ReasonNotOwned: the secret belongs to another owner, or to none.
	ReasonNotOwned = "NOT_OWNED"
	// ReasonResultLost: a credential was generated with this idempotency key and
	// cannot be returned again.
	ReasonResultLost = "RESULT_LOST"
	// ReasonTooLarge: the request or the response exceeds a limit.
	ReasonTooLarge = "TOO_LARGE"
	// ReasonInternal: the provider has a defect.
	ReasonInternal = "INTERNAL"
)
