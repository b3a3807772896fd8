package apply

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Privileged keeps the labels by which Pod Security Admission lets privileged pods into a namespace: it carries them,
// whoever set others, or loses those that the operator has set. Nothing is written if they are as they are to be. A
// namespace that may not be read is left alone where nothing is wanted of it. It fails if the API server takes longer
// than NamespaceDeadline. Calls for one namespace must not overlap.
func (a *Applier) Privileged(ctx context.Context, namespace string, wanted bool) error {
	live := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	object := key(live)
	if !wanted && a.table.isReleased(object) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timing.NamespaceDeadline)
	defer cancel()
	// Not from a cache: one of a single object would hold up the start where reading it is forbidden, and all but a few
	// clusters do without these labels.
	err := a.live.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case err != nil && !wanted && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
		a.table.release(object, true)
		return nil
	case err != nil:
		return fmt.Errorf("reading Namespace %s for its Pod Security labels: %w", namespace, err)
	case wanted && isPrivileged(live), !wanted && !labelledByUs(live):
		a.table.release(object, !wanted)
		return nil
	}
	log.FromContext(ctx).Info("Labelling the namespace for Pod Security Admission", "namespace", namespace, "privileged", wanted)
	if err := a.labelNamespace(ctx, namespace, wanted); err != nil {
		return fmt.Errorf("applying the Pod Security labels of Namespace %s: %w", namespace, err)
	}
	a.table.release(object, !wanted)
	return nil
}

// labelNamespace sets the labels, or none: what the field manager no longer applies is removed, unless another one has
// it, too.
func (a *Applier) labelNamespace(ctx context.Context, namespace string, wanted bool) error {
	intent := &unstructured.Unstructured{}
	intent.SetAPIVersion("v1")
	intent.SetKind("Namespace")
	intent.SetName(namespace)
	if wanted {
		set := map[string]string{}
		for _, key := range labels.PodSecurity() {
			set[key] = labels.PodSecurityPrivileged
		}
		intent.SetLabels(set)
	}
	return a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(labels.FieldOwner), client.ForceOwnership)
}

func isPrivileged(namespace *metav1.PartialObjectMetadata) bool {
	for _, key := range labels.PodSecurity() {
		if namespace.Labels[key] != labels.PodSecurityPrivileged {
			return false
		}
	}
	return true
}

// labelledByUs tells whether the operator's field manager holds one of the labels.
func labelledByUs(namespace *metav1.PartialObjectMetadata) bool {
	for _, entry := range namespace.ManagedFields {
		if entry.Manager != labels.FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		for _, key := range labels.PodSecurity() {
			if strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+key+`"`) {
				return true
			}
		}
	}
	return false
}
