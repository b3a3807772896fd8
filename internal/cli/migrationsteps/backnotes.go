package migrationsteps

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// notes returns what NVIDIA's operator cannot do with what runs now. Nothing that runs ends for it.
func (b *Back) notes() []string {
	notes := []string{}
	if systems := b.valuesOf(driverOperand, labels.DiscoveryOSID, labels.DiscoveryOSVersion); len(systems) > 1 {
		notes = append(notes, fmt.Sprintf("the nodes have the operating systems %s, and NVIDIA's operator has one driver "+
			"image for all: a driver pod that is created again, for example after it was deleted, fails on nodes of the "+
			"others; its NVIDIADriver objects can declare a driver for each", strings.Join(systems, ", ")))
	}
	if layouts := b.valuesOf("container-toolkit", labels.Layout); len(layouts) > 1 {
		notes = append(notes, fmt.Sprintf("the nodes have the container runtimes %s, and NVIDIA's operator configures one "+
			"for all", strings.Join(layouts, ", ")))
	}
	if waiting := b.withoutDriver(); len(waiting) > 0 {
		notes = append(notes, fmt.Sprintf("NVIDIA's operator starts the driver on nodes with the label %s%s=true and "+
			"without a driver pod: %s", labels.DeployPrefix, driverOperand, strings.Join(waiting, ", ")))
	}
	if policy := b.ActivePolicy(); policy != nil {
		if pools, _, _ := unstructured.NestedSlice(policy.Object, "spec", "nodePools"); len(pools) > 0 {
			notes = append(notes, "spec.nodePools has no effect with NVIDIA's operator: operands of these nodes get the "+
				"common settings when they are replaced, and the driver when its pod is created again")
		}
	}
	return append(notes, "set driver.upgradePolicy.autoUpgrade to false in the values of NVIDIA's chart, which sets true")
}

// valuesOf returns the values that the nodes of an operand's pods have for labels, sorted.
func (b *Back) valuesOf(operand string, keys ...string) []string {
	found := map[string]bool{}
	for _, pod := range b.podsOf(operand) {
		node := b.node(observe.PodNode(pod))
		if node == nil {
			continue
		}
		var values []string
		for _, key := range keys {
			values = append(values, node.Labels[key])
		}
		found[strings.Join(values, " ")] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// withoutDriver returns the nodes that NVIDIA's driver DaemonSet selects and that have no driver pod.
func (b *Back) withoutDriver() []string {
	with := map[string]bool{}
	for _, pod := range b.podsOf(driverOperand) {
		with[observe.PodNode(pod)] = true
	}
	var found []string
	for i := range b.nodes {
		if node := &b.nodes[i]; node.Labels[labels.DeployPrefix+driverOperand] == labels.True && !with[node.Name] {
			found = append(found, node.Name)
		}
	}
	return found
}
