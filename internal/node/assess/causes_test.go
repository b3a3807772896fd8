package assess_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// An outdated driver hides no other cause: too few GPUs make the node not ready, and what leaves it ready follows.
func TestCausesBesideAnOutdatedDriver(t *testing.T) {
	const (
		outdated = "driver is outdated: kubectl annotate node a nvidia.com/gpu-driver-upgrade-requested=true"
		lost     = "3 of 8 GPUs usable: the device plugin reports 5 of 8 nvidia.com/gpu as unhealthy"
		usable   = "UpgradePending: a: GPUs can be used; " + outdated
		pending  = "UpgradePending: a: GPUs can be used; driver is outdated: its upgrade is pending"
	)
	record := func(uid, state string) string {
		return `{"uid":"` + uid + `","state":"` + state + `","round":1,"requested":true}`
	}
	for name, test := range map[string]struct {
		usable    int64
		minUsable string
		change    func(*assess.Input)
		want      string
	}{
		"none": {usable: 8, minUsable: "100%", want: usable},
		"a request": {usable: 8, minUsable: "100%", want: pending, change: func(in *assess.Input) {
			in.Node.Annotations = map[string]string{"nvidia.com/gpu-driver-upgrade-requested": "true"}
		}},
		"a request that waits for its turn": {usable: 8, minUsable: "100%", want: pending, change: func(in *assess.Input) {
			in.Node.UID = "u"
			in.Node.Annotations = map[string]string{"nvidia.com/gpu-operator.driver-upgrade": record("u", "upgrade-required")}
		}},
		"a request for another node": {usable: 8, minUsable: "100%", want: usable, change: func(in *assess.Input) {
			in.Node.UID = "u"
			in.Node.Annotations = map[string]string{"nvidia.com/gpu-operator.driver-upgrade": record("v", "upgrade-required")}
		}},
		"a request that was met": {usable: 8, minUsable: "100%", want: usable, change: func(in *assess.Input) {
			in.Node.UID = "u"
			in.Node.Annotations = map[string]string{"nvidia.com/gpu-operator.driver-upgrade": record("u", "upgrade-done")}
		}},
		"too few GPUs": {usable: 3, minUsable: "100%",
			want: "GPUsUnhealthy: a: stage Allocatable: " + lost + "; " + outdated},
		"lost GPUs": {usable: 3, minUsable: "25%", want: usable + "; " + lost},
		"a configuration that is not used": {usable: 8, minUsable: "100%", want: usable + "; no such key",
			change: func(in *assess.Input) { in.NodePlan.PluginConfig = operand.ConfigProblem{Message: "no such key"} }},
		"a held MIG layout": {usable: 8, minUsable: "100%",
			change: func(in *assess.Input) {
				in.NodePlan.Partitioner, in.NodePlan.MIGWanted, in.Tenants = "mig-manager", "all-1g.10gb", []string{"n/p"}
			},
			want: usable + "; MIG layout all-1g.10gb waits for pods n/p to end"},
		"refused pods": {usable: 8, minUsable: "100%", want: usable + "; pods n/p were refused",
			change: func(in *assess.Input) { in.RefusedPods = "pods n/p were refused" }},
	} {
		t.Run(name, func(t *testing.T) {
			driver := driverPod(readiness.Ready)
			driver.OwnerReferences = []metav1.OwnerReference{{Name: "driver", Controller: new(true)}}
			driver.Annotations = map[string]string{"nvidia.com/gpu-operator.template-digest": "old"}
			ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{"nvidia.com/gpu-operator.template-digest": "new"},
			}}
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			in := assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{
						Health: &v1.HealthSpec{MinUsable: new(intstr.Parse(test.minUsable))},
					}),
					Essential:        []plan.OperandOnNode{{Operand: "driver", Stage: v1.StageDriver, Expectation: plan.Expected}},
					NeedsAllocatable: true,
				},
				Node: gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8},
					map[corev1.ResourceName]int64{"nvidia.com/gpu": test.usable}),
				Pods:  assess.Pods{"driver": driver},
				Stack: assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{"driver": ds}}, Now: begin,
			}
			in.NodePlan.Facts.Name = "a"
			if test.change != nil {
				test.change(&in)
			}
			got := assess.Node(in)
			condition := got.Condition("a")
			if found := condition.Reason + ": " + condition.Message; found != test.want {
				t.Errorf("got %q\nwant %q", found, test.want)
			}
			if !got.Outdated || !got.Usable {
				t.Errorf("outdated: %t, usable: %t", got.Outdated, got.Usable)
			}
		})
	}
}
