package migrationsteps

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const (
	driverOperand = "driver"
	driverName    = "nvidia-driver-daemonset"
	// Labels of the driver DaemonSets that build with the driver toolkit of OpenShift.
	driverToolkit = "openshift.driver-toolkit"
	toolkitCoreOS = driverToolkit + ".rhcos"
)

// place is a DaemonSet of NVIDIA's operator: its name, its selector and its node selector.
type place struct {
	operand, name   string
	selector, nodes map[string]string
	// labels are those that its operator finds the DaemonSet by, beside the selector.
	labels map[string]string
}

// places returns the DaemonSets of NVIDIA's operator, for each operand that it has too.
func places() []place {
	all := []place{
		{operand: driverOperand, name: driverName},
		{operand: "container-toolkit", name: "nvidia-container-toolkit-daemonset"},
		{operand: "device-plugin", name: "nvidia-device-plugin-daemonset"},
		{
			operand: "mps-control-daemon", name: "nvidia-device-plugin-mps-control-daemon",
			nodes: map[string]string{labels.DeployDevicePlugin: labels.True, labels.MPSCapable: labels.True},
		},
		{
			operand: "gpu-feature-discovery", name: "gpu-feature-discovery",
			selector: map[string]string{labels.PartOf: "nvidia-gpu"},
		},
		{operand: "dcgm", name: "nvidia-dcgm"},
		{operand: "dcgm-exporter", name: "nvidia-dcgm-exporter"},
		{operand: "mig-manager", name: "nvidia-mig-manager"},
		{
			operand: "operator-validator", name: "nvidia-operator-validator",
			selector: map[string]string{labels.PartOf: "gpu-operator"},
		},
		{operand: "node-status-exporter", name: "nvidia-node-status-exporter"},
	}
	for i := range all {
		p := &all[i]
		p.selector = with(p.selector, labels.App, p.name)
		if p.nodes == nil {
			p.nodes = map[string]string{labels.DeployPrefix + p.operand: labels.True}
		}
	}
	return all
}

// on returns the DaemonSet that NVIDIA's operator has for a node. It has several only of drivers that are built with
// the driver toolkit of OpenShift: one for each release of Red Hat CoreOS.
func (p place) on(node *corev1.Node) place {
	release := node.Labels[labels.DiscoveryOSTree]
	if p.operand != driverOperand || node.Labels[labels.PoolCoreOS] == "" || release == "" {
		return p
	}
	p.name += "-" + release
	p.selector = with(p.selector, labels.App, p.name)
	p.nodes = with(p.nodes, labels.DiscoveryOSTree, release)
	p.labels = map[string]string{driverToolkit: labels.True, toolkitCoreOS: release}
	return p
}

// selects reports whether the pod matches the selector.
func (p place) selects(pod *corev1.Pod) bool { return hasAll(pod.Labels, p.selector) }

// excludedBy returns a label of the node, as KEY=VALUE, by which the node selector excludes it, and the labels by which
// it can be made to select the node: deploy labels that are absent or empty.
func (p place) excludedBy(node *corev1.Node) (wrong string, absent map[string]string) {
	absent = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(p.nodes)) {
		switch found := node.Labels[key]; {
		case found == p.nodes[key]:
		case found == "" && key == labels.DeployPrefix+p.operand:
			absent[key] = p.nodes[key]
		default:
			return key + "=" + found, nil
		}
	}
	return "", absent
}

// with returns a copy of a map with one more entry.
func with(entries map[string]string, key, value string) map[string]string {
	entries = maps.Clone(entries)
	if entries == nil {
		entries = map[string]string{}
	}
	entries[key] = value
	return entries
}

// hasAll reports whether a map has all of these entries.
func hasAll(entries, wanted map[string]string) bool {
	for key, value := range wanted {
		if entries[key] != value {
			return false
		}
	}
	return true
}
