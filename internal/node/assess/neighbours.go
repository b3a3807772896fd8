package assess

import (
	"cmp"
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
const pluginNote = anotherPlugin + " there: "

// maxNeighbours is the number of neighbours that a message names.
const maxNeighbours = 3

// findOtherPlugin finds another device plugin, a likely cause for which the GPUs of a node are not offered.
func findOtherPlugin(in Input, _ Assessment) finding {
	return cause("", foreignPlugin(pluginNote, in.Neighbours))
}

// offeredTwice follows the workload of a DRA driver beside a device plugin.
const offeredTwice = " offers the GPUs by resource claims (DRA), too, so that a claim and a pod may get the same GPU:" +
	" turn off the GPUs of one: the DRA driver's, or spec.devicePlugin.enabled: false"

// findDuplicates finds what others run on the node beside an operand that is expected there, or, as a DRA driver,
// beside any device plugin. The GPUs can be used, but by which device plugin, and with which labels, depends on who
// came last. The most harmful neighbour has the reason.
func findDuplicates(in Input, _ Assessment) finding {
	var found []string
	reason := ""
	offers := readiness.Allocatable(in.Node).State == readiness.Ready
	for _, other := range in.Neighbours {
		harm, remedy := in.harmOf(other)
		if other.Kind == neighbour.DRADriver && offers {
			harm, remedy = v1.ReasonGPUsOfferedTwice, other.Workload+offeredTwice
		}
		if harm != "" {
			found = append(found, remedy)
		}
		if slices.Index(duplicateReasons, harm) > slices.Index(duplicateReasons, reason) {
			reason = harm
		}
	}
	if more := len(found) - maxNeighbours; more > 0 {
		found = append(found[:maxNeighbours], fmt.Sprintf("and %d more", more))
	}
	return cause(reason, strings.Join(found, "; "))
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

// duplicateReasons are those of nodes on which others run what an operand is, by the harm.
var duplicateReasons = []string{v1.ReasonDuplicateOperand, v1.ReasonDuplicateDevicePlugin, v1.ReasonGPUsOfferedTwice}

// IsDuplicate reports whether a ready node has this reason because of what others run there.
func IsDuplicate(reason string) bool { return slices.Contains(duplicateReasons, reason) }

// NamesNeighbours reports whether the assessment depends on a neighbour whose start or end should show soon.
func (a *Assessment) NamesNeighbours() bool {
	return IsDuplicate(a.Reason) || a.Offer == claimsOffer || a.NothingOffers
}

// shownAfter finds what the condition of the node shows after the message of another one, if it is about neighbours:
// until they are known they count as they were.
func (in *Input) shownAfter(other corev1.NodeCondition, separator string) finding {
	shown := cmp.Or(in.Shown, &corev1.NodeCondition{})
	more, isSame := strings.CutPrefix(shown.Message, other.Message+separator)
	if !isSame || shown.Status != other.Status ||
		!IsDuplicate(shown.Reason) && !strings.Contains(shown.Message, anotherPlugin) {
		return finding{}
	}
	return cause(shown.Reason, more)
}

// findShownPlugin finds the note about a device plugin in the condition of a node that is not ready. A pod's detail
// may follow it. The name of a workload has no colon.
func findShownPlugin(in Input, so Assessment) finding {
	so.Detail = ""
	plugin, _, _ := strings.Cut(in.shownAfter(so.Condition(in.Node.Name), "; "+pluginNote).Message, ": ")
	if plugin == "" {
		return finding{}
	}
	return cause("", pluginNote+plugin)
}

// findShownDuplicates finds the reason of a ready node that has none else. It took the place of any note.
func findShownDuplicates(in Input, so Assessment) finding {
	so.Message = ""
	if found := in.shownAfter(so.Condition(in.Node.Name), "; "); IsDuplicate(found.Reason) {
		return found
	}
	return finding{}
}

func findShownNotes(in Input, so Assessment) finding {
	return cause("", in.shownAfter(so.Condition(in.Node.Name), "").Message)
}

// offer describes what pods can request on a node that has reached the stage. It is not validated where the operator's
// device plugin is turned off: another plugin or a DRA driver offers it then.
func (in *Input) offer(stage v1.Stage) string {
	if !in.leavesPlugin() {
		return readiness.Offer(in.Node, in.NodePlan.GPUReplicas)
	}
	if _, offered := in.offeredByClaims(); offered && !stage.Before(v1.StageAllocatable) {
		return claimsOffer
	}
	return readiness.ForeignOffer(in.Node)
}

// findForeignOffer names who offers the GPUs if the operator's device plugin does not. That is as the spec requests, so
// that it is no reason of its own.
func findForeignOffer(in Input, so Assessment) finding {
	driver, byClaims := in.offeredByClaims()
	switch {
	case !in.leavesPlugin() || byClaims && driver == "" || so.Offer == "":
		return finding{}
	case byClaims:
		return cause("", claimsNote+driver)
	}
	return cause("", anotherPlugin+" offers them, which the operator has not validated"+
		foreignPlugin(": ", in.Neighbours))
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

// foreignPlugin returns the workload of the first device plugin among the neighbours, after the prefix; empty for none.
func foreignPlugin(prefix string, neighbours []neighbour.Neighbour) string {
	for _, other := range neighbours {
		if other.Kind == neighbour.DevicePlugin {
			return prefix + other.Workload
		}
	}
	return ""
}
