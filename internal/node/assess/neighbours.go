package assess

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// anotherPlugin is in the messages about neighbours that have no reason of their own.
const anotherPlugin = "another " + string(neighbour.DevicePlugin)

// pluginNote comes before the workload of the device plugin in the message of a node that is not ready.
const pluginNote = "; " + anotherPlugin + " there: "

// maxNeighbours is the number of neighbours that a message names.
const maxNeighbours = 3

// checkNeighbours reports what others run on the node beside an operand. The GPUs of the node can be used, so that it
// stays ready, but by which device plugin, and with which labels, depends on who came last. Of a node whose GPUs are
// not offered, another device plugin is a likely cause.
func (a *Assessment) checkNeighbours(in Input) {
	switch {
	case in.Shown != nil:
		a.keepShown(in.Shown, in.Node.Name)
	case a.Ready() && a.Reason == "":
		a.Reason, a.Message = duplicates(in, a.Message)
	case !a.Ready() && (a.Stage == v1.StageDevicePlugin || a.Stage == v1.StageAllocatable):
		if plugin := foreignPlugin(in.Neighbours); plugin != "" {
			a.Message += pluginNote + plugin
		}
	}
}

// offeredTwice follows the workload of a DRA driver beside a device plugin.
const offeredTwice = " offers the GPUs by resource claims (DRA), too, so that a claim and a pod may get the same GPU:" +
	" turn off the GPUs of one: the DRA driver's, or spec.devicePlugin.enabled: false"

// duplicates returns the reason of the most harmful neighbour, and the message with all that do harm: beside an operand
// that is expected on the node, or, as a DRA driver, beside any device plugin. There is no reason, and the message is
// as it is, if there are none.
func duplicates(in Input, message string) (reason, text string) {
	var found []string
	offers := readiness.Allocatable(in.Node).State == readiness.Ready
	for _, other := range in.Neighbours {
		harm, remedy := in.harmOf(other)
		if other.Kind == neighbour.DRADriver && offers {
			harm, remedy = v1.ReasonGPUsOfferedTwice, other.Workload+offeredTwice
		}
		if harm == "" {
			continue
		}
		found = append(found, remedy)
		if duplicateRank(harm) > duplicateRank(reason) {
			reason = harm
		}
	}
	if len(found) == 0 {
		return "", message
	}
	if more := len(found) - maxNeighbours; more > 0 {
		found = append(found[:maxNeighbours], fmt.Sprintf("and %d more", more))
	}
	return reason, strings.Join(found, "; ")
}

// harmOf returns the reason and the remedy of a neighbour beside an operand that is expected on the node; empty if it
// does no harm.
func (in *Input) harmOf(other neighbour.Neighbour) (reason, remedy string) {
	for _, rival := range other.Kind.Rivals() {
		if !in.expects(rival.Operand) {
			continue
		}
		reason = v1.ReasonDuplicateOperand
		if other.Kind == neighbour.DevicePlugin {
			reason = v1.ReasonDuplicateDevicePlugin
		}
		return reason, fmt.Sprintf("%s is another %s: delete it, or set %s: false", other.Workload, other.Kind, rival.Field)
	}
	return "", ""
}

// duplicateRank orders the reasons by the harm; 0 for others.
func duplicateRank(reason string) int {
	return slices.Index(
		[]string{v1.ReasonDuplicateOperand, v1.ReasonDuplicateDevicePlugin, v1.ReasonGPUsOfferedTwice}, reason) + 1
}

// IsDuplicate reports whether a ready node has this reason because of what others run there.
func IsDuplicate(reason string) bool { return duplicateRank(reason) > 0 }

// NamesNeighbours reports whether the assessment depends on a neighbour whose start or end should show soon.
func (a *Assessment) NamesNeighbours() bool {
	return IsDuplicate(a.Reason) || a.Offer == claimsOffer || a.NothingOffers
}

// keepShown keeps what the condition of the node says about neighbours, if it says the same as the assessment else:
// until they are known they count as they were.
func (a *Assessment) keepShown(shown *corev1.NodeCondition, node string) {
	if !IsDuplicate(shown.Reason) && !strings.Contains(shown.Message, anotherPlugin) {
		return
	}
	without := a.Condition(node)
	if shown.Status != without.Status {
		return
	}
	if !a.Ready() {
		a.keepPluginNote(shown, node)
		return
	}
	if a.Reason == "" && IsDuplicate(shown.Reason) {
		// It took the place of any note.
		bare := *a
		bare.Message = ""
		if more, isSame := strings.CutPrefix(shown.Message, bare.Condition(node).Message+"; "); isSame {
			a.Reason, a.Message = shown.Reason, more
		}
		return
	}
	more, isSame := strings.CutPrefix(shown.Message, without.Message)
	if !isSame {
		return
	}
	a.Message = strings.TrimPrefix(a.Message+more, "; ")
}

// keepPluginNote keeps the note about a device plugin in the condition of a node that is not ready. The detail that may
// follow it is that of the pod then. The name of a workload has no colon.
func (a *Assessment) keepPluginNote(shown *corev1.NodeCondition, node string) {
	if more, isSame := strings.CutPrefix(shown.Message, a.Cause(node)+pluginNote); isSame {
		plugin, _, _ := strings.Cut(more, ": ")
		a.Message += pluginNote + plugin
	}
}

// noteForeignOffer notes that what the node offers is not by the operator's device plugin, which is turned off there,
// and so not validated: another plugin or a DRA driver offers it. That is as the spec requests, so that it is no reason
// of its own.
func (a *Assessment) noteForeignOffer(in Input) {
	if !in.leavesPlugin() {
		return
	}
	a.Offer = readiness.ForeignOffer(in.Node)
	saysNothing := a.Ready() && a.Reason == "" && a.Message == ""
	if driver, offered := in.offeredByClaims(); offered && !a.Stage.Before(v1.StageAllocatable) {
		a.Offer = claimsOffer
		if driver != "" && saysNothing {
			a.Message = claimsNote + driver
		}
		return
	}
	if a.Offer == "" || !saysNothing {
		return
	}
	a.Message = anotherPlugin + " offers them, which the operator has not validated"
	if plugin := foreignPlugin(in.Neighbours); plugin != "" {
		a.Message += ": " + plugin
	}
}

// leavesPlugin reports whether the operator leaves the device plugin of the node to others.
func (in *Input) leavesPlugin() bool {
	leaves := in.NodePlan.PluginOff != ""
	for _, onNode := range in.NodePlan.Essential {
		if onNode.Stage == v1.StageDevicePlugin {
			leaves = onNode.Expectation == plan.OptedOut
		}
	}
	// A pod of its own is about to end.
	for _, rival := range neighbour.DevicePlugin.Rivals() {
		leaves = leaves && in.Pods[rival.Operand] == nil
	}
	return leaves
}

// expects reports whether the operand is expected on the node.
func (in *Input) expects(name operand.Name) bool {
	operands := slices.Concat(in.NodePlan.Essential, in.NodePlan.Auxiliary)
	return slices.ContainsFunc(operands, func(onNode plan.OperandOnNode) bool {
		return onNode.Operand == name && onNode.Expectation == plan.Expected
	})
}

// foreignPlugin returns the workload of the first device plugin among the neighbours; empty for none.
func foreignPlugin(neighbours []neighbour.Neighbour) string {
	for _, other := range neighbours {
		if other.Kind == neighbour.DevicePlugin {
			return other.Workload
		}
	}
	return ""
}
