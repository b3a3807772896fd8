package readiness_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func TestDaemonSet(t *testing.T) {
	set := func(
		generation, observed int64, desired, updated int32, strategy appsv1.DaemonSetUpdateStrategyType,
	) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Spec:       appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: strategy}},
			Status: appsv1.DaemonSetStatus{
				ObservedGeneration:     observed,
				DesiredNumberScheduled: desired,
				UpdatedNumberScheduled: updated,
			},
		}
	}
	const rolls, onDelete = appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType
	tests := map[string]struct {
		set      *appsv1.DaemonSet
		expected int
		want     readiness.Verdict
	}{
		"scheduled on all nodes":          {set: set(2, 2, 3, 3, rolls), expected: 3},
		"scheduled on more than expected": {set: set(2, 2, 4, 4, rolls), expected: 3},
		"none expected, none scheduled":   {set: set(1, 1, 0, 0, rolls)},
		"not observed yet": {
			set: set(2, 1, 3, 3, rolls), expected: 3,
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "RollingOut",
				Message: "the DaemonSet controller has not observed the change yet",
			},
		},
		"0 of 0 is no success where 3 are expected": {
			set: set(1, 1, 0, 0, rolls), expected: 3,
			want: readiness.Verdict{
				State: readiness.Progressing, Reason: "NotScheduled",
				Message: "scheduled on 0 of 3 nodes",
			},
		},
		"scheduled on fewer than expected": {
			set: set(1, 1, 2, 2, onDelete), expected: 3,
			want: readiness.Verdict{
				State: readiness.Progressing, Reason: "NotScheduled",
				Message: "scheduled on 2 of 3 nodes",
			},
		},
		"rolling": {
			set: set(2, 2, 3, 1, rolls), expected: 3,
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "RollingOut",
				Message: "updated on 1 of 3 nodes",
			},
		},
		"OnDelete does not roll": {set: set(2, 2, 3, 1, onDelete), expected: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, verdictOn(test.set, test.expected)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// verdictOn returns the verdict on an operand with one DaemonSet, as package status computes it.
func verdictOn(set *appsv1.DaemonSet, expected int) readiness.Verdict {
	if verdict := readiness.DaemonSet(set); verdict.State != readiness.Ready {
		return verdict
	}
	return readiness.CheckScheduled(int(set.Status.DesiredNumberScheduled), expected)
}

func TestNodeReturnsTheFirstStageThatIsNotReady(t *testing.T) {
	failing := readiness.Verdict{State: readiness.Failed, Reason: "X", Message: "x"}
	starting := readiness.Verdict{State: readiness.Progressing, Reason: "Y", Message: "y"}
	outdated := readiness.Verdict{Outdated: true, Reason: "UpgradePending", Message: "z"}
	stages := func(driver, toolkit, validator readiness.Verdict) []readiness.StageVerdict {
		return []readiness.StageVerdict{
			{Stage: v1.StageDiscovered}, {Stage: v1.StageDriver, Operand: "driver", Verdict: driver},
			{
				Stage:   v1.StageToolkit,
				Operand: "toolkit",
				Verdict: toolkit,
			}, {Stage: v1.StageValidated, Operand: "validator", Verdict: validator},
		}
	}
	ok := readiness.Verdict{}
	tests := map[string]struct {
		stages []readiness.StageVerdict
		want   readiness.NodeVerdict
	}{
		"no stages": {want: readiness.NodeVerdict{Stage: v1.StageValidated}},
		"all ready": {stages: stages(ok, ok, ok), want: readiness.NodeVerdict{Stage: v1.StageValidated}},
		"one is starting": {
			stages: stages(ok, starting, ok),
			want:   readiness.NodeVerdict{Stage: v1.StageToolkit, Operand: "toolkit", Verdict: starting},
		},
		"the first counts, not the worst": {
			stages: stages(starting, failing, failing),
			want:   readiness.NodeVerdict{Stage: v1.StageDriver, Operand: "driver", Verdict: starting},
		},
		"an outdated operand is ready and reported": {
			stages: stages(outdated, ok, ok),
			want:   readiness.NodeVerdict{Stage: v1.StageValidated, Operand: "driver", Verdict: outdated},
		},
		"the first outdated operand is reported": {
			stages: stages(ok, outdated, readiness.Verdict{Outdated: true, Reason: "later"}),
			want:   readiness.NodeVerdict{Stage: v1.StageValidated, Operand: "toolkit", Verdict: outdated},
		},
		"a failure takes precedence over an outdated operand": {
			stages: stages(outdated, ok, failing),
			want:   readiness.NodeVerdict{Stage: v1.StageValidated, Operand: "validator", Verdict: failing},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, readiness.Node(test.stages)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestKubelet(t *testing.T) {
	tests := map[string]struct {
		status corev1.ConditionStatus
		want   readiness.Verdict
	}{
		"ready": {status: corev1.ConditionTrue},
		"unknown": {
			status: corev1.ConditionUnknown,
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "NodeUnreachable",
				Message: "the kubelet stopped posting node status",
			},
		},
		"not ready": {
			status: corev1.ConditionFalse,
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "NodeNotReady",
				Message: "the node is not ready: KubeletNotReady",
			},
		},
		"no condition yet": {
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "NodeNotReady",
				Message: "the kubelet has not reported the condition Ready of the node yet",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			if test.status != "" {
				node.Status.Conditions = []corev1.NodeCondition{
					{
						Type:   corev1.NodeMemoryPressure,
						Status: corev1.ConditionTrue,
					}, {Type: corev1.NodeReady, Status: test.status, Reason: "KubeletNotReady"},
				}
			}
			if diff := cmp.Diff(test.want, readiness.Kubelet(node)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAllocatable(t *testing.T) {
	none := readiness.Verdict{
		State:   readiness.Progressing,
		Reason:  "NotAllocatable",
		Message: "the node has no allocatable GPU",
	}
	unhealthy := readiness.Verdict{State: readiness.Progressing, Reason: "NotAllocatable",
		Message: "the device plugin is restarting or reports all GPUs as unhealthy"}
	tests := map[string]struct {
		resources, capacity map[corev1.ResourceName]string
		want                readiness.Verdict
	}{
		"whole GPUs":  {resources: map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}},
		"shared GPUs": {resources: map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "8"}},
		"MIG devices": {resources: map[corev1.ResourceName]string{"nvidia.com/mig-1g.5gb": "7"}},
		"MIG devices, no whole GPU": {
			resources: map[corev1.ResourceName]string{"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7"},
		},
		"none are allocatable": {resources: map[corev1.ResourceName]string{"nvidia.com/gpu": "0"}, want: none},
		"all GPUs are unhealthy": {
			resources: map[corev1.ResourceName]string{
				"nvidia.com/gpu": "0",
			},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "8"},
			want:     unhealthy,
		},
		"some GPUs are unhealthy": {
			resources: map[corev1.ResourceName]string{
				"nvidia.com/gpu": "3",
			},
			capacity: map[corev1.ResourceName]string{"nvidia.com/gpu": "8"},
		},
		"GPUs of another vendor": {
			resources: map[corev1.ResourceName]string{"cpu": "8", "amd.com/gpu": "8"},
			want:      none,
		},
		"similar resource names": {
			resources: map[corev1.ResourceName]string{"nvidia.com/gpumem": "8", "nvidia.com/hostdev": "1"}, want: none,
		},
		"nothing": {want: none},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}, Capacity: corev1.ResourceList{}},
			}
			for resourceName, quantity := range test.resources {
				node.Status.Allocatable[resourceName] = resource.MustParse(quantity)
			}
			for resourceName, quantity := range test.capacity {
				node.Status.Capacity[resourceName] = resource.MustParse(quantity)
			}
			if diff := cmp.Diff(test.want, readiness.Allocatable(node)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
