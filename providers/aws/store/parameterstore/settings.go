package parameterstore

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/external-secrets/eso/sdk/provider"
)

// settings of a push: the spec of its metadata.
type settings struct {
	// SecretType is String, StringList or SecureString. If it is absent, the type
	// of an existing parameter is not changed, and a new one is a String, as with
	// ESO v1.
	SecretType types.ParameterType `json:"secretType,omitempty"`
	// KMSKeyID of the key that encrypts a SecureString, in either spelling.
	KMSKeyID  string `json:"kmsKeyID,omitempty"`
	KMSKeyID1 string `json:"kmsKeyId,omitempty"`
	// Tier of the parameter.
	Tier tier `json:"tier,omitzero"`
	// EncodeAsDecoded decodes the values of a whole Secret if they are base64.
	EncodeAsDecoded bool `json:"encodeAsDecoded,omitempty"`
	// Tags that the parameter has besides those that mark its owner.
	Tags map[string]string `json:"tags,omitempty"`
	// Description of the parameter.
	Description string `json:"description,omitempty"`
}

// tier of a parameter.
type tier struct {
	// Type is Standard, Advanced or Intelligent-Tiering.
	Type types.ParameterTier `json:"type,omitempty"`
	// Policies of an advanced parameter: a list of objects.
	Policies json.RawMessage `json:"policies,omitempty"`
}

// decode reads and checks the settings of a push.
func decode(raw []byte) (settings, error) {
	set, err := provider.DecodeSettings[settings](raw)
	if err != nil {
		return set, err
	}

	if set.SecretType != "" && !slices.Contains(set.SecretType.Values(), set.SecretType) {
		return set, provider.InvalidRequest("metadata of the push: secretType is %q, not String, StringList or SecureString", set.SecretType)
	}

	if set.Tier.Type != "" && !slices.Contains(set.Tier.Type.Values(), set.Tier.Type) {
		return set, provider.InvalidRequest("metadata of the push: tier.type is %q, not Standard, Advanced or Intelligent-Tiering", set.Tier.Type)
	}

	if policies := set.Tier.Policies; len(policies) > 0 {
		var list []json.RawMessage
		if json.Unmarshal(policies, &list) != nil {
			return set, provider.InvalidRequest("metadata of the push: tier.policies is no list")
		}
	}

	if set.KMSKeyID == "" {
		set.KMSKeyID = set.KMSKeyID1
	}

	return set, nil
}

// decoded returns a JSON object with its values as text, where all of them are
// the base64 of one; anything else stays as it is.
func decoded(value []byte) []byte {
	var object map[string]string
	if json.Unmarshal(value, &object) != nil || len(object) == 0 {
		return value
	}

	for key, encoded := range object {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !utf8.Valid(text) {
			return value
		}

		object[key] = string(text)
	}

	text, err := json.Marshal(object)
	if err != nil {
		return value
	}

	return text
}
