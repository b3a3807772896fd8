package assess

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// maxNeighbours is the number of neighbours that a message names. How many more there are would change too often.
const maxNeighbours = 3

// findOtherPlugin finds another device plugin, a likely cause for which the GPUs of a node are not offered.
func findOtherPlugin(in Input, _ Assessment) finding {
	other := in.neighbourOf(neighbour.DevicePlugin)
	if other == nil {
		return finding{}
	}
	return about(cause("", fmt.Sprintf("another %s there: %s", other.Kind, other.Workload)), *other)
}

// offeredTwice follows the workload of a DRA driver beside a device plugin.
const offeredTwice = " offers the GPUs by resource claims (DRA), too, so that a claim and a pod may get the same GPU:" +
	" turn off the GPUs of one: the DRA driver's, or spec.devicePlugin.enabled: false"

// findDuplicates finds what others run on the node beside an operand that is expected there, or, as a DRA driver,
// beside any device plugin. The GPUs can be used, but by which device plugin, and with which labels, depends on who
// came last. The most harmful neighbour comes first, and has the reason.
func findDuplicates(in Input, _ Assessment) finding {
	type duplicate struct {
		neighbour.Neighbour
		harm, remedy string
	}
	var found []duplicate
	offers := readiness.Allocatable(in.Node).State == readiness.Ready
	for _, other := range in.Neighbours {
		harm, remedy := in.harmOf(other)
		if other.Kind == neighbour.DRADriver && offers {
			harm, remedy = v1.ReasonGPUsOfferedTwice, other.Workload+offeredTwice
		}
		if harm != "" {
			found = append(found, duplicate{other, harm, remedy})
		}
	}
	if len(found) == 0 {
		return finding{}
	}
	slices.SortStableFunc(found, func(a, b duplicate) int {
		return slices.Index(duplicateReasons, b.harm) - slices.Index(duplicateReasons, a.harm)
	})
	// One more than is named, so that it is known after a start that there are more.
	var remedies []string
	var named []neighbour.Neighbour
	for _, d := range found[:min(len(found), maxNeighbours+1)] {
		remedies, named = append(remedies, d.remedy), append(named, d.Neighbour)
	}
	if len(remedies) > maxNeighbours {
		remedies[maxNeighbours] = "and more"
	}
	return about(cause(found[0].harm, strings.Join(remedies, "; ")), named...)
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

// offer describes what pods can request on a node that has reached the stage. It is not validated where the operator's
// device plugin is turned off: another plugin or a DRA driver offers it then.
func (in *Input) offer(stage v1.Stage) string {
	if !in.leavesPlugin() {
		return readiness.Offer(in.Node, in.NodePlan.GPUReplicas)
	}
	if in.offeredByClaims() != nil && !stage.Before(v1.StageAllocatable) {
		return claimsOffer
	}
	return readiness.ForeignOffer(in.Node)
}

// findForeignOffer names who offers the GPUs if the operator's device plugin does not. That is as the spec requests, so
// that it is no reason of its own.
func findForeignOffer(in Input, so Assessment) finding {
	if !in.leavesPlugin() || so.Offer == "" {
		return finding{}
	}
	const unvalidated = ", which the operator has not validated"
	if driver := in.offeredByClaims(); driver != nil {
		return cause("", "a DRA driver offers them by resource claims"+unvalidated+": "+driver.Workload)
	}
	offers := fmt.Sprintf("another %s offers them%s", neighbour.DevicePlugin, unvalidated)
	if other := in.neighbourOf(neighbour.DevicePlugin); other != nil {
		return about(cause("", offers+": "+other.Workload), *other)
	}
	return cause("", offers)
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
