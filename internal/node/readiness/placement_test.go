package readiness_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// The cases follow the documented rules of the DaemonSet controller.
func TestMissingPod(t *testing.T) {
	const (
		noSchedule = corev1.TaintEffectNoSchedule
		noExecute  = corev1.TaintEffectNoExecute
		prefer     = corev1.TaintEffectPreferNoSchedule
	)
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	const pending = "DaemonSet driver has not created a pod on the node yet"
	untolerated := func(taint string) string {
		return "taint " + taint +
			" is not tolerated by DaemonSet driver: add a toleration to spec.daemonsets.tolerations"
	}
	tests := map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		hostNetwork bool
		kubelet     corev1.ConditionStatus
		want        string
		reason      string
	}{
		"no taint": {want: pending},
		"not tolerated": {
			taints: []corev1.Taint{taint("team", "ml", noExecute)},
			want:   untolerated("team=ml:NoExecute"),
		},
		"without a value": {
			taints: []corev1.Taint{taint("team", "", noSchedule)},
			want:   untolerated("team:NoSchedule"),
		},
		"only preferred": {taints: []corev1.Taint{taint("team", "ml", prefer)}, want: pending},
		"tolerated": {
			taints:      []corev1.Taint{taint("team", "ml", noSchedule)},
			tolerations: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}},
			want:        pending,
		},
		"another value": {
			taints:      []corev1.Taint{taint("team", "ml", noSchedule)},
			tolerations: []corev1.Toleration{{Key: "team", Value: "hpc"}},
			want:        untolerated("team=ml:NoSchedule"),
		},
		"the second of two": {
			taints:      []corev1.Taint{taint("a", "", noSchedule), taint("b", "", noSchedule)},
			tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
			want:        untolerated("b:NoSchedule"),
		},
		"cordoned with a value": {
			taints: []corev1.Taint{taint("node.kubernetes.io/unschedulable", "a", noSchedule)},
			want:   pending,
		},
		"not ready": {
			taints: []corev1.Taint{taint("node.kubernetes.io/not-ready", "", noExecute)},
			want:   pending,
		},
		"not ready, NoSchedule": {
			taints: []corev1.Taint{
				taint("node.kubernetes.io/not-ready", "", noSchedule),
			},
			kubelet: corev1.ConditionFalse,
			want:    "DaemonSet driver creates no pod on the node: the node is not ready: KubeletNotReady",
			reason:  "NodeNotReady",
		},
		"unreachable": {
			taints: []corev1.Taint{
				taint("team", "ml", prefer),
				taint("node.kubernetes.io/unreachable", "", noSchedule),
				taint("node.kubernetes.io/unreachable", "", noExecute),
			},
			kubelet: corev1.ConditionUnknown,
			want:    "DaemonSet driver creates no pod on the node: the kubelet stopped posting node status",
			reason:  "NodeUnreachable",
		},
		"unreachable, and another taint not tolerated": {
			taints: []corev1.Taint{
				taint("node.kubernetes.io/unreachable", "", noSchedule),
				taint("team", "ml", noSchedule),
			},
			kubelet: corev1.ConditionUnknown, want: untolerated("team=ml:NoSchedule"),
		},
		"unreachable taint, but the kubelet is ready": {
			taints: []corev1.Taint{
				taint("node.kubernetes.io/unreachable", "", noSchedule),
			},
			kubelet: corev1.ConditionTrue,
			want:    untolerated("node.kubernetes.io/unreachable:NoSchedule"),
		},
		"network unavailable": {
			taints: []corev1.Taint{taint("node.kubernetes.io/network-unavailable", "", noSchedule)},
			want:   untolerated("node.kubernetes.io/network-unavailable:NoSchedule"),
		},
		"hostNetwork": {
			taints:      []corev1.Taint{taint("node.kubernetes.io/network-unavailable", "", noSchedule)},
			hostNetwork: true,
			want:        pending,
		},
		"all taints tolerated": {
			taints:      []corev1.Taint{taint("a", "", noExecute)},
			tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			want:        pending,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}
			ds.Spec.Template.Spec.Tolerations, ds.Spec.Template.Spec.HostNetwork = test.tolerations, test.hostNetwork
			reason := cmp.Or(test.reason, "UntoleratedTaint")
			if test.want == pending {
				reason = "PodMissing"
			}
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: cmp.Or(test.kubelet, corev1.ConditionTrue), Reason: "KubeletNotReady"},
			}
			g.Expect(readiness.MissingPod(ds, node)).
				To(Equal(readiness.Verdict{State: readiness.Progressing, Reason: reason, Message: test.want}))
			g.Expect(ds.Spec.Template.Spec.Tolerations).To(Equal(test.tolerations), "the cached object is not modified")
		})
	}
}

// The controller adds these tolerations, with one effect each. The one for the network is for pods of the host's.
func TestTaintsThatAllDaemonSetsTolerate(t *testing.T) {
	for key, tolerated := range map[string]corev1.TaintEffect{
		"node.kubernetes.io/not-ready":           corev1.TaintEffectNoExecute,
		"node.kubernetes.io/unreachable":         corev1.TaintEffectNoExecute,
		"node.kubernetes.io/disk-pressure":       corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/memory-pressure":     corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/pid-pressure":        corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/unschedulable":       corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/network-unavailable": corev1.TaintEffectNoSchedule,
	} {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			for _, host := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s:%s, host's network %v", key, effect, host), func(t *testing.T) {
					ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}
					ds.Spec.Template.Spec.HostNetwork = host
					node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: effect}}}}
					node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
					want := "UntoleratedTaint"
					if effect == tolerated && (host || !strings.HasSuffix(key, "network-unavailable")) {
						want = "PodMissing"
					}
					NewWithT(t).Expect(readiness.MissingPod(ds, node).Reason).To(Equal(want))
				})
			}
		}
	}
}

func TestSelects(t *testing.T) {
	require := func(operator corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
		return &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{
						MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: "pool", Operator: operator, Values: values},
						},
					},
				},
			}},
		}
	}
	tests := map[string]struct {
		selector map[string]string
		affinity *corev1.Affinity
		want     bool
	}{
		"every node":           {want: true},
		"matching label":       {selector: map[string]string{"pool": "a"}, want: true},
		"one of two labels":    {selector: map[string]string{"pool": "a", "gpu": "true"}},
		"another value":        {selector: map[string]string{"pool": "b"}},
		"matching affinity":    {affinity: require(corev1.NodeSelectorOpIn, "a", "b"), want: true},
		"excluded by affinity": {affinity: require(corev1.NodeSelectorOpNotIn, "a")},
		"affinity to a missing label": {
			selector: map[string]string{"pool": "a"},
			affinity: require(corev1.NodeSelectorOpDoesNotExist),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{}
			ds.Spec.Template.Spec.NodeSelector, ds.Spec.Template.Spec.Affinity = test.selector, test.affinity
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a"}}}
			NewWithT(t).Expect(readiness.Selects(ds, node)).To(Equal(test.want))
		})
	}
}
