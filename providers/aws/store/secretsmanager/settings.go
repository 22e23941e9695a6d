package secretsmanager

import (
	"encoding/json"
	"errors"

	"github.com/external-secrets/eso/sdk/provider"
)

// Formats that a value is held in.
const (
	formatText   = "string"
	formatBinary = "binary"
)

// settings of a push: the spec of its metadata.
type settings struct {
	// SecretPushFormat is string or binary. If it is absent, the format of an
	// existing secret is not changed, and a new one is binary, as with ESO v1.
	SecretPushFormat string `json:"secretPushFormat,omitempty"`
	// Tags that the secret has besides those that mark its owner.
	Tags map[string]string `json:"tags,omitempty"`
	// Description of the secret.
	Description string `json:"description,omitempty"`
	// KMSKeyID of the key that encrypts the secret, in either spelling.
	KMSKeyID  string `json:"kmsKeyID,omitempty"`
	KMSKeyID1 string `json:"kmsKeyId,omitempty"`
	// ResourcePolicy of the secret.
	ResourcePolicy *resourcePolicy `json:"resourcePolicy,omitempty"`
	// ReplicationLocations are the regions that the secret is copied to.
	ReplicationLocations []replica `json:"replicationLocations,omitempty"`
}

// resourcePolicy is the access policy of the secret.
type resourcePolicy struct {
	// BlockPublicPolicy makes AWS refuse a policy with public access; default
	// true.
	BlockPublicPolicy *bool `json:"blockPublicPolicy,omitempty"`
	// PolicySourceRef names the object with the policy's JSON.
	PolicySourceRef policySource `json:"policySourceRef"`
}

// policySource is a key of a ConfigMap or a Secret, in the authentication
// namespace.
type policySource struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Key  string `json:"key"`
}

// replica is a region, as a text or with the key that encrypts the copy.
type replica struct {
	Region   string `json:"region"`
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// UnmarshalJSON reads either form.
func (r *replica) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &r.Region) == nil {
		return nil
	}

	type fields replica
	if err := json.Unmarshal(text, (*fields)(r)); err != nil || r.Region == "" {
		return errors.New("replicationLocations: an entry is a region, or an object with region and kmsKeyID")
	}

	return nil
}

// decode reads and checks the settings of a push.
func decode(raw []byte) (settings, error) {
	set, err := provider.DecodeSettings[settings](raw)
	if err != nil {
		return set, err
	}

	switch set.SecretPushFormat {
	case "", formatText, formatBinary:
	default:
		return set, provider.InvalidRequest("metadata of the push: secretPushFormat is %q, not %s or %s", set.SecretPushFormat, formatText, formatBinary)
	}

	if set.KMSKeyID == "" {
		set.KMSKeyID = set.KMSKeyID1
	}

	if policy := set.ResourcePolicy; policy != nil {
		switch kind := policy.PolicySourceRef.Kind; {
		case kind != "ConfigMap" && kind != "Secret":
			return set, provider.InvalidRequest("metadata of the push: resourcePolicy.policySourceRef.kind is %q, not ConfigMap or Secret", kind)
		case policy.PolicySourceRef.Name == "" || policy.PolicySourceRef.Key == "":
			return set, provider.InvalidRequest("metadata of the push: resourcePolicy.policySourceRef needs name and key")
		}
	}

	return set, nil
}
