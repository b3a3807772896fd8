package migrate

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// LeftConfigMaps are the ConfigMaps of NVIDIA's operator that only its own pods mount. The operator deletes them once
// none of these pods is left.
func LeftConfigMaps() []string {
	return []string{
		"default-gpu-clients", "default-mig-parted-config", "default-vgpu-devices-config",
		"nvidia-container-toolkit-entrypoint", "nvidia-device-plugin-entrypoint", "nvidia-mig-manager-entrypoint",
	}
}

// IsNVIDIAs reports whether NVIDIA's operator has written the object last for one of the owners with these UIDs: it
// belongs to the owner, and has nothing of what this operator writes on its own objects.
func IsNVIDIAs(owners []types.UID, object client.Object) bool {
	controller := metav1.GetControllerOfNoCopy(object)
	return controller != nil && slices.Contains(owners, controller.UID) && object.GetAnnotations()[labels.Digest] == ""
}

// IsUnneeded reports whether a DaemonSet of NVIDIA's operator that this operator does not render can be deleted: it
// runs on no node.
func IsUnneeded(ds *appsv1.DaemonSet) bool {
	return ds.Annotations[labels.NVIDIAHash] != "" && ds.Status.ObservedGeneration == ds.Generation &&
		ds.Status.DesiredNumberScheduled == 0 && ds.Status.CurrentNumberScheduled == 0
}

// IsDriverPod reports whether a driver pod has still to be taken over: it is not labelled by this operator, and belongs
// to one of the DaemonSets with these UIDs or, after that was deleted without it, to none.
func IsDriverPod(daemonSets []types.UID, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Labels[labels.Operand] != "" {
		return false
	}
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller == nil || slices.Contains(daemonSets, controller.UID)
}
