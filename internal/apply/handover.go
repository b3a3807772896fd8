package apply

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// The pods of NVIDIA's operator get the labels by which the DaemonSets of this operator select them.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods,verbs=patch

// templateGeneration is a label of DaemonSet pods, by which the DaemonSet controller finds those that are up to date.
const templateGeneration = "pod-template-generation"

// Relabel adds labels and annotations to a pod, if it still is the one that was read. It removes the generation of the
// pod's template: that of a new DaemonSet may be equal, and the pod would count as one that the DaemonSet has created.
func (a *Applier) Relabel(ctx context.Context, pod client.Object, labelled, annotations map[string]string) error {
	added := map[string]any{templateGeneration: nil}
	for key, value := range labelled {
		added[key] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.GetUID(), "labels": added, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch of Pod %s: %w", pod.GetName(), err)
	}
	log.FromContext(ctx).Info("Taking over a pod of NVIDIA's operator", "pod", pod.GetName())
	return a.request(ctx, "labelling Pod "+pod.GetName(), func(ctx context.Context) error {
		return a.client.Patch(
			ctx, pod, client.RawPatch(types.MergePatchType, body), client.FieldOwner(labels.FieldOwner),
		)
	})
}

// DeleteOnly deletes an object and leaves what it owns, such as the pods of a DaemonSet.
func (a *Applier) DeleteOnly(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	log.FromContext(ctx).Info("Deleting an object of NVIDIA's operator without its pods", "object", object.GetName())
	err := a.request(ctx, "deleting "+object.GetName(), func(ctx context.Context) error {
		return a.client.Delete(
			ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationOrphan),
		)
	})
	return client.IgnoreNotFound(err)
}
