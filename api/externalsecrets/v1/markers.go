package v1

// What the operator writes on objects that it manages. The values are those of
// External Secrets Operator 2.9, so that each takes over the other's objects.
const (
	// LabelManaged marks every Secret that an ExternalSecret keeps in sync.
	LabelManaged = "reconcile.external-secrets.io/managed"
	// LabelManagedValue is the only value of LabelManaged.
	LabelManagedValue = "true"
	// LabelOwner holds the SHA3-224 of "<namespace>/<name>" of the
	// ExternalSecret that owns the Secret.
	LabelOwner = "reconcile.external-secrets.io/created-by"
	// AnnotationDataHash holds the SHA3-224 of the Secret's data.
	AnnotationDataHash = "reconcile.external-secrets.io/data-hash"
	// AnnotationForceSync makes an ExternalSecret sync when its value changes.
	AnnotationForceSync = "external-secrets.io/force-sync"
	// FieldManagerPrefix is followed by the ExternalSecret's name, or by
	// "sha3/" and the name's SHA3-224 where the whole exceeds 63 characters.
	FieldManagerPrefix = "externalsecrets.external-secrets.io/"
	// FinalizerCleanup is what older operators put on every ExternalSecret.
	FinalizerCleanup = "externalsecrets.external-secrets.io/externalsecret-cleanup"

	// FieldManagerClusterExternalSecret writes the ExternalSecrets of
	// ClusterExternalSecrets.
	FieldManagerClusterExternalSecret = "external-secrets-clusterexternalsecret"
	// FieldManagerOlder is under which older operators wrote the
	// ExternalSecrets of ClusterExternalSecrets: their program's name.
	FieldManagerOlder = "external-secrets"
	// FinalizerClusterExternalSecretCleanup is what older operators put on
	// every ClusterExternalSecret.
	FinalizerClusterExternalSecretCleanup = "externalsecrets.external-secrets.io/clusterexternalsecret-cleanup"
	// FinalizerNamespacePrefix is followed by a ClusterExternalSecret's name.
	// Older operators put it on every Namespace that matched, and left it
	// there when it no longer did.
	FinalizerNamespacePrefix = "externalsecrets.external-secrets.io/ces-"
)
