package preview

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// openShift returns what the configuration of OpenShift has for drivers.
func (c *Cluster) openShift() operand.OpenShiftCluster {
	if c.Given.OpenShift != (operand.OpenShiftCluster{}) {
		return c.Given.OpenShift
	}
	var found operand.OpenShiftCluster
	for _, object := range of[*unstructured.Unstructured](c) {
		observe.AddOpenShift(&found, object)
	}
	return found
}

// aboutOpenShift returns a sentence if drivers have the version of OpenShift, which was not read.
func (c *Cluster) aboutOpenShift() []string {
	if c.openShift().Version != "" {
		return nil
	}
	for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
		if slices.ContainsFunc(ds.Spec.Template.Spec.Containers, hasOpenShiftVersion) {
			return []string{"the ClusterVersion " + labels.ClusterVersionName + " and the Proxy " + labels.ProxyName +
				" of OpenShift were not read: drivers would not lose what they have of them"}
		}
	}
	return nil
}

func hasOpenShiftVersion(container corev1.Container) bool {
	return slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == render.OpenShiftVersionEnv })
}
