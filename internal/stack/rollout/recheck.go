package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// recheckVolumes are those that only gpu-node recheck mounts.
var recheckVolumes = []string{"host-dev", "state"}

// WithoutRecheck returns the pod of the validator as releases without gpu-node recheck had it: its main container only
// waited. It returns nil for any other pod.
func WithoutRecheck(pod *corev1.PodSpec) *corev1.PodSpec {
	isRecheck := func(c corev1.Container) bool { return slices.Equal(c.Args, []string{labels.RecheckCommand}) }
	if !slices.ContainsFunc(pod.Containers, isRecheck) {
		return nil
	}
	earlier := pod.DeepCopy()
	for i := range earlier.Containers {
		if c := &earlier.Containers[i]; isRecheck(*c) {
			c.Args, c.VolumeMounts = []string{labels.HoldCommand}, nil
		}
	}
	earlier.Volumes = slices.DeleteFunc(earlier.Volumes, func(v corev1.Volume) bool {
		return slices.Contains(recheckVolumes, v.Name)
	})
	return earlier
}
