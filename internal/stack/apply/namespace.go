package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// SetPodSecurity sets the labels by which Pod Security Admission accepts privileged pods in a namespace, or removes
// those that the operator has set and restores the values before them. It writes nothing if the labels are as desired.
// If privileged is false, a namespace that does not exist or may not be read is skipped. It fails after
// NamespaceDeadline. Calls for the same namespace must not overlap.
func (a *Applier) SetPodSecurity(ctx context.Context, namespace string, privileged bool) error {
	live := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}
	object := key(live)
	if !privileged && a.table.recallDisowned(object) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timing.NamespaceDeadline)
	defer cancel()
	// Not from a cache: an informer for Namespaces would block the start where reading them is forbidden, and few clusters
	// need these labels.
	err := a.live.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case err != nil && !privileged && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
		a.table.setDisowned(object, true)
		return nil
	case err != nil:
		return fmt.Errorf("reading Namespace %s for its Pod Security labels: %w", namespace, err)
	case hasDesiredLabels(live, privileged):
		a.table.setDisowned(object, !privileged)
		return nil
	}
	log.FromContext(ctx).Info("Changing the Pod Security labels of the namespace",
		"namespace", namespace, "privileged", privileged)
	relabel := a.removePodSecurityLabels
	if privileged {
		relabel = a.addPodSecurityLabels
	}
	if err := relabel(ctx, live); err != nil {
		return fmt.Errorf("applying the Pod Security labels of Namespace %s: %w", namespace, err)
	}
	a.table.setDisowned(object, !privileged)
	return nil
}

// addPodSecurityLabels sets the labels, and records the replaced values in an annotation.
func (a *Applier) addPodSecurityLabels(ctx context.Context, live *metav1.PartialObjectMetadata) error {
	object, set := namespaceNamed(live.Name), map[string]string{}
	for _, key := range labels.PodSecurity() {
		set[key] = labels.PodSecurityPrivileged
	}
	object.SetLabels(set)
	if before := replacedNote(live); before != "" {
		object.SetAnnotations(map[string]string{labels.PodSecurityBefore: before})
	}
	return a.applyNamespace(ctx, object)
}

// removePodSecurityLabels restores the replaced values, then applies an empty object, which removes the labels that
// only the operator's field manager owns. The restored values are written by a patch, not an apply, so they stay.
func (a *Applier) removePodSecurityLabels(ctx context.Context, live *metav1.PartialObjectMetadata) error {
	if before := RestoredPodSecurity(live); len(before) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": before}})
		if err != nil {
			return err
		}
		err = a.client.Patch(ctx, namespaceNamed(live.Name), client.RawPatch(types.MergePatchType, patch),
			client.FieldOwner(labels.FieldOwner))
		if err != nil {
			return err
		}
	}
	return a.applyNamespace(ctx, namespaceNamed(live.Name))
}

func (a *Applier) applyNamespace(ctx context.Context, object *unstructured.Unstructured) error {
	return a.client.Apply(
		ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(labels.FieldOwner), client.ForceOwnership,
	)
}

func namespaceNamed(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	object.SetKind("Namespace")
	object.SetName(name)
	return object
}

// replacedNote returns the annotation with the values that the operator's labels replace: the present ones or, if
// already replaced, the recorded ones. A label that another writer has removed meanwhile is not restored.
func replacedNote(namespace *metav1.PartialObjectMetadata) string {
	before := replacedLabels(namespace)
	var parts []string
	for _, key := range labels.PodSecurity() {
		value, there := namespace.Labels[key]
		if value == labels.PodSecurityPrivileged {
			value, there = before[key]
		}
		if there {
			parts = append(parts, key+"="+value)
		}
	}
	return strings.Join(parts, ",")
}

// replacedLabels returns the recorded values of the annotation, ignoring all other keys.
func replacedLabels(namespace *metav1.PartialObjectMetadata) map[string]string {
	before := map[string]string{}
	for part := range strings.SplitSeq(namespace.Annotations[labels.PodSecurityBefore], ",") {
		if key, value, found := strings.Cut(part, "="); found && slices.Contains(labels.PodSecurity(), key) {
			before[key] = value
		}
	}
	return before
}

func hasDesiredLabels(live *metav1.PartialObjectMetadata, privileged bool) bool {
	if privileged {
		return isPrivileged(live)
	}
	return !OwnsPodSecurity(live)
}

func isPrivileged(namespace *metav1.PartialObjectMetadata) bool {
	for _, key := range labels.PodSecurity() {
		if namespace.Labels[key] != labels.PodSecurityPrivileged {
			return false
		}
	}
	return true
}

// RestoredPodSecurity returns the values that the Pod Security labels of a namespace get back when the operator removes
// its own.
func RestoredPodSecurity(live *metav1.PartialObjectMetadata) map[string]string {
	before := map[string]string{}
	for key, value := range replacedLabels(live) {
		if live.Labels[key] == labels.PodSecurityPrivileged {
			before[key] = value
		}
	}
	return before
}

// OwnsPodSecurity reports whether the operator's field manager owns one of the labels, or the annotation with the
// replaced values.
func OwnsPodSecurity(namespace *metav1.PartialObjectMetadata) bool {
	for _, entry := range namespace.ManagedFields {
		if entry.Manager != labels.FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply ||
			entry.FieldsV1 == nil {
			continue
		}
		for _, key := range append(labels.PodSecurity(), labels.PodSecurityBefore) {
			if strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+key+`"`) {
				return true
			}
		}
	}
	return false
}
