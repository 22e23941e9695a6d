package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/internal/cluster"
)

const (
	// ownerAnnotation holds the owner of a Secret that was pushed. A label could not
	// hold any text.
	ownerAnnotation = "external-secrets.io/push-owner"
	// maxAttempts bounds the attempts of a write that conflicts with others.
	maxAttempts = 5
)

// Merge policies of labels and annotations.
const (
	replace = "Replace"
	merge   = "Merge"
	ignore  = "Ignore"
)

// settings of a push, as ESO v1 has them.
type settings struct {
	// TargetMergePolicy decides about the existing labels and annotations of the
	// Secret: Replace, the default, Merge or Ignore.
	TargetMergePolicy string `json:"targetMergePolicy"`
	// SourceMergePolicy decides whether Labels and Annotations replace those of
	// the pushed Secret, Replace, or are merged into them, Merge. Those are not
	// part of the protocol: both have the same effect here.
	SourceMergePolicy string `json:"sourceMergePolicy"`
	// Labels and Annotations of the Secret.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// RemoteNamespace to write to in place of the config's. A later deletion uses
	// the config's.
	RemoteNamespace string `json:"remoteNamespace"`
	// Type of a Secret that is created; Opaque by default.
	Type corev1.SecretType `json:"type"`
}

func (w settings) check() error {
	switch w.TargetMergePolicy {
	case "", replace, merge, ignore:
	default:
		return provider.InvalidRequest("metadata of the push: spec.targetMergePolicy is %q, not Replace, Merge or Ignore", w.TargetMergePolicy)
	}

	switch w.SourceMergePolicy {
	case "", replace, merge:
	default:
		return provider.InvalidRequest("metadata of the push: spec.sourceMergePolicy is %q, not Replace or Merge", w.SourceMergePolicy)
	}

	if w.RemoteNamespace != "" {
		if faults := validation.IsDNS1123Label(w.RemoteNamespace); len(faults) > 0 {
			return provider.InvalidRequest("metadata of the push: spec.remoteNamespace: %s", faults[0])
		}
	}

	if w.Type == corev1.SecretTypeServiceAccountToken || strings.HasPrefix(string(w.Type), "bootstrap.kubernetes.io/") {
		return provider.InvalidRequest("metadata of the push: spec.type: %s makes credentials of Kubernetes' own", w.Type)
	}

	return nil
}

// Push writes a Secret, or a key of its data.
func (s *Store) Push(ctx context.Context, push provider.Push) (provider.Pushed, error) {
	wanted, err := provider.DecodeSettings[settings](push.Settings)
	if err != nil {
		return provider.Pushed{}, err
	}

	if err := wanted.check(); err != nil {
		return provider.Pushed{}, err
	}

	into := *s
	if wanted.RemoteNamespace != "" {
		into.namespace = wanted.RemoteNamespace
	}

	data, err := dataOf(push)
	if err != nil {
		return provider.Pushed{}, err
	}

	for attempt := 1; ; attempt++ {
		pushed, err := into.push(ctx, push, wanted, data)
		if err == nil || !contended(err) || attempt == maxAttempts {
			return pushed, err
		}
	}
}

// dataOf returns the data that a push writes.
func dataOf(push provider.Push) (map[string][]byte, error) {
	if push.Property != "" {
		if faults := validation.IsConfigMapKey(push.Property); len(faults) > 0 {
			return nil, provider.InvalidRequest("property %q is no key of a Secret: %s", push.Property, faults[0])
		}

		return map[string][]byte{push.Property: push.Value}, nil
	}

	var texts map[string]string
	if err := json.Unmarshal(push.Value, &texts); err != nil || texts == nil {
		return nil, provider.InvalidRequest("cannot write Secret %q as a whole: the value is no JSON object of texts: name a property", push.Key)
	}

	data := make(map[string][]byte, len(texts))

	for name, value := range texts {
		if faults := validation.IsConfigMapKey(name); len(faults) > 0 {
			return nil, provider.InvalidRequest("cannot write Secret %q: %q is no key of a Secret: %s", push.Key, name, faults[0])
		}

		data[name] = []byte(value)
	}

	return data, nil
}

func (s *Store) push(ctx context.Context, push provider.Push, wanted settings, data map[string][]byte) (provider.Pushed, error) {
	old, err := s.get(ctx, push.Key)

	switch {
	case isNotFound(err):
		return s.create(ctx, push, wanted, data)
	case err != nil:
		return provider.Pushed{}, err
	}

	if _, there := old.Data[push.Property]; push.IfNotExists && (push.Property == "" || there) {
		return provider.Pushed{Revision: revision(old)}, nil
	}

	if err := checkOwner(old, push.Owner, push.Adopt); err != nil {
		return provider.Pushed{}, err
	}

	secret := old.DeepCopy()
	if push.Property == "" {
		secret.Data = data
	} else {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}

		maps.Copy(secret.Data, data)
	}

	if wanted.TargetMergePolicy != ignore {
		secret.Labels = merged(secret.Labels, wanted.Labels, wanted.TargetMergePolicy)
		secret.Annotations = merged(secret.Annotations, wanted.Annotations, wanted.TargetMergePolicy)
	}

	setOwner(secret, push.Owner)

	if maps.EqualFunc(secret.Data, old.Data, bytes.Equal) && maps.Equal(secret.Labels, old.Labels) && maps.Equal(secret.Annotations, old.Annotations) {
		return provider.Pushed{Revision: revision(old)}, nil
	}

	if old.Immutable != nil && *old.Immutable && !maps.EqualFunc(secret.Data, old.Data, bytes.Equal) {
		return provider.Pushed{}, provider.InvalidRequest("cannot write %s: it is immutable", s.name(push.Key))
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	// With its resource version, so that a concurrent write is a conflict.
	written, err := s.core.Secrets(s.namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil {
		return provider.Pushed{}, changedSince(cluster.Error("write "+s.name(push.Key), err))
	}

	return provider.Pushed{Changed: true, Revision: revision(written)}, nil
}

func (s *Store) create(ctx context.Context, push provider.Push, wanted settings, data map[string][]byte) (provider.Pushed, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: push.Key, Labels: maps.Clone(wanted.Labels), Annotations: maps.Clone(wanted.Annotations)},
		Type:       wanted.Type, Data: data,
	}
	setOwner(secret, push.Owner)

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	written, err := s.core.Secrets(s.namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err = cluster.Error("create "+s.name(push.Key), err); isNotFound(err) {
		// The namespace does not exist.
		return provider.Pushed{}, provider.InvalidConfig("%s", provider.AsError(err).Message)
	}

	if err != nil {
		return provider.Pushed{}, err
	}

	return provider.Pushed{Changed: true, Revision: revision(written)}, nil
}

// merged returns the new labels or annotations. Without labels or annotations in
// the push, the existing ones are not changed.
func merged(old, wanted map[string]string, policy string) map[string]string {
	if len(wanted) == 0 {
		return old
	}

	result := maps.Clone(wanted)

	if policy == merge {
		result = maps.Clone(old)
		if result == nil {
			result = map[string]string{}
		}

		maps.Copy(result, wanted)
	}

	return result
}

// setOwner marks a Secret as the owner's.
func setOwner(secret *corev1.Secret, by string) {
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}

	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}

	secret.Labels[ownership.ManagedTag] = ownership.ManagedValue
	secret.Annotations[ownerAnnotation] = owners().Mark(by).Owner
}

// checkOwner returns an error unless an owner may write the Secret. A Secret that
// an object of the cluster controls belongs to that object, whatever the push asks
// for.
func checkOwner(secret *corev1.Secret, by string, adopt bool) error {
	if controller := metav1.GetControllerOf(secret); controller != nil {
		return provider.NotOwned("Secret %q is controlled by %s %q", secret.Name, controller.Kind, controller.Name)
	}

	mark := ownership.Mark{Owner: secret.Annotations[ownerAnnotation], Managed: secret.Labels[ownership.ManagedTag] == ownership.ManagedValue}

	return owners().Check(fmt.Sprintf("Secret %q", secret.Name), mark, by, adopt)
}

// owners returns how owners are stored: in an annotation.
func owners() ownership.Backend { return ownership.Backend{Place: "annotation " + ownerAnnotation} }

// Delete deletes a Secret, or a key of its data.
func (s *Store) Delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	for attempt := 1; ; attempt++ {
		changed, err := s.delete(ctx, deletion)
		if err == nil || !contended(err) || attempt == maxAttempts {
			return changed, err
		}
	}
}

func (s *Store) delete(ctx context.Context, deletion provider.Deletion) (bool, error) {
	secret, err := s.get(ctx, deletion.Key)

	switch {
	case isNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}

	if _, there := secret.Data[deletion.Property]; deletion.Property != "" && !there {
		return false, nil
	}

	if err := checkOwner(secret, deletion.Owner, false); err != nil {
		return false, err
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	if deletion.Property != "" && len(secret.Data) > 1 {
		delete(secret.Data, deletion.Property)

		if _, err := s.core.Secrets(s.namespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return false, changedSince(cluster.Error("write "+s.name(deletion.Key), err))
		}

		return true, nil
	}

	// Only this Secret, at the version that was checked.
	err = s.core.Secrets(s.namespace).Delete(ctx, deletion.Key, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err == nil {
		return true, nil
	}

	if err = cluster.Error("delete "+s.name(deletion.Key), err); isNotFound(err) {
		return false, nil
	}

	return false, err
}

// changedSince converts the error of a Secret that was deleted between read and
// write to that of a conflict.
func changedSince(err error) error {
	if !isNotFound(err) {
		return err
	}

	return &provider.Error{Code: codes.Aborted, Reason: pb.ReasonUnavailable, Message: provider.AsError(err).Message}
}

// contended reports whether another client wrote at the same time.
func contended(err error) bool { return provider.AsError(err).Code == codes.Aborted }
