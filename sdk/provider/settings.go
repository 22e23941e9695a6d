package provider

import (
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// What settings of a push say of themselves.
const (
	settingsAPIVersion = "kubernetes.external-secrets.io/v1alpha1"
	settingsKind       = "PushSecretMetadata"
)

// DecodeSettings reads the settings of a push, which are an object of API
// version kubernetes.external-secrets.io/v1alpha1 and kind PushSecretMetadata,
// into the type of its spec. No settings, or an empty object, are the zero
// value; a field that S does not have is an error that names it.
func DecodeSettings[S any](settings []byte) (S, error) {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       S      `json:"spec"`
	}

	if len(settings) == 0 {
		return object.Spec, nil
	}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(settings, &fields); err != nil {
		return object.Spec, InvalidRequest("metadata of the push: it is no object")
	}

	if len(fields) == 0 {
		return object.Spec, nil
	}

	unknown, err := kjson.UnmarshalStrict(settings, &object)

	switch {
	case err != nil:
		return object.Spec, InvalidRequest("metadata of the push: %v", err)
	case len(unknown) > 0:
		return object.Spec, InvalidRequest("metadata of the push: %v", unknown[0])
	case object.APIVersion != settingsAPIVersion, object.Kind != settingsKind:
		return object.Spec, InvalidRequest("metadata of the push is %s of %q, not %s of %s", object.Kind, object.APIVersion, settingsKind, settingsAPIVersion)
	}

	return object.Spec, nil
}
