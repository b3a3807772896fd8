package preview

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// losing returns the nodes, in their order, that have a pod of a driver or of a device plugin now, and would have none
// of it: pods there could no longer use GPUs. nodes are labelled as they are after the edit.
func (c *Cluster) losing(catalogue operand.Catalogue, changes *changes, nodes []*corev1.Node) []string {
	after := c.daemonSets()
	maps.Copy(after, changes.daemonSets)
	for i := range changes.changed {
		if one := &changes.changed[i]; one.RemovesPods() {
			delete(after, one.Name)
		}
	}
	pods := podsByNode(c)
	var found []string
	for _, node := range nodes {
		for i := range catalogue {
			o := &catalogue[i]
			if o.Stage != v1.StageDriver && o.Stage != v1.StageDevicePlugin {
				continue
			}
			if pods.operands[node.Name][o.Name] != nil && !runsOn(after, o.Name, node) {
				found = append(found, node.Name)
				break
			}
		}
	}
	return found
}

// runsOn reports whether a DaemonSet of the operand selects the node.
func runsOn(all map[string]*appsv1.DaemonSet, name operand.Name, node *corev1.Node) bool {
	for _, ds := range all {
		if ds.Labels[labels.Operand] == string(name) && readiness.Selects(ds, node) {
			return true
		}
	}
	return false
}
