package migrate

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// LeftConfigMaps are the ConfigMaps of NVIDIA's operator that only its own pods mount. The operator deletes them once
// none of these pods is left.
func LeftConfigMaps() []string {
	return []string{
		"default-gpu-clients", "default-mig-parted-config", "default-vgpu-devices-config",
		"nvidia-container-toolkit-entrypoint", "nvidia-device-plugin-entrypoint", "nvidia-mig-manager-entrypoint",
	}
}

// IsNVIDIAs reports whether NVIDIA's operator has written the object last for the policy with this UID: it belongs to
// the policy, and has nothing of what this operator writes on its own objects.
func IsNVIDIAs(owner types.UID, object client.Object) bool {
	controller := metav1.GetControllerOf(object)
	return controller != nil && controller.UID == owner && object.GetAnnotations()[labels.Digest] == ""
}

// IsUnneeded reports whether a DaemonSet of NVIDIA's operator that this operator does not render can be deleted: it
// runs on no node.
func IsUnneeded(ds *appsv1.DaemonSet) bool {
	return ds.Annotations[labels.NVIDIAHash] != "" && ds.Status.ObservedGeneration == ds.Generation &&
		ds.Status.DesiredNumberScheduled == 0 && ds.Status.CurrentNumberScheduled == 0
}
