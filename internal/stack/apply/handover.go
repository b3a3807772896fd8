package apply

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The pods of NVIDIA's operator get the labels by which the DaemonSets of this operator select them.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods,verbs=patch

// Relabel adds labels and annotations to a pod, if it still is the one that was read. It removes the generation of the
// pod's template: that of a new DaemonSet may be equal, and the pod would count as one that the DaemonSet has created.
func (a *Applier) Relabel(ctx context.Context, pod client.Object, labelled, annotations map[string]string) error {
	added := map[string]any{labels.TemplateGeneration: nil}
	for key, value := range labelled {
		added[key] = value
	}
	metadata := map[string]any{"uid": pod.GetUID(), "labels": added}
	if len(annotations) > 0 {
		// Null would remove those of other writers.
		metadata["annotations"] = annotations
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
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

// Orphan deletes DaemonSets without their pods. They must have been read from the API server, in any state that an
// earlier call has left. The garbage collector takes the pods from a DaemonSet one by one, and another one whose
// selector matches would adopt them, and delete them on nodes that it does not select. So if there are several, no pod
// is taken before all of them are being deleted, held by a finalizer: the DaemonSet controller does nothing with those.
// They may not be gone when it returns, and then have to be given to it again.
func (a *Applier) Orphan(ctx context.Context, daemonSets []*appsv1.DaemonSet) error {
	for _, ds := range daemonSets {
		if err := a.deleteHeld(ctx, ds, len(daemonSets) > 1); err != nil {
			return err
		}
	}
	for _, ds := range daemonSets {
		if err := a.orphan(ctx, ds); err != nil {
			return err
		}
	}
	return nil
}

// deleteHeld starts the deletion of a DaemonSet and holds it, if it is one of several.
func (a *Applier) deleteHeld(ctx context.Context, ds *appsv1.DaemonSet, several bool) error {
	if !several || ds.DeletionTimestamp != nil {
		return nil
	}
	if err := a.setFinalizer(ctx, ds, labels.HandOverFinalizer, true); err != nil {
		return err
	}
	return a.deletePropagated(ctx, ds, metav1.DeletePropagationBackground)
}

// orphan lets the garbage collector take the pods from a DaemonSet, and then delete it.
func (a *Applier) orphan(ctx context.Context, ds *appsv1.DaemonSet) error {
	if !controllerutil.ContainsFinalizer(ds, metav1.FinalizerOrphanDependents) {
		log.FromContext(ctx).Info("Deleting a DaemonSet of NVIDIA's operator without its pods", "daemonSet", ds.Name)
		if err := a.deletePropagated(ctx, ds, metav1.DeletePropagationOrphan); err != nil {
			return err
		}
	}
	if !controllerutil.ContainsFinalizer(ds, labels.HandOverFinalizer) {
		return nil
	}
	live := &appsv1.DaemonSet{}
	err := a.request(ctx, "reading "+ds.Name, func(ctx context.Context) error {
		return a.live.Get(ctx, client.ObjectKeyFromObject(ds), live)
	})
	if err == nil {
		err = a.setFinalizer(ctx, live, labels.HandOverFinalizer, false)
	}
	if apierrors.IsConflict(err) {
		// The garbage collector has removed its own finalizer meanwhile.
		return nil
	}
	return client.IgnoreNotFound(err)
}

// deletePropagated deletes an object, which may be gone or being deleted already, with a policy for what it owns.
func (a *Applier) deletePropagated(
	ctx context.Context, object client.Object, policy metav1.DeletionPropagation,
) error {
	uid := object.GetUID()
	err := a.request(ctx, "deleting "+object.GetName(), func(ctx context.Context) error {
		return a.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(policy))
	})
	return client.IgnoreNotFound(err)
}

// ReplaceOwner makes this owner the only one of an object that was read from the API server. It fails with a conflict
// if the object has changed since.
func (a *Applier) ReplaceOwner(ctx context.Context, object client.Object, owner metav1.OwnerReference) error {
	before, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%T is not an API object", object)
	}
	object.SetOwnerReferences([]metav1.OwnerReference{owner})
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return a.request(ctx, "changing the owner of "+object.GetName(), func(ctx context.Context) error {
		return a.client.Patch(ctx, object, patch, client.FieldOwner(labels.FieldOwner))
	})
}
