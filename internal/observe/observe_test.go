package observe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

const (
	templateDigest = "nvidia.com/gpu-operator.template-digest"
	operandLabel   = "nvidia.com/gpu-operator.operand"
)

func TestFacts(t *testing.T) {
	const nfd = "feature.node.kubernetes.io/"
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
			},
		}
	}
	facts := func(change func(*nodeinfo.Facts)) nodeinfo.Facts {
		f := nodeinfo.Facts{
			Name: "a", Architecture: "amd64", Runtime: "containerd", RuntimeVersion: "2.2.1",
			Deploy: map[string]string{},
		}
		change(&f)
		return f
	}
	discovered := func(f *nodeinfo.Facts) { f.HasGPU, f.Discovered = true, true }
	tests := map[string]struct {
		labels map[string]string
		want   nodeinfo.Facts
	}{
		"no labels":             {want: facts(func(*nodeinfo.Facts) {})},
		"a device of any class": {labels: map[string]string{nfd + "pci-10de.present": "true"}, want: facts(discovered)},
		"a 3D controller": {
			labels: map[string]string{nfd + "pci-0302_10de.present": "true"},
			want:   facts(discovered),
		},
		"a VGA controller": {
			labels: map[string]string{nfd + "pci-0300_10de.present": "true"},
			want:   facts(discovered),
		},
		"a removed device": {
			labels: map[string]string{nfd + "pci-10de.present": "false"},
			want:   facts(func(f *nodeinfo.Facts) { f.Discovered = true }),
		},
		"a GPU of another vendor": {
			labels: map[string]string{nfd + "pci-1002.present": "true"},
			want:   facts(func(f *nodeinfo.Facts) { f.Discovered = true }),
		},
		"Red Hat CoreOS in its pool": {
			labels: map[string]string{
				nfd + "system-os_release.ID": "rhcos", nfd + "system-os_release.OSTREE_VERSION": "418.94.1-0",
				"nvidia.com/gpu-operator.pool": "rhcos4.18-amd64-418.94.1-0", "nvidia.com/gpu-operator.pool-coreos": "418.94.1-0",
			},
			want: facts(func(f *nodeinfo.Facts) {
				f.Discovered, f.OSID, f.OSTree = true, "rhcos", "418.94.1-0"
				f.Pool, f.PoolCoreOS = "rhcos4.18-amd64-418.94.1-0", "418.94.1-0"
			}),
		},
		"a former GPU node": {
			labels: map[string]string{"nvidia.com/gpu.present": "true"},
			want:   facts(func(f *nodeinfo.Facts) { f.WasGPU = true }),
		},
		"a released node": {
			labels: map[string]string{"nvidia.com/gpu.present": "false"}, want: facts(func(*nodeinfo.Facts) {}),
		},
		"the operating system and the labels of the stack": {
			labels: map[string]string{
				nfd + "system-os_release.ID":         "ubuntu",
				nfd + "system-os_release.VERSION_ID": "24.04",
				nfd + "kernel-version.full":          "6.8.0",
				"nvidia.com/gpu-operator.pool":       "ubuntu24.04-amd64",
				"nvidia.com/gpu.deploy.driver":       "pre-installed",
			},
			want: facts(func(f *nodeinfo.Facts) {
				f.Discovered, f.OSID, f.OSVersion, f.Kernel, f.Pool = true, "ubuntu", "24.04", "6.8.0", "ubuntu24.04-amd64"
				f.Deploy["driver"] = "pre-installed"
			}),
		},
		"the distribution, and the label that the operator derives from it": {
			labels: map[string]string{"microk8s.io/cluster": "true", "nvidia.com/gpu-operator.runtime": "microk8s"},
			want:   facts(func(f *nodeinfo.Facts) { f.Distribution, f.Layout = "microk8s", "microk8s" }),
		},
		"its workload": {
			labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-vgpu"},
			want:   facts(func(f *nodeinfo.Facts) { f.Workload = "vm-vgpu" }),
		},
		"excluded by a user": {
			labels: map[string]string{"nvidia.com/gpu.deploy.operands": "false"},
			want:   facts(func(f *nodeinfo.Facts) { f.Excluded, f.Deploy["operands"] = true, "false" }),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.Labels = test.labels
			if diff := cmp.Diff(test.want, observe.Facts(node(test.labels))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// nodeInfos show the distribution in each of the fields that are read.
func nodeInfos() []corev1.NodeSystemInfo {
	return []corev1.NodeSystemInfo{
		{Architecture: "arm64", ContainerRuntimeVersion: "cri-o://1.34", KernelVersion: "6"},
		{
			Architecture:            "arm64",
			ContainerRuntimeVersion: "containerd://2.1.4-k3s1",
			KubeletVersion:          "v1.34.1+rke2r1",
			KernelVersion:           "6",
		},
		{
			Architecture:            "arm64",
			ContainerRuntimeVersion: "containerd://2.1.4",
			OSImage:                 "Talos (v1.11.2)",
			KernelVersion:           "6",
		},
	}
}

// allNodes returns nodes that differ in what verdicts depend on, each with the fields that the API server adds.
func allNodes() []*corev1.Node {
	var nodes []*corev1.Node
	for i, ready := range []corev1.ConditionStatus{
		"",
		corev1.ConditionTrue,
		corev1.ConditionFalse,
		corev1.ConditionUnknown,
	} {
		for _, gpus := range []string{"", "0", "8"} {
			for _, mig := range []string{"", "7"} {
				node := &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{
						Name: fmt.Sprintf("node-%d-%s-%s", i, gpus, mig), UID: "u", ResourceVersion: "7",
						Labels: map[string]string{
							"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.deploy.driver": "true",
							"feature.node.kubernetes.io/system-os_release.ID": "rhel", "kubernetes.io/hostname": "x",
						},
						Annotations: map[string]string{
							"nvidia.com/gpu-operator.discovery-lost-since": "2026-01-01T00:00:00Z",
							"other": "x",
						},
						ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
					},
					Spec: corev1.NodeSpec{ProviderID: "x"},
					Status: corev1.NodeStatus{
						NodeInfo: nodeInfos()[len(nodes)%len(nodeInfos())],
						Images:   []corev1.ContainerImage{{Names: []string{"x"}}},
						Allocatable: corev1.ResourceList{
							"cpu": resource.MustParse("8"),
						},
						Conditions: []corev1.NodeCondition{
							{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
							{
								Type:               "nvidia.com/GPUReady",
								Status:             corev1.ConditionFalse,
								Reason:             "X",
								Message:            "y",
								LastTransitionTime: metav1.Unix(5, 0),
							},
						},
					},
				}
				if ready != "" {
					node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
						Type:   corev1.NodeReady,
						Status: ready,
						Reason: "R",
					})
				}
				for name, quantity := range map[corev1.ResourceName]string{"nvidia.com/gpu": gpus, "nvidia.com/mig-1g.5gb": mig} {
					if quantity != "" {
						node.Status.Allocatable[name] = resource.MustParse(quantity)
					}
				}
				if gpus != "" {
					node.Status.Capacity = corev1.ResourceList{
						"cpu":            resource.MustParse("8"),
						"nvidia.com/gpu": resource.MustParse("8"),
					}
				}
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// trimPod is the transform of one cache.
var trimPod = observe.NewPodTrimmer().Pod

func trimmed[T any](t *testing.T, trim func(any) (any, error), object T) T {
	t.Helper()
	small, err := trim(object)
	if err != nil {
		t.Fatal(err)
	}
	result, isT := small.(T)
	if !isT {
		t.Fatalf("trimmed to %T", small)
	}
	return result
}

func TestTrimKeepsWhatIsReadOfANode(t *testing.T) {
	type view struct {
		Facts                nodeinfo.Facts
		Kubelet, Allocatable readiness.Verdict
		Condition            []corev1.NodeCondition
		LostSince            string
		Version              string
	}
	viewOf := func(node *corev1.Node) view {
		v := view{
			observe.Facts(node), readiness.Kubelet(node), readiness.Allocatable(node), nil,
			node.Annotations["nvidia.com/gpu-operator.discovery-lost-since"], node.ResourceVersion,
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == "nvidia.com/GPUReady" {
				v.Condition = append(v.Condition, condition)
			}
		}
		return v
	}
	for _, node := range allNodes() {
		small := trimmed(t, observe.TrimNode, node.DeepCopy())
		if diff := cmp.Diff(viewOf(node), viewOf(small)); diff != "" {
			t.Errorf("%s: -whole +trimmed:\n%s", node.Name, diff)
		}
		if len(small.Status.Images) > 0 || len(small.ManagedFields) > 0 || len(small.Annotations) > 1 {
			t.Errorf("%s keeps fields that are not read", node.Name)
		}
	}
}

var now = time.Unix(1_000_000, 0)

// allPods returns pods with containers in all states, each with the fields that the API server adds.
func allPods() []*corev1.Pod {
	running := corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-10 * time.Second))},
	}
	long := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Hour))}}
	failed := corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "boom", ContainerID: "x"},
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	states := []corev1.ContainerState{
		running,
		long,
		failed,
		ended,
		waiting("PodInitializing"),
		waiting("CrashLoopBackOff"),
		waiting("ErrImagePull"),
		waiting("InvalidImageName"),
	}
	var pods []*corev1.Pod
	for i, init := range states {
		for j, main := range states {
			for k, last := range []corev1.ContainerState{{}, failed, ended} {
				for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
					pods = append(pods, &corev1.Pod{
						ObjectMeta: metav1.ObjectMeta{
							Name:            fmt.Sprintf("pod-%d-%d-%d-%s", i, j, k, ready),
							Labels:          map[string]string{"nvidia.com/gpu-operator.operand": "driver"},
							Annotations:     map[string]string{templateDigest: "d", "other": "x"},
							OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", Controller: new(true)}},
							ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
						},
						Spec: corev1.PodSpec{
							NodeName:       "a",
							InitContainers: []corev1.Container{{Name: "gpu-node-wait", Args: []string{"wait", "--for=driver"}}},
							Containers:     []corev1.Container{{Name: "main"}},
						},
						Status: corev1.PodStatus{
							Phase: corev1.PodRunning,
							Conditions: []corev1.PodCondition{
								{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
								{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
							},
							InitContainerStatuses: []corev1.ContainerStatus{
								{Name: "gpu-node-wait", Image: "i", State: init, RestartCount: 4},
							},
							ContainerStatuses: []corev1.ContainerStatus{
								{
									Name:                 "main",
									Image:                "i",
									State:                main,
									LastTerminationState: last,
									Ready:                ready == corev1.ConditionTrue,
									RestartCount:         7,
								},
							},
						},
					})
				}
			}
		}
	}
	unscheduled := pods[0].DeepCopy()
	unscheduled.Name, unscheduled.Spec.NodeName = "unscheduled", ""
	unscheduled.Spec.Affinity = affinityTo("a")
	unscheduled.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "Insufficient memory"},
	}}
	evicted := pods[0].DeepCopy()
	evicted.Name, evicted.Status = "evicted", corev1.PodStatus{
		Phase:   corev1.PodFailed,
		Reason:  "Evicted",
		Message: "low on memory",
	}
	deleted := pods[0].DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "deleted", &metav1.Time{Time: now}
	return append(pods, unscheduled, evicted, deleted)
}

func affinityTo(node string) *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}},
	}
}

func TestTrimKeepsWhatIsReadOfAPod(t *testing.T) {
	type view struct {
		Verdict, Outdated readiness.Verdict
		Nodes             []string
		Owner             *metav1.OwnerReference
		Labels            map[string]string
	}
	viewOf := func(pod *corev1.Pod) view {
		return view{
			readiness.Pod(pod, "d", now),
			readiness.Pod(pod, "next", now),
			observe.IndexPodNode(pod),
			metav1.GetControllerOf(pod),
			pod.Labels,
		}
	}
	for _, pod := range allPods() {
		small := trimmed(t, trimPod, pod.DeepCopy())
		if diff := cmp.Diff(viewOf(pod), viewOf(small)); diff != "" {
			t.Errorf("%s: -whole +trimmed:\n%s", pod.Name, diff)
		}
		if len(small.ManagedFields) > 0 || len(small.Annotations) > 1 || len(small.Spec.Containers) > 0 {
			t.Errorf("%s keeps fields that are not read", pod.Name)
		}
	}
}

func TestTrimsLeaveOtherObjectsAlone(t *testing.T) {
	other := &corev1.ConfigMap{Data: map[string]string{"a": "b"}}
	for _, trim := range []func(any) (any, error){observe.TrimNode, trimPod} {
		if got, err := trim(other); err != nil || got != any(other) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

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
		"a taint": {change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, want: true},
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
	written := func(node string, condition *corev1.NodeCondition) bool {
		return node == "node-1-8-" && condition.Reason == "Written"
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := whole.DeepCopy()
			test.change(after)
			// Predicates get trimmed objects.
			update := event.UpdateEvent{
				ObjectOld: trimmed(t, observe.TrimNode, whole.DeepCopy()),
				ObjectNew: trimmed(t, observe.TrimNode, after),
			}
			if got := observe.NodeChanges(selects, written).Update(update); got != test.want {
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
		"a label": {change: func(p *v1.ClusterPolicy) { p.Labels = map[string]string{"a": "b"} }},
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
			if got := observe.PolicyChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
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
			if got := observe.PodChanges().Update(update); got != test.want {
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
	if observe.PodChanges().Update(event.UpdateEvent{
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
	if observe.PodChanges().Update(event.UpdateEvent{ObjectOld: started(time.Second), ObjectNew: ended}) {
		t.Error("its end passes")
	}
	if !observe.PodChanges().Update(event.UpdateEvent{ObjectOld: ended, ObjectNew: started(time.Second)}) {
		t.Error("a start after a failure does not pass")
	}
}

func TestEventsOtherThanUpdatesPass(t *testing.T) {
	p := observe.NodeChanges(func(string) bool { return false }, func(string, *corev1.NodeCondition) bool { return true })
	if !p.Create(event.CreateEvent{Object: &corev1.Node{}}) || !p.Delete(event.DeleteEvent{Object: &corev1.Node{}}) {
		t.Error("the creation or deletion of a node does not pass")
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func TestCluster(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Namespace: "gpu-operator"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}},
	).Build()
	snapshot, err := observe.Cluster(t.Context(), c, "gpu-operator")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.DaemonSets).To(And(HaveLen(1), HaveKeyWithValue("ds", HaveField("Name", "ds"))))
	g.Expect(snapshot.Definitions).To(BeEmpty())
}

func TestPodsOnNode(t *testing.T) {
	pod := func(name, namespace, node, operandName string, age time.Duration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: namespace, CreationTimestamp: metav1.NewTime(now.Add(-age)),
				Labels: map[string]string{"nvidia.com/gpu-operator.operand": operandName},
			},
			Spec: corev1.PodSpec{NodeName: node},
		}
	}
	unplaced := pod("unplaced", "gpu-operator", "", "driver", 0)
	unplaced.Spec.Affinity = affinityTo("b")
	deleted := pod("deleted", "gpu-operator", "a", "device-plugin", 0)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		pod("old", "gpu-operator", "a", "driver", time.Hour), pod("young", "gpu-operator", "a", "driver", time.Minute),
		pod("staying", "gpu-operator", "a", "device-plugin", time.Hour), deleted,
		pod("elsewhere", "default", "a", "driver", 0), pod("not an operand", "gpu-operator", "a", "", 0), unplaced,
	).WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).Build()
	for node, want := range map[string]map[operand.Name]string{
		"a": {"driver": "young", "device-plugin": "staying"}, "b": {"driver": "unplaced"}, "c": {},
	} {
		pods, err := observe.PodsOnNode(t.Context(), c, "gpu-operator", node)
		if err != nil {
			t.Fatal(err)
		}
		got := map[operand.Name]string{}
		for name, p := range pods {
			got[name] = p.Name
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("node %s: -want +got:\n%s", node, diff)
		}
	}
}

// Errors state what could not be read.
func TestErrorsStateWhatCouldNotBeRead(t *testing.T) {
	failing := func(fails func(client.ObjectList) bool) client.Client {
		return fake.NewClientBuilder().WithScheme(newScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if fails(list) {
					return errors.New("no cache")
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
	}
	all := func(client.ObjectList) bool { return true }
	definitions := func(list client.ObjectList) bool {
		_, is := list.(*metav1.PartialObjectMetadataList)
		return is
	}
	tests := map[string]func() error{
		"listing DaemonSets": func() error {
			_, err := observe.Cluster(t.Context(), failing(all), "gpu-operator")
			return err
		},
		"listing CustomResourceDefinitions": func() error {
			_, err := observe.Cluster(t.Context(), failing(definitions), "gpu-operator")
			return err
		},
		"listing pods of node a": func() error {
			_, err := observe.PodsOnNode(t.Context(), failing(all), "gpu-operator", "a")
			return err
		},
		"listing ClusterPolicies": func() error {
			_, _, err := observe.Policies(t.Context(), failing(all))
			return err
		},
	}
	for what, read := range tests {
		t.Run(what, func(t *testing.T) {
			NewWithT(t).Expect(read()).To(MatchError(what + ": no cache"))
		})
	}
}

func TestTheOldestPolicyIsInForce(t *testing.T) {
	policy := func(name string, age time.Duration) *v1.ClusterPolicy {
		return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	}
	deleted := policy("deleted", time.Hour)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
	tests := map[string]struct {
		policies []client.Object
		want     string
	}{
		"none":                          {},
		"one":                           {policies: []client.Object{policy("a", 0)}, want: "a"},
		"the older of two":              {policies: []client.Object{policy("a", 0), policy("b", time.Minute)}, want: "b"},
		"of the same second, by name":   {policies: []client.Object{policy("b", 0), policy("a", 0)}, want: "a"},
		"one is being deleted":          {policies: []client.Object{deleted, policy("a", 0)}, want: "a"},
		"the only one is being deleted": {policies: []client.Object{deleted}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(test.policies...).Build()
			active, all, err := observe.Policies(context.Background(), c)
			if err != nil || len(all) != len(test.policies) {
				t.Fatalf("%d of %d policies, %v", len(all), len(test.policies), err)
			}
			got := ""
			if active != nil {
				got = active.Name
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
