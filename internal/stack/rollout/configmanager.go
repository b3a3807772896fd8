package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// WithConfigManager returns the pod as releases without gpu-node configure had it: config-manager from the image of the
// container main. It returns nil for a pod that does not run gpu-node configure.
func WithConfigManager(pod *corev1.PodSpec, main string) *corev1.PodSpec {
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == main })
	if at < 0 {
		return nil
	}
	earlier, found := pod.DeepCopy(), false
	from := pod.Containers[at]
	manifest.ForEachContainer(earlier, func(c *corev1.Container) {
		if slices.Equal(c.Args, []string{labels.ConfigureCommand}) {
			c.Image, c.ImagePullPolicy = from.Image, from.ImagePullPolicy
			c.Command, c.Args = []string{"config-manager"}, nil
			found = true
		}
	})
	if !found {
		return nil
	}
	return earlier
}
