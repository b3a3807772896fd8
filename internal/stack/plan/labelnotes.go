package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// otherOperands are NVIDIA's operands that the operator does not have: those for virtual machines and for dynamic
// resource allocation. Keeping one of them off a node works.
var otherOperands = []string{
	"cc-manager", "dcgm-dra", "dcgm-exporter-dra", "dra-driver", "dra-validator", "kata-manager",
	"kata-sandbox-device-plugin", "sandbox-device-plugin", "sandbox-validator", "vfio-manager", "vgpu-device-manager",
	"vgpu-manager",
}

// foreignClients are the suffixes of deploy labels of programs that are not operands, and select nodes by them.
var foreignClients = []string{"client", "nvsm"}

// labelNotes returns a sentence for each label of a node that its users set and that has no effect, or not the one that
// its value says, sorted by label but for the workload. Labels that make an operand fail are not among them.
func (d *Decisions) labelNotes(node *NodePlan) []string {
	var notes []string
	if unknown := d.Input.UnknownWorkload(node.Facts); unknown != "" {
		notes = append(notes, unknown)
	}
	common := len(notes)
	notes = append(notes, d.deployNotes(node)...)
	for _, key := range []string{labels.VGPUConfig, labels.CCMode} {
		value := node.Facts.Labels[key]
		if _, handled := node.Facts.Labels[key+labels.StateSuffix]; value != "" && !handled {
			notes = append(notes, fmt.Sprintf("label %s is %q, which has no effect: virtual machines are not supported yet",
				key, value))
		}
	}
	if skip := node.Facts.Labels[labels.UpgradeSkip]; !slices.Contains([]string{"", labels.True, labels.False}, skip) {
		notes = append(notes, fmt.Sprintf("label %s is %q, which excludes the node from no upgrade: only %q does",
			labels.UpgradeSkip, skip, labels.True))
	}
	if lost := node.lostLayout(); lost != "" {
		notes = append(notes, lost)
	}
	slices.Sort(notes[common:])
	return notes
}

// deployNotes returns a sentence for each deploy label that selects nothing.
func (d *Decisions) deployNotes(node *NodePlan) []string {
	var notes []string
	for name, value := range node.Facts.Deploy {
		key := labels.DeployPrefix + name
		switch _, known := d.Catalogue.Find(operand.Name(name)); {
		case value == "" || known || slices.Contains(foreignClients, name):
		case key == labels.DeployOperands:
			if value != labels.True && value != labels.False {
				notes = append(notes, fmt.Sprintf("label %s is %q, which keeps no operand off: only %q does",
					key, value, labels.False))
			}
		case strings.HasPrefix(value, labels.DeployPaused):
			// k8s-driver-manager writes all that it knows.
		case value != labels.False || !slices.Contains(otherOperands, name):
			notes = append(notes, fmt.Sprintf("label %s is %q, which has no effect: there is no such operand", key, value))
		}
	}
	return notes
}

// lostLayout describes the label of a MIG layout that nothing on the node applies; empty if something does, or if it
// requests what the node has anyway. While it is unknown whether the GPUs support MIG, something may.
func (n *NodePlan) lostLayout() string {
	layout := n.Facts.Labels[labels.MIGConfig]
	if layout == "" || layout == labels.MIGAllDisabled || layout == n.Facts.MIGWritten || n.Partitioner != "" ||
		n.PartitionerOff {
		return ""
	}
	why := ""
	switch {
	case !*n.Spec.MIGManager.Enabled:
		why = "spec.migManager.enabled is false"
	case n.Facts.VGPUGuest:
		why = "the GPUs of the node are vGPUs"
	case n.Facts.MIGCapable == labels.False:
		why = "its GPUs do not support MIG"
	case n.Facts.MIGCapable == "" && n.discoveryOff() != "":
		why = n.discoveryOff() + ", so that nothing reports whether its GPUs support MIG"
	case n.Facts.MIGCapable == "":
		return ""
	default:
		why = "the MIG manager is kept off the node"
	}
	return fmt.Sprintf("label %s is %q, which has no effect: %s", labels.MIGConfig, layout, why)
}

// featureDiscovery is the operand that reports whether the GPUs of a node support MIG.
const featureDiscovery operand.Name = "gpu-feature-discovery"

// discoveryOff returns what keeps GPU Feature Discovery off the node for good; empty if nothing does.
func (n *NodePlan) discoveryOff() string {
	if !*n.Spec.GFD.Enabled {
		return "spec.gfd.enabled is false"
	}
	for _, onNode := range slices.Concat(n.Essential, n.Auxiliary) {
		if onNode.Operand == featureDiscovery && onNode.Expectation == OptedOut {
			return onNode.Message
		}
	}
	return ""
}
