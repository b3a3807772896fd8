package plan_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const mps operand.Name = "mps-control-daemon"

// GPU Feature Discovery reports which nodes share GPUs by MPS. The daemon uses their GPUs, so it follows the device
// plugin's label, which k8s-driver-manager, mig-manager and NVSentinel set to drain a node.
func TestMPSDaemonStage(t *testing.T) {
	capable := func(deploy map[string]string) nodeinfo.Facts {
		return changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MPSCapable, f.Deploy = "true", deploy })
	}
	expected := &plan.OperandOnNode{Operand: mps}
	notExpected := func(need plan.Expectation, message string) *plan.OperandOnNode {
		return &plan.OperandOnNode{Operand: mps, Expectation: need, Reason: v1.ReasonOperandPaused, Message: message}
	}
	tests := map[string]struct {
		facts nodeinfo.Facts
		stage *plan.OperandOnNode
		// label is the change of the daemon's own.
		label map[string]*string
	}{
		"it shares GPUs by MPS": {
			facts: capable(nil),
			stage: expected,
			label: map[string]*string{mps.DeployLabel(): set("true")},
		},
		"it runs there already": {
			facts: capable(map[string]string{string(mps): "true", "device-plugin": "true"}), stage: expected,
		},
		"GFD has not reported yet": {facts: ubuntu("a")},
		"it does not share by MPS": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MPSCapable = "false" }),
		},
		"the label is missing for a moment, and the daemon stays": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy = map[string]string{string(mps): "true"} }),
			stage: expected,
		},
		"it no longer shares by MPS": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.MPSCapable, f.Deploy = "false", map[string]string{string(mps): "true"}
			}),
			label: map[string]*string{mps.DeployLabel(): removed},
		},
		"the device plugin is paused": {
			facts: capable(map[string]string{string(mps): "true", "device-plugin": "paused-for-driver-upgrade"}),
			stage: notExpected(plan.PausedByLabel, `label nvidia.com/gpu.deploy.device-plugin is "paused-for-driver-upgrade"`),
		},
		"the device plugin is kept off": {
			facts: capable(map[string]string{string(mps): "true", "device-plugin": "false"}),
			stage: notExpected(plan.OptedOut, `label nvidia.com/gpu.deploy.device-plugin is "false"`),
		},
		"the daemon alone is kept off": {
			facts: capable(map[string]string{string(mps): "false", "device-plugin": "true"}),
			stage: notExpected(plan.OptedOut, `label nvidia.com/gpu.deploy.mps-control-daemon is "false"`),
		},
	}
	spec := v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(t, spec)
			if diff := cmp.Diff(test.stage, otherOperand(p.ForNode(test.facts), mps), ignoreInjector); diff != "" {
				t.Errorf("stage, -want +got:\n%s", diff)
			}
			current := map[string]string{}
			for name, value := range test.facts.Deploy {
				current[labels.DeployPrefix+name] = value
			}
			changes := p.NodeLabels(test.facts, current, plan.ReadyPods{Injector: true})
			maps.DeleteFunc(changes, func(key string, _ *string) bool { return key != mps.DeployLabel() })
			if diff := cmp.Diff(test.label, changes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("label, -want +got:\n%s", diff)
			}
		})
	}
}

// otherOperand returns the operand's stage among the other operands; nil if the node does not need it.
func otherOperand(node plan.NodePlan, name operand.Name) *plan.OperandOnNode {
	for _, stage := range node.Auxiliary {
		if stage.Operand == name {
			return &stage
		}
	}
	return nil
}
