package assess

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// findHostDriver names what leaves the driver of a node to its host, the label or the spec, while the node is not ready
// and no driver of the host has been validated. k8s-driver-manager sets that label where it finds a driver. One that is
// wrong keeps the driver's pod off the node, so that what needs the driver waits, or fails in ways of its own.
//
// It names the pods that have validated a driver of the operator which is gone, too: none of their containers validates
// again.
func findHostDriver(in Input, _ Assessment) finding {
	off, remedy := in.driverOfHost()
	switch earlier := in.validatedEarlier(); {
	case off != "" && len(earlier) > 0:
		return cause("", fmt.Sprintf("%s, but an earlier driver was validated by %s (if the host has no driver, %s, "+
			"otherwise delete these pods)", off, strings.Join(earlier, ", "), remedy))
	case in.byDriverLabel() != nil && !in.validatedHost():
		return cause("", fmt.Sprintf("%s, but no driver of the host is validated (if it has none, %s)", off, remedy))
	}
	return finding{}
}

// driverOfHost returns what leaves the driver of the node to its host, and how to undo that; empty if nothing does.
func (in *Input) driverOfHost() (off, remedy string) {
	if driver := in.byDriverLabel(); driver != nil {
		return driver.Message, "remove the label"
	}
	if !*in.NodePlan.Spec.Driver.Enabled {
		return "spec.driver.enabled is false", "set it to true"
	}
	return "", ""
}

// byDriverLabel returns the driver of the node if a label leaves it to the host; nil if none does.
func (in *Input) byDriverLabel() *plan.OperandOnNode {
	for i := range in.NodePlan.Essential {
		onNode := &in.NodePlan.Essential[i]
		if onNode.Stage == v1.StageDriver && onNode.Expectation == plan.HostProvides {
			return onNode
		}
	}
	return nil
}

// validatedHost reports whether a pod has validated a driver of the host.
func (in *Input) validatedHost() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(in.Pods)), readiness.ValidatedHost)
}

// validatedEarlier returns the sorted names of the operands whose pods have validated a driver of the operator that has
// no pod on the node any more.
func (in *Input) validatedEarlier() []string {
	present := map[types.UID]bool{"": true}
	for _, pod := range in.Pods {
		present[pod.UID] = true
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(in.Pods)) {
		if !present[readiness.ValidatedDriverPod(in.Pods[name])] {
			found = append(found, string(name))
		}
	}
	return found
}
