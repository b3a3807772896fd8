package status

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var tier = v1.PlacementSpec{NodeSelector: v1.Labels{"tier": "gpu"}}

// A node without an operand that does not select it is ready. The node's entry names the selector.
func TestNodesThatAreNotSelected(t *testing.T) {
	ready := func(node string) v1.NodeStatus {
		return v1.NodeStatus{Name: node, Ready: true, Stage: v1.StageValidated, Pool: "ubuntu24.04-amd64"}
	}
	withReason := func(node v1.NodeStatus, reason, message string) v1.NodeStatus {
		node.Reason, node.Message = reason, message
		return node
	}
	excluded := withReason(ready("node-00000"), "NotSelected", "spec.daemonsets.nodeSelector requires label tier=gpu")
	excluded.Ready, excluded.Stage, excluded.Since = false, v1.StageDiscovered, new(metav1.NewTime(now))
	tests := map[string]struct {
		spec           v1.ClusterPolicySpec
		change         func(*env)
		want           v1.NodeStatus
		ready          string
		readyCondition string
	}{
		"the exporter": {
			spec:   v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: tier}},
			change: func(e *env) { delete(e.snapshot.Pods["node-00000"], "dcgm-exporter") },
			want: withReason(
				ready("node-00000"),
				"NotSelected",
				"does not run dcgm-exporter: spec.dcgmExporter.nodeSelector requires label tier=gpu",
			),
			ready: "2/2", readyCondition: "True Reconciled",
		},
		"the exporter, whose pod still exists and fails": {
			spec:   v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: tier}},
			change: func(e *env) { e.failPod(0, "dcgm-exporter", "boom") },
			want: withReason(
				ready("node-00000"),
				"NotSelected",
				"does not run dcgm-exporter: spec.dcgmExporter.nodeSelector requires label tier=gpu",
			),
			ready: "2/2", readyCondition: "True Reconciled",
		},
		"the device plugin, so that there are no GPUs to allocate": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{PlacementSpec: tier}},
			change: func(e *env) {
				delete(e.snapshot.Pods["node-00000"], "device-plugin")
				delete(e.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu")
			},
			want: v1.NodeStatus{
				Name: "node-00000", Stage: v1.StageAllocatable, Pool: "ubuntu24.04-amd64", Reason: "DevicePluginOff",
				Message: "nothing offers the GPUs of the node: spec.devicePlugin.nodeSelector requires label tier=gpu",
				Since:   &metav1.Time{Time: time.Unix(1000000, 0)},
			},
			ready: "1/2", readyCondition: "False OperandNotReady",
		},
		"the device plugin, and another one offers the GPUs": {
			spec:   v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{PlacementSpec: tier}},
			change: func(e *env) { delete(e.snapshot.Pods["node-00000"], "device-plugin") },
			want: withReason(
				ready("node-00000"),
				"NotSelected",
				"does not run device-plugin: spec.devicePlugin.nodeSelector requires label tier=gpu",
			),
			ready: "2/2", readyCondition: "True Reconciled",
		},
		"the driver, which the node keeps": {
			spec:   v1.ClusterPolicySpec{Driver: &v1.DriverSpec{PlacementSpec: tier}},
			change: func(e *env) { e.setLabel(0, "nvidia.com/gpu.deploy.driver", "true") },
			want: withReason(
				ready("node-00000"),
				"UpgradePending",
				"run kubectl label node node-00000 nvidia.com/gpu.deploy.driver- to remove the driver: "+
					"spec.driver.nodeSelector requires label tier=gpu",
			),
			ready: "2/2", readyCondition: "False UpgradePending",
		},
		"nothing": {
			spec:   v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier.NodeSelector}},
			change: func(e *env) { e.snapshot.Pods["node-00000"] = nil },
			want:   excluded,
			ready:  "1/1", readyCondition: "True Reconciled",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			e.spec = test.spec
			e.setLabel(1, "tier", "gpu")
			test.change(e)
			for _, ds := range e.snapshot.DaemonSets {
				ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = 2, 2
			}
			status := e.status()
			var got v1.NodeStatus
			for _, node := range status.Nodes {
				if node.Name == "node-00000" {
					got = node
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if status.NodeSummary.ReadyOfTotal != test.ready || conditionsOf(status)["Ready"] != test.readyCondition {
				t.Errorf("%s nodes are ready, Ready is %s: %s", status.NodeSummary.ReadyOfTotal,
					conditionsOf(status)["Ready"], condition(status, "Ready").Message)
			}
		})
	}
}

func TestAllNodesExcludedBySelector(t *testing.T) {
	e := newEnv(t, 2)
	e.spec.DaemonSets = &v1.DaemonSetsSpec{NodeSelector: tier.NodeSelector}
	status := e.status()
	want := "all 2 GPU nodes are excluded by label nvidia.com/gpu.deploy.operands=false, or by a nodeSelector of " +
		"the spec: see status.nodes, and remove the label or change the nodeSelector to use their GPUs"
	if got := ready(status); got.Status != "True" || got.Reason != "Excluded" || got.Message != want {
		t.Errorf("got %s %s %q", got.Status, got.Reason, got.Message)
	}
	if status.NodeSummary.Excluded != 2 || status.NodeSummary.Total != 0 {
		t.Errorf("got %+v", status.NodeSummary)
	}
}

// A paused policy reports the actual state of nodes and operands.
func TestPausedPolicy(t *testing.T) {
	const paused = "spec.paused is true, so the operator changes nothing; "
	tests := map[string]struct {
		change     func(*env)
		conditions map[string]string
		state      v1.State
		message    string
		operand    v1.OperandState
	}{
		"all is ready": {
			conditions: map[string]string{
				"Ready":       "True Paused",
				"Error":       "False Paused",
				"Progressing": "False None",
				"Degraded":    "False None",
			},
			state: v1.StateReady, message: paused + "Reconciled: 2 of 2 GPU nodes are ready", operand: v1.OperandReady,
		},
		"a node fails": {
			change: func(e *env) { e.failPod(0, "driver", "boom") },
			conditions: map[string]string{
				"Ready":       "False Paused",
				"Error":       "True Paused",
				"Progressing": "False None",
				"Degraded":    "True OperandFailed",
			},
			state:   v1.StateNotReady,
			message: paused + "OperandFailed: 1 of 2 GPU nodes have failed: node-00000 (Driver: CrashLoopBackOff)",
			operand: v1.OperandReady,
		},
		"the spec differs from the live objects": {
			change: func(e *env) { e.applied["device-plugin"] = ApplyResult{Pending: 2} },
			conditions: map[string]string{
				"Ready":       "False Paused",
				"Error":       "True Paused",
				"Progressing": "True OperandNotReady",
				"Degraded":    "False None",
			},
			state: v1.StateNotReady, operand: v1.OperandProgressing,
			message: paused + "OperandNotReady: device-plugin: 2 of its objects differ from the spec and are not updated " +
				"while spec.paused is true",
		},
		"the cluster cannot be observed": {
			change: func(e *env) { e.err = errors.New("the API server is gone") },
			conditions: map[string]string{
				"Ready":       "False Paused",
				"Error":       "True Paused",
				"Progressing": "False None",
				"Degraded":    "True ReconcileFailed",
			},
			state: v1.StateNotReady, message: paused + "ReconcileFailed: the API server is gone", operand: v1.OperandReady,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			e.spec.Paused = new(true)
			if test.change != nil {
				test.change(e)
			}
			status := e.status()
			if diff := cmp.Diff(test.conditions, conditionsOf(status)); diff != "" || status.State != test.state {
				t.Errorf("state %s, conditions -want +got:\n%s", status.State, diff)
			}
			if got := ready(status).Message; got != test.message {
				t.Errorf("got %q, want %q", got, test.message)
			}
			if got := operandOf(t, status, "device-plugin").State; got != test.operand {
				t.Errorf("the device plugin is %s, want %s", got, test.operand)
			}
			if len(status.Nodes) != 2 {
				t.Errorf("%d nodes are listed", len(status.Nodes))
			}
		})
	}
}

// It says so before anything can be planned, too.
func TestPausedPolicyWithoutPlan(t *testing.T) {
	policy := newPolicy(v1.ClusterPolicySpec{Paused: new(true)})
	got := ready(Compute(policy, Input{Err: errors.New("timeout")}))
	const want = "spec.paused is true, so the operator changes nothing; ReconcileFailed: timeout"
	if got.Reason != "Paused" || got.Message != want {
		t.Errorf("got %s %q", got.Reason, got.Message)
	}
}

// An error of the spec makes the operand Invalid and is not retried.
func TestInvalidSpecError(t *testing.T) {
	e := newEnv(t, 1)
	e.applied["driver"] = ApplyResult{
		Err: operand.InvalidSpec{Message: "spec.driver.containerResources: there is no container a"},
	}
	got := operandOf(t, e.status(), "driver")
	want := v1.OperandStatus{
		State:   v1.OperandInvalid,
		Reason:  "InvalidSpec",
		Message: "spec.driver.containerResources: there is no container a",
	}
	if got.State != want.State || got.Reason != want.Reason || got.Message != want.Message {
		t.Errorf("got %+v", got)
	}
	if e.input().NeedsRetry() {
		t.Error("the pass is retried")
	}
}
