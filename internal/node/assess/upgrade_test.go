package assess_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// driverPod returns a driver pod that is ready, or whose container crashes or starts.
func driverPod(state readiness.State) *corev1.Pod {
	status := corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ready := corev1.ConditionFalse
	switch state {
	case readiness.Ready:
		ready = corev1.ConditionTrue
	case readiness.Failed:
		status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "boom"}}
	case readiness.Progressing:
	}
	return &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{status},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
		},
	}}
}

// A node is upgrading only while the label and the record agree, and its kubelet reports.
func TestNodesWhoseDriverIsUpgraded(t *testing.T) {
	const running = "pod-restart-required: container main is not ready"
	crashed := "container main: CrashLoopBackOff, exit code 1"
	restarting := upgrade.Record{UID: "u", State: upgrade.StatePodRestart}
	timedOut := upgrade.Record{
		UID: "u", State: upgrade.StateFailed, Reason: v1.ReasonUpgradeRestarting, Message: "driver not ready after 30m",
	}
	type want struct {
		state           readiness.State
		reason, message string
		overdue         bool
	}
	progress := want{state: readiness.Progressing, reason: v1.ReasonUpgrading, message: running}
	tests := map[string]struct {
		driver readiness.State
		label  upgrade.State
		record upgrade.Record
		change func(*corev1.Node)
		want   want
	}{
		"its driver works": {
			label: upgrade.StatePodDeletion, record: upgrade.Record{UID: "u", State: upgrade.StatePodDeletion},
		},
		"its driver starts, for longer than spec.deadlines allow": {
			driver: readiness.Progressing, label: upgrade.StatePodRestart, record: restarting, want: progress,
		},
		"its driver crashes": {
			driver: readiness.Failed, label: upgrade.StatePodRestart, record: restarting,
			want: want{readiness.Progressing, v1.ReasonUpgrading, "pod-restart-required: " + crashed, false},
		},
		"its kubelet does not report": {
			driver: readiness.Progressing, label: upgrade.StatePodRestart, record: restarting,
			change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
			want: want{
				state: readiness.Failed, reason: v1.ReasonNodeUnreachable, message: "the kubelet stopped posting node status",
			},
		},
		"it only waits": {
			driver: readiness.Failed, label: upgrade.StateRequired,
			record: upgrade.Record{UID: "u", State: upgrade.StateRequired},
			want:   want{state: readiness.Failed, reason: v1.ReasonCrashLoopBackOff, message: crashed},
		},
		"the record is of a deleted node of this name": {
			driver: readiness.Progressing, label: upgrade.StatePodRestart,
			record: upgrade.Record{UID: "other", State: upgrade.StatePodRestart},
			want: want{
				readiness.Failed, v1.ReasonStarting, "not ready after 30m: container main is not ready", true,
			},
		},
		"another client has written the label": {
			driver: readiness.Progressing, label: upgrade.StateDrain, record: restarting,
			want: want{readiness.Failed, v1.ReasonStarting, "not ready after 30m: container main is not ready", true},
		},
		"it has failed, and the new driver is not ready": {
			driver: readiness.Progressing, label: upgrade.StateFailed, record: timedOut,
			want: want{readiness.Failed, timedOut.Reason, timedOut.Message, true},
		},
		"it has failed, and the new driver crashes": {
			driver: readiness.Failed, label: upgrade.StateFailed, record: timedOut,
			want: want{state: readiness.Failed, reason: v1.ReasonCrashLoopBackOff, message: crashed},
		},
		"it has failed, and the old driver works": {label: upgrade.StateFailed, record: timedOut},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			record, err := json.Marshal(test.record)
			g.Expect(err).NotTo(HaveOccurred())
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: "a", UID: "u", Labels: map[string]string{"nvidia.com/gpu-driver-upgrade-state": string(test.label)},
					Annotations: map[string]string{"nvidia.com/gpu-operator.driver-upgrade": string(record)},
				},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			}
			if test.change != nil {
				test.change(node)
			}
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec:      effective.Of(v1.ClusterPolicySpec{}),
					Essential: []plan.OperandOnNode{{Operand: "driver", Stage: v1.StageDriver, Expectation: plan.Expected}},
				},
				Node: node, Pods: assess.Pods{"driver": driverPod(test.driver)}, Now: begin,
				Previous: assess.ReadySince{Ready: test.driver == readiness.Ready, Since: begin.Add(-time.Hour)},
			})
			g.Expect(want{got.State, got.Reason, got.Message, got.Overdue}).To(Equal(test.want))
			if test.want.reason == v1.ReasonUpgrading {
				g.Expect(got.Operands["driver"].State).To(Equal(readiness.Progressing), "the operand does not count as failed")
			}
		})
	}
}
