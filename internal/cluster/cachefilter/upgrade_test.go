package cachefilter_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// upgradedNode is a node in the middle of an upgrade.
func upgradedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{labels.UpgradeState: "pod-restart-required", labels.Pool: "p", "team": "ml"},
			Annotations: map[string]string{
				labels.UpgradeRecord: "{}", labels.UpgradeRequested: "true", labels.UpgradeInitialCordon: "true", "team": "ml",
			},
		},
		Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "boot", KernelVersion: "6.8"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: labels.ConditionGPUReady, Status: corev1.ConditionTrue},
			},
		},
	}
}

// pullPod is a pod that pulls an image.
func pullPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pull", Labels: map[string]string{labels.DriverPull: labels.True, labels.ManagedBy: labels.ManagedByValue},
			Annotations: map[string]string{labels.TemplateDigest: "d"},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "example.com/driver:1", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
			},
		}}},
	}
}

func TestTrimKeepsWhatUpgradesReadOfANode(t *testing.T) {
	node := upgradedNode()
	small := trimmed(t, cachefilter.TrimNode, node.DeepCopy())
	if !small.Spec.Unschedulable || small.Status.NodeInfo.BootID != "boot" {
		t.Errorf("trimmed to %+v", small)
	}
	delete(node.Annotations, "team")
	if diff := cmp.Diff(node.Annotations, small.Annotations); diff != "" {
		t.Errorf("annotations, -wanted +trimmed:\n%s", diff)
	}
}

func TestTrimKeepsWhatUpgradesReadOfAPod(t *testing.T) {
	for _, pod := range append(allPods(), pullPod()) {
		small := trimmed(t, trimPod, pod.DeepCopy())
		if diff := cmp.Diff(observe.UpgradePod(pod, now), observe.UpgradePod(small, now)); diff != "" {
			t.Errorf("%s: -whole +trimmed:\n%s", pod.Name, diff)
		}
	}
}

func TestUpgradeNodeChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a cordon": {change: func(n *corev1.Node) { n.Spec.Unschedulable = false }, want: true},
		"a reboot": {change: func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, want: true},
		"the kubelet is down": {
			change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
			want:   true,
		},
		"another state":        {change: func(n *corev1.Node) { n.Labels[labels.UpgradeState] = "upgrade-done" }, want: true},
		"no state":             {change: func(n *corev1.Node) { delete(n.Labels, labels.UpgradeState) }, want: true},
		"an exclusion":         {change: func(n *corev1.Node) { n.Labels[labels.UpgradeSkip] = labels.True }, want: true},
		"another pool":         {change: func(n *corev1.Node) { n.Labels[labels.Pool] = "q" }, want: true},
		"another record":       {change: func(n *corev1.Node) { n.Annotations[labels.UpgradeRecord] = "{ }" }, want: true},
		"the end of a request": {change: func(n *corev1.Node) { delete(n.Annotations, labels.UpgradeRequested) }, want: true},
		"a label of others":    {change: func(n *corev1.Node) { n.Labels["team"] = "x" }},
		"a deploy label":       {change: func(n *corev1.Node) { n.Labels["nvidia.com/gpu.deploy.dcgm"] = labels.True }},
		"the GPU condition, which the fleet reports": {
			change: func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse },
		},
		"a heartbeat": {change: func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := upgradedNode()
			test.change(after)
			got := cachefilter.UpgradeNodeChanges().Update(event.UpdateEvent{
				ObjectOld: trimmed(t, cachefilter.TrimNode, upgradedNode()), ObjectNew: trimmed(t, cachefilter.TrimNode, after),
			})
			if got != test.want {
				t.Errorf("passes: %v", got)
			}
		})
	}
}

func TestUpgradePodChanges(t *testing.T) {
	driver := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{labels.Operand: "driver"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
	unloaded := func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: labels.DriverManagerContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		}}
	}
	tests := map[string]struct {
		before *corev1.Pod
		change func(*corev1.Pod)
		want   bool
	}{
		"the driver manager has finished": {before: driver, change: unloaded, want: true},
		"the driver pod is being deleted": {
			before: driver,
			change: func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
			want:   true,
		},
		"the driver pod has another reason": {
			before: driver,
			change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			want:   true,
		},
		"nothing that is read": {before: driver, change: func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.1" }},
		"an image is pulled": {before: pullPod(), change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1},
			}
		}, want: true},
		"an image cannot be pulled": {before: pullPod(), change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
		}, want: true},
		"another operand": {before: driver, change: func(p *corev1.Pod) {
			p.Labels, p.DeletionTimestamp = map[string]string{labels.Operand: "dcgm"}, new(metav1.Now())
		}},
	}
	isOperand := func(name string) bool { return name == "driver" }
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := test.before.DeepCopy()
			test.change(after)
			got := cachefilter.UpgradePodChanges(isOperand).Update(event.UpdateEvent{
				ObjectOld: trimmed(t, trimPod, test.before.DeepCopy()), ObjectNew: trimmed(t, trimPod, after),
			})
			if got != test.want {
				t.Errorf("passes: %v", got)
			}
		})
	}
}
