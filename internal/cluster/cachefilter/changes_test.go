package cachefilter_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

const operandLabel = "nvidia.com/gpu-operator.operand"

func TestNodeChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {change: func(n *corev1.Node) {
			n.ResourceVersion = "8"
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
		}},
		"images":                  {change: func(n *corev1.Node) { n.Status.Images = nil }},
		"an annotation of others": {change: func(n *corev1.Node) { n.Annotations["other"] = "y" }},
		"memory pressure": {
			change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue },
		},
		"fewer GPUs, but some": {
			change: func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("7") },
			want:   true,
		},
		"other devices": {
			change: func(n *corev1.Node) {
				n.Status.Capacity = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}
			},
			want: true,
		},
		"another resource": {
			change: func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("4") },
		},
		"a label": {
			change: func(n *corev1.Node) { n.Labels["nvidia.com/gpu.deploy.driver"] = "false" },
			want:   true,
		},
		"no GPU left": {
			change: func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0") },
			want:   true,
		},
		"the kubelet is unreachable": {
			change: func(n *corev1.Node) { n.Status.Conditions[2].Status = corev1.ConditionUnknown },
			want:   true,
		},
		"the condition is removed": {
			change: func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[2:] },
			want:   true,
		},
		"another container runtime": {
			change: func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = "docker://28" },
			want:   true,
		},
		"another distribution": {
			change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.34.1+k3s1" },
			want:   true,
		},
		"a label of others": {change: func(n *corev1.Node) { n.Labels["example.com/rack"] = "b" }},
		"a selector label is added": {
			change: func(n *corev1.Node) { n.Labels["example.com/tier"] = "gpu" },
			want:   true,
		},
		"a selector label is removed": {
			change: func(n *corev1.Node) { delete(n.Labels, "example.com/pool") },
			want:   true,
		},
		"a label of a distribution": {
			change: func(n *corev1.Node) { n.Labels["microk8s.io/cluster"] = "true" },
			want:   true,
		},
		"a MIG layout": {
			change: func(n *corev1.Node) { n.Labels["nvidia.com/mig.config"] = "all-balanced" },
			want:   true,
		},
		"a discovery label": {
			change: func(n *corev1.Node) { n.Labels["feature.node.kubernetes.io/kernel-version.full"] = "7" },
			want:   true,
		},
		"another kernel":                      {change: func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "7" }},
		"a condition written by the operator": {change: func(n *corev1.Node) { n.Status.Conditions[1].Reason = "Written" }},
		"a condition and a record written by the operator": {change: func(n *corev1.Node) {
			n.Status.Conditions[1].Reason, n.Annotations[labels.ReportRecord] = "Written", "{}"
		}},
		"where the faults end, written by another writer": {change: func(n *corev1.Node) {
			n.Status.Conditions[1].Reason, n.Annotations[labels.ReportRecord] = "Written", `{"faultsEnd":3}`
		}, want: true},
		"a record written by another writer": {
			change: func(n *corev1.Node) { n.Annotations[labels.ReportRecord] = "{}" }, want: true,
		},
		"a condition written by another writer": {
			change: func(n *corev1.Node) { n.Status.Conditions[1].Reason = "Y" },
			want:   true,
		},
		"the same, and the kubelet is unreachable": {change: func(n *corev1.Node) {
			n.Status.Conditions[1].Reason, n.Status.Conditions[2].Status = "Written", corev1.ConditionUnknown
		}, want: true},
		"a condition written for another node": {
			change: func(n *corev1.Node) { n.Name, n.Status.Conditions[1].Reason = "b", "Written" },
			want:   true,
		},
		"a taint":  {change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, want: true},
		"a cordon": {change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: true},
		"a discovery annotation": {change: func(n *corev1.Node) {
			delete(n.Annotations, "nvidia.com/gpu-operator.discovery-lost-since")
		}, want: true},
	}
	var whole *corev1.Node
	for _, node := range allNodes() {
		if node.Name == "node-1-8-" {
			whole = node
		}
	}
	whole.Labels["example.com/pool"] = "gpu"
	selects := func(label string) bool { return label == "example.com/pool" || label == "example.com/tier" }
	// written reports this condition of this node as the operator's.
	written := func(node *corev1.Node) bool {
		own := readiness.NodeCondition(node, labels.ConditionGPUReady)
		return node.Name == "node-1-8-" && own != nil && own.Reason == "Written"
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := whole.DeepCopy()
			test.change(after)
			// Predicates get trimmed objects.
			update := event.UpdateEvent{
				ObjectOld: trimmed(t, cachefilter.TrimNode, whole.DeepCopy()),
				ObjectNew: trimmed(t, cachefilter.TrimNode, after),
			}
			if got := cachefilter.NodeChanges(selects, written).Update(update); got != test.want {
				t.Errorf("passes: %v", got)
			}
		})
	}
}

func TestPolicyChanges(t *testing.T) {
	before := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec:       v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(true)}},
	}
	tests := map[string]struct {
		change func(*v1.ClusterPolicy)
		want   bool
	}{
		"a status": {
			change: func(p *v1.ClusterPolicy) { p.Status.State, p.ResourceVersion = v1.StateReady, "8" },
		},
		"a label":       {change: func(p *v1.ClusterPolicy) { p.Labels = map[string]string{"a": "b"} }},
		"an annotation": {change: func(p *v1.ClusterPolicy) { p.Annotations = map[string]string{"a": "b"} }},
		"the notes of the chart": {
			change: func(p *v1.ClusterPolicy) {
				p.Annotations = map[string]string{"nvidia.com/gpu-operator.chart-notes": "a"}
			},
			want: true,
		},
		"a part that cannot be decoded": {
			change: func(p *v1.ClusterPolicy) { p.Annotations = map[string]string{labels.Undecodable: "spec.a"} },
			want:   true,
		},
		"the finalizer, which another watch passes": {change: func(p *v1.ClusterPolicy) { p.Finalizers = nil }},
		"another spec": {
			change: func(p *v1.ClusterPolicy) { p.Generation, p.Spec.Driver.Enabled = 3, new(false) },
			want:   true,
		},
		"a deletion": {
			change: func(p *v1.ClusterPolicy) { p.Generation, p.DeletionTimestamp = 3, new(metav1.Now()) },
			want:   true,
		},
		"a field that an old CRD dropped": {
			change: func(p *v1.ClusterPolicy) { p.Spec.GDRCopy = &v1.GDRCopySpec{Enabled: new(true)} },
			want:   true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			test.change(after)
			update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			if got := cachefilter.PolicyChanges().Update(update); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Only updates by which another client reverts a status or the finalizer pass.
func TestPolicyReverts(t *testing.T) {
	written := v1.ClusterPolicyStatus{State: v1.StateReady, Namespace: "gpu-operator"}
	changes := cachefilter.PolicyReverts(func(p *v1.ClusterPolicy) bool { return p.Status.State == v1.StateReady })
	before := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{labels.RemovalFinalizer}}, Status: written,
	}
	for name, test := range map[string]struct {
		change func(*v1.ClusterPolicy)
		want   bool
	}{
		"another client empties it": {func(p *v1.ClusterPolicy) { p.Status = v1.ClusterPolicyStatus{} }, true},
		"another client removes the conditions": {func(p *v1.ClusterPolicy) {
			p.Status.State, p.Status.Conditions = v1.StateNotReady, nil
		}, true},
		"the operator writes it":              {func(p *v1.ClusterPolicy) { p.Status.ObservedGeneration = 2 }, false},
		"the operator's finalizer is removed": {func(p *v1.ClusterPolicy) { p.Finalizers = nil }, true},
		"a label":                             {func(p *v1.ClusterPolicy) { p.Labels = map[string]string{"a": "b"} }, false},
		"a spec":                              {func(p *v1.ClusterPolicy) { p.Generation = 2 }, false},
	} {
		after := before.DeepCopy()
		test.change(after)
		if got := changes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
			t.Errorf("%s: passes %t", name, got)
		}
	}
	if changes.Create(event.CreateEvent{Object: before}) || changes.Delete(event.DeleteEvent{Object: before}) ||
		changes.Generic(event.GenericEvent{Object: before}) {
		t.Error("an event that is no update passes")
	}
}

func TestPodChanges(t *testing.T) {
	crash := func(state corev1.ContainerState, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: "main", State: state, RestartCount: restarts,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		}
	}
	backOff := corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"},
	}
	later := corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s"},
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	before := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "p",
			Labels:      map[string]string{"a": "b", operandLabel: "driver"},
			Annotations: map[string]string{templateDigest: "d"},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			},
			ContainerStatuses: []corev1.ContainerStatus{crash(backOff, 4)},
		},
	}
	recovers := func(p *corev1.Pod) {
		p.Status.Conditions[1].Status = corev1.ConditionTrue
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))},
		}
		p.Status.ContainerStatuses[0].Ready = true
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a restart":                   {change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0] = crash(backOff, 5) }},
		"a longer back-off":           {change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0] = crash(later, 4) }},
		"running between two crashes": {change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0] = crash(running, 5) }},
		"an annotation of others":     {change: func(p *corev1.Pod) { p.Annotations["other"] = "x" }},
		"it is ready":                 {change: recovers, want: true},
		"it is being deleted": {
			change: func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
			want:   true,
		},
		"it has been scheduled":         {change: func(p *corev1.Pod) { p.Spec.NodeName = "b" }, want: true},
		"it is of another template":     {change: func(p *corev1.Pod) { p.Annotations[templateDigest] = "e" }, want: true},
		"it belongs to another operand": {change: func(p *corev1.Pod) { p.Labels[operandLabel] = "dcgm" }, want: true},
		"a label of others":             {change: func(p *corev1.Pod) { p.Labels["a"] = "c" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			test.change(after)
			update := event.UpdateEvent{ObjectOld: trimmed(t, trimPod, before.DeepCopy()), ObjectNew: trimmed(t, trimPod, after)}
			if got := cachefilter.PodChanges().Update(update); got != test.want {
				t.Errorf("passes: %v", got)
			}
		})
	}
}

// A container without probes is ready whenever it runs. In a crash loop its starts do not pass, unless the previous
// verdict had no Until at which the node is assessed again.
func TestStartsInACrashLoopDoNotPass(t *testing.T) {
	started := func(ago time.Duration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "a"},
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "main", Ready: true,
					State: corev1.ContainerState{
						Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-ago))},
					},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
				}},
			},
		}
	}
	if cachefilter.PodChanges().Update(event.UpdateEvent{
		ObjectOld: started(20 * time.Second),
		ObjectNew: started(time.Second),
	}) {
		t.Error("passes")
	}
	ended := started(time.Second)
	ended.Status.Conditions[0].Status = corev1.ConditionFalse
	ended.Status.Conditions = append(ended.Status.Conditions, corev1.PodCondition{
		Type:   corev1.PodScheduled,
		Status: corev1.ConditionTrue,
	})
	status := &ended.Status.ContainerStatuses[0]
	status.Ready, status.State = false, corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
	}
	if cachefilter.PodChanges().Update(event.UpdateEvent{ObjectOld: started(time.Second), ObjectNew: ended}) {
		t.Error("its end passes")
	}
	if !cachefilter.PodChanges().Update(event.UpdateEvent{ObjectOld: ended, ObjectNew: started(time.Second)}) {
		t.Error("a start after a failure does not pass")
	}
}

func TestEventsOtherThanUpdatesPass(t *testing.T) {
	p := cachefilter.NodeChanges(
		func(string) bool { return false },
		func(*corev1.Node) bool { return true },
	)
	if !p.Create(event.CreateEvent{Object: &corev1.Node{}}) || !p.Delete(event.DeleteEvent{Object: &corev1.Node{}}) {
		t.Error("the creation or deletion of a node does not pass")
	}
}
