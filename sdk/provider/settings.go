package provider

import (
	"encoding/json"

	kjson "sigs.k8s.io/json"
)

// Type of the settings of a push.
const (
	settingsAPIVersion = "kubernetes.external-secrets.io/v1alpha1"
	settingsKind       = "PushSecretMetadata"
)

// DecodeSettings decodes the settings of a push, which are an object of API version
// kubernetes.external-secrets.io/v1alpha1 and kind PushSecretMetadata, and returns
// its spec. Without settings, or with an empty object, that is the zero value. A
// field that S does not have is an error that names it.
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
