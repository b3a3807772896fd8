package nodemarks_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// What each mark alone shows of a node.
func TestMarksOfANode(t *testing.T) {
	const own = "nvidia.com/gpu-operator."
	marked := func(labels, annotations map[string]string) *corev1.Node {
		node := &corev1.Node{}
		node.Labels, node.Annotations = labels, annotations
		return node
	}
	label := func(key string) *corev1.Node { return marked(map[string]string{key: "a"}, nil) }
	annotation := func(key string) *corev1.Node { return marked(nil, map[string]string{key: "a"}) }
	condition := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "nvidia.com/GPUReady"}}}}
	for name, test := range map[string]struct {
		node                          *corev1.Node
		operands, marked, writtenOnly bool
	}{
		"nothing":           {node: marked(nil, nil)},
		"an administrator":  {node: label("nvidia.com/gpu.present")},
		"the pool":          {node: label(own + "pool"), operands: true, marked: true},
		"lost":              {node: annotation(own + "discovery-lost-since"), operands: true},
		"the condition":     {node: condition, operands: true},
		"the layout":        {node: label(own + "runtime"), operands: true, marked: true},
		"discovered labels": {node: annotation(own + "discovered-labels"), marked: true},
		"counted GPUs":      {node: annotation(own + "gpus-on-bus"), marked: true},
		"the health agent":  {node: annotation(own + "gpu-health"), marked: true},
		"the clean-up":      {node: label(own + "cleanup"), marked: true},
		"a start-up taint":  {node: annotation(own + "startup-taints"), writtenOnly: true},
		"a health action":   {node: annotation(own + "health-record"), writtenOnly: true},
		"a drain":           {node: annotation(own + "mig-drain"), writtenOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(nodemarks.HadOperands(test.node)).To(Equal(test.operands))
			g.Expect(nodemarks.IsMarked(test.node)).To(Equal(test.marked))
			g.Expect(nodemarks.WasWritten(test.node)).To(Equal(test.operands || test.marked || test.writtenOnly))
		})
	}
}

// keysOf returns the keys that changes remove, sorted; those that they set have their value.
func keysOf(changes map[string]*string) []string {
	keys := []string{}
	for key, value := range changes {
		if value != nil {
			key += "=" + *value
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// A node that has lost its GPUs keeps what a removed policy drops.
func TestReleased(t *testing.T) {
	const own = "nvidia.com/gpu-operator."
	node := &corev1.Node{}
	node.Labels = map[string]string{
		own + "cleanup": "a", "nvidia.com/gpu.present": "true", "nvidia.com/mig.config": "b",
		"nvidia.com/mig.config.state": "success",
	}
	node.Annotations = map[string]string{
		"example.com/a": "b", own + "mig-config": "b", "nvidia.com/gpu-driver-upgrade-enabled": "true",
	}
	both := []string{
		own + "discovery-missing-since", own + "gpu-health", own + "plugin-config-read", own + "ready-boot",
	}
	for _, key := range append([]string{own + "discovery-lost-since", own + "gpus-on-bus"}, both...) {
		node.Annotations[key] = "a"
	}
	both = append(both, "nvidia.com/gpu-driver-upgrade-enabled")
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for present, want := range map[string]struct{ labels, annotations []string }{
		"false": {
			labels: []string{own + "cleanup", "nvidia.com/gpu.present=false"}, annotations: both,
		},
		"": {
			labels: []string{
				own + "cleanup", "nvidia.com/gpu.present", "nvidia.com/mig.config", "nvidia.com/mig.config.state",
			},
			annotations: append([]string{own + "discovery-lost-since", own + "gpus-on-bus", own + "mig-config"}, both...),
		},
	} {
		g, changes := NewWithT(t), nodemarks.Released(catalogue, node, present)
		g.Expect(keysOf(changes.Labels)).To(ConsistOf(want.labels), present)
		g.Expect(keysOf(changes.Annotations)).To(ConsistOf(want.annotations), present)
	}
}

// The state of an upgrade without a record is removed once it is done; one with a record is the upgrade controller's.
func TestUnmarkAndDropUpgrades(t *testing.T) {
	const state, record = "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/gpu-operator.driver-upgrade"
	const cordon = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
	const drain = "nvidia.com/gpu-operator.mig-drain"
	for name, test := range map[string]struct {
		state                        string
		unmarked, dropped, forgotten []string
	}{
		"no state":         {},
		"done":             {state: "upgrade-done", unmarked: []string{state}, dropped: []string{state}},
		"failed":           {state: "upgrade-failed", dropped: []string{state}},
		"done, recorded":   {state: "upgrade-done", dropped: []string{state}, forgotten: []string{record, cordon, drain}},
		"failed, recorded": {state: "upgrade-failed", dropped: []string{state}, forgotten: []string{record, cordon, drain}},
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), &corev1.Node{}
			if test.state != "" {
				node.Labels = map[string]string{state: test.state}
			}
			if test.forgotten != nil {
				node.Annotations = map[string]string{record: "a", cordon: "true", drain: "a"}
			}
			empty := func() nodemarks.Metadata {
				return nodemarks.Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
			}
			unmarked, dropped := empty(), empty()
			unmarked.UnmarkUpgrades(node)
			g.Expect(keysOf(unmarked.Labels)).To(ConsistOf(test.unmarked))
			g.Expect(keysOf(unmarked.Annotations)).To(BeEmpty())
			dropped.DropUpgrade(node)
			g.Expect(keysOf(dropped.Labels)).To(ConsistOf(test.dropped))
			g.Expect(keysOf(dropped.Annotations)).To(ConsistOf(test.forgotten))
		})
	}
}
