package status

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// said puts the condition GPUReady on a node, as it has been for so long.
func (b *bed) said(i int, status corev1.ConditionStatus, ago time.Duration) {
	b.snapshot.Nodes[i].Object.Status.Conditions = append(b.snapshot.Nodes[i].Object.Status.Conditions, corev1.NodeCondition{
		Type: labels.ConditionGPUReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	})
}

// readySince has a pod of the first node be ready for so long.
func (b *bed) readySince(name operand.Name, ago time.Duration) {
	b.pod(0, name).Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-ago))
}

// TestDeadlines: what is on its way to a stage for longer than that may take is degraded, with the culprit, and
// comes to be so by time alone.
func TestDeadlines(t *testing.T) {
	noGPU := func(b *bed) { b.snapshot.Nodes[0].Object.Status.Allocatable = nil }
	tests := map[string]struct {
		spec   v1.DeadlinesSpec
		change func(*bed)
		// want is the first node of status, as stage, operand, reason and message; ready if it is.
		want v1.NodeStatus
		// left is after how long the next look is due; 0 for never.
		left time.Duration
		// operand that is degraded, if one is.
		operand string
	}{
		"all works": {
			change: func(b *bed) { b.said(0, corev1.ConditionTrue, 9*time.Hour) },
			want:   v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
		},
		"a driver in time": {
			change: func(b *bed) { b.start(0, "driver"); b.said(0, corev1.ConditionFalse, 29*time.Minute) },
			want:   v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "container main is not ready"},
			left:   time.Minute,
		},
		"a driver that takes too long": {
			change:  func(b *bed) { b.start(0, "driver"); b.said(0, corev1.ConditionFalse, 30*time.Minute) },
			want:    v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "not ready after 30m: container main is not ready"},
			operand: "driver",
		},
		"a driver that has another deadline": {
			spec:    v1.DeadlinesSpec{Driver: "90s"},
			change:  func(b *bed) { b.start(0, "driver"); b.said(0, corev1.ConditionFalse, 2*time.Minute) },
			want:    v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "not ready after 1m30s: container main is not ready"},
			operand: "driver",
		},
		"a driver that has none": {
			spec:   v1.DeadlinesSpec{Driver: "0s"},
			change: func(b *bed) { b.start(0, "driver"); b.said(0, corev1.ConditionFalse, 1000*time.Hour) },
			want:   v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "container main is not ready"},
		},
		"a stage begins when the one below is reached": {
			change: func(b *bed) {
				b.start(0, "container-toolkit")
				b.readySince("driver", 4*time.Minute)
				b.said(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{Stage: v1.StageToolkit, Operand: "container-toolkit", Reason: "Starting", Message: "container main is not ready"},
			left: 6 * time.Minute,
		},
		"a stage that takes too long": {
			change: func(b *bed) {
				b.start(0, "container-toolkit")
				b.readySince("driver", 11*time.Minute)
				b.said(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want:    v1.NodeStatus{Stage: v1.StageToolkit, Operand: "container-toolkit", Reason: "Starting", Message: "not ready after 10m: container main is not ready"},
			operand: "container-toolkit",
		},
		"what was ready before the node was not": {
			change: func(b *bed) {
				b.start(0, "container-toolkit")
				b.readySince("driver", 99*time.Hour)
				b.said(0, corev1.ConditionFalse, 3*time.Minute)
			},
			want: v1.NodeStatus{Stage: v1.StageToolkit, Operand: "container-toolkit", Reason: "Starting", Message: "container main is not ready"},
			left: 7 * time.Minute,
		},
		"GPUs that cannot be allocated": {
			change: func(b *bed) {
				noGPU(b)
				b.readySince("device-plugin", 5*time.Minute)
				b.said(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want:    v1.NodeStatus{Stage: v1.StageAllocatable, Operand: "device-plugin", Reason: "NotAllocatable", Message: "not ready after 5m: the node has no allocatable GPU"},
			operand: "device-plugin",
		},
		"GPUs that may still come": {
			change: func(b *bed) {
				noGPU(b)
				b.readySince("device-plugin", 4*time.Minute)
				b.said(0, corev1.ConditionFalse, 25*time.Minute)
			},
			want: v1.NodeStatus{Stage: v1.StageAllocatable, Operand: "device-plugin", Reason: "NotAllocatable", Message: "the node has no allocatable GPU"},
			left: time.Minute,
		},
		"a kubelet that is not ready": {
			change: func(b *bed) {
				b.snapshot.Nodes[0].Object.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}
				b.said(0, corev1.ConditionFalse, 10*time.Minute)
			},
			want: v1.NodeStatus{Stage: v1.StageDiscovered, Reason: "NodeNotReady", Message: "not ready after 10m: the node is not ready: KubeletNotReady"},
		},
		"a node that has only now lost its readiness": {
			change: func(b *bed) { b.start(0, "driver"); b.said(0, corev1.ConditionTrue, 99*time.Hour) },
			want:   v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "container main is not ready"},
			left:   30 * time.Minute,
		},
		"a node that nobody has told of": {
			change: func(b *bed) { b.start(0, "driver") },
			want:   v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "Starting", Message: "container main is not ready"},
			left:   30 * time.Minute,
		},
		"a node that is paused": {
			change: func(b *bed) {
				b.relabel(0, "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade")
				b.said(0, corev1.ConditionFalse, 99*time.Hour)
			},
			want: v1.NodeStatus{Stage: v1.StageDriver, Operand: "driver", Reason: "OperandPaused", Message: `label nvidia.com/gpu.deploy.driver is "paused-for-driver-upgrade"`},
		},
		"an operand beside the ladder": {
			change: func(b *bed) {
				b.start(0, "gpu-feature-discovery")
				b.readySince("gpu-feature-discovery", 15*time.Minute)
				b.said(0, corev1.ConditionTrue, 99*time.Hour)
			},
			want:    v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
			operand: "gpu-feature-discovery",
		},
		"an operand beside the ladder, in time": {
			change: func(b *bed) {
				b.start(0, "gpu-feature-discovery")
				b.readySince("gpu-feature-discovery", 99*time.Hour)
				b.said(0, corev1.ConditionTrue, 14*time.Minute)
			},
			want: v1.NodeStatus{Ready: true, Stage: v1.StageValidated},
			left: time.Minute,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBed(t, 1)
			b.spec.Deadlines = &test.spec
			test.change(b)
			pass := b.pass()
			status, until := Compute(&v1.ClusterPolicy{Spec: b.spec}, pass), pass.Fleet.Nodes[0].Latest.Until
			got := status.Nodes[0]
			test.want.Name, test.want.Pool = "node-00000", "ubuntu24.04-amd64"
			got.Since = nil
			g.Expect(got).To(Equal(test.want))
			if test.left == 0 {
				g.Expect(until).To(BeZero())
			} else {
				g.Expect(until).To(Equal(now.Add(test.left)))
			}
			late := test.operand != "" || strings.HasPrefix(test.want.Message, "not ready after ")
			degraded := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[late]
			g.Expect(condition(status, v1.ConditionDegraded).Status).To(Equal(degraded))
			failing := []string{}
			for _, o := range status.Operands {
				if o.State == v1.OperandDegraded {
					failing = append(failing, o.Name)
				}
			}
			g.Expect(strings.Join(failing, " ")).To(Equal(test.operand))
		})
	}
}

// TestMissingPods: a pod that a node lacks has its cause, and the DaemonSet that would place it.
func TestMissingPods(t *testing.T) {
	taint := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	quota := map[string]assess.CreateFailure{"driver": {Reason: v1.ReasonQuotaExceeded, Message: "exceeded quota: small"}}
	tests := map[string]struct {
		failures map[string]assess.CreateFailure
		change   func(*bed)
		reason   string
		message  string
		degraded bool
		operand  string
	}{
		"not made yet": {reason: "PodMissing", message: "DaemonSet driver has not created a pod on the node yet", operand: "ready on 1/2 nodes"},
		"kept off by a taint": {
			change: func(b *bed) {
				b.snapshot.Nodes[0].Object.Spec.Taints = []corev1.Taint{taint}
				b.snapshot.DaemonSets["driver"].Status.DesiredNumberScheduled = 1
			},
			reason: "UntoleratedTaint", message: "taint team=ml:NoSchedule is not tolerated by DaemonSet driver: add a toleration to spec.daemonsets.tolerations",
			operand: "kept off 1 of 2 nodes: node-00000 (UntoleratedTaint)",
		},
		"refused by a quota": {
			failures: quota, reason: "QuotaExceeded", message: "DaemonSet driver cannot create its pod: exceeded quota: small", degraded: true,
			operand: "fails on 1 of 2 nodes: node-00000 (QuotaExceeded)",
		},
		"kept off by a taint, where a quota refuses others": {
			failures: quota, change: func(b *bed) { b.snapshot.Nodes[0].Object.Spec.Taints = []corev1.Taint{taint} },
			reason: "UntoleratedTaint", message: "taint team=ml:NoSchedule is not tolerated by DaemonSet driver: add a toleration to spec.daemonsets.tolerations",
			operand: "ready on 1/2 nodes",
		},
		"a quota refuses pods of another": {
			failures: map[string]assess.CreateFailure{"device-plugin": quota["driver"]},
			reason:   "PodMissing", message: "DaemonSet driver has not created a pod on the node yet", operand: "ready on 1/2 nodes",
		},
		"not selected yet": {
			change: func(b *bed) {
				b.snapshot.DaemonSets["driver"].Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy.driver": "true"}
			},
			reason: "PodMissing", message: "no DaemonSet of driver selects the node yet", operand: "ready on 1/2 nodes",
		},
		"without a DaemonSet": {
			change: func(b *bed) { delete(b.snapshot.DaemonSets, "driver") },
			reason: "PodMissing", message: "driver has no pod on the node yet", operand: "its DaemonSets are being created",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBed(t, 2)
			delete(b.snapshot.Pods["node-00000"], "driver")
			if test.change != nil {
				test.change(b)
			}
			b.createFailures = test.failures
			pass := b.pass()
			status := Compute(&v1.ClusterPolicy{}, pass)
			g.Expect(status.Nodes[0]).To(And(HaveField("Name", "node-00000"), HaveField("Stage", v1.StageDriver), HaveField("Operand", "driver"),
				HaveField("Reason", test.reason), HaveField("Message", test.message)))
			g.Expect(status.Nodes[1]).To(HaveField("Ready", true))
			state := metrics.Progressing
			if test.degraded {
				state = metrics.Degraded
			}
			g.Expect(Places(pass.Fleet)).To(Equal(map[metrics.Place]int{
				{Stage: v1.StageDriver, State: state}: 1, {Stage: v1.StageValidated, State: metrics.Ready}: 1,
			}))
			g.Expect(operandOf(t, status, "driver")).To(HaveField("Message", test.operand))
		})
	}
}
