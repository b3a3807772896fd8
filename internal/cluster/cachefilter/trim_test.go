package cachefilter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

const templateDigest = "nvidia.com/gpu-operator.template-digest"

var trimmedMeta = metav1.ObjectMeta{
	Name: "a", Namespace: "gpu-operator", UID: "u", ResourceVersion: "7",
	Labels:      map[string]string{"nvidia.com/gpu.present": "true"},
	Annotations: map[string]string{"digest": "of another writer", "nvidia.com/gpu-operator.template-digest": "d"},
}

// Trims must be idempotent: client-go trims the initial objects of a watch twice.
func TestTrimsAreIdempotent(t *testing.T) {
	for name, c := range map[string]struct {
		trim   func(any) (any, error)
		object runtime.Object
	}{
		"a Node": {cachefilter.TrimNode, &corev1.Node{ObjectMeta: trimmedMeta, Status: corev1.NodeStatus{
			Capacity:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("1")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Time{Time: time.Unix(1, 0)}}},
		}}},
		"a Pod": {trimPod, &corev1.Pod{
			ObjectMeta: trimmedMeta,
			Spec: corev1.PodSpec{
				RuntimeClassName: new("nvidia"),
				InitContainers:   []corev1.Container{{Name: "gpu-node-wait", Args: []string{"wait"}}, {Name: "other"}},
				Affinity: &corev1.Affinity{
					NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{
							{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}},
						},
					}},
				},
			},
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}},
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "driver-validation", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Message: "validated for driver instance uid\n"},
				}}},
			},
		}},
		"a CRD": {
			cachefilter.TrimCRD,
			&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "CustomResourceDefinition"}, ObjectMeta: trimmedMeta},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once, err := c.trim(c.object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(once).NotTo(Equal(c.object))
			twice, err := c.trim(once)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(twice).To(Equal(once))
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
var trimPod = cachefilter.NewPodTrimmer().Pod

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
		small := trimmed(t, cachefilter.TrimNode, node.DeepCopy())
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
	validated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", Message: "validated for driver instance uid\n",
	}}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	states := []corev1.ContainerState{
		running,
		long,
		failed,
		ended,
		validated,
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
		ValidatedAnother  bool
		Nodes             []string
		Owner             *metav1.OwnerReference
		Labels            map[string]string
	}
	viewOf := func(pod *corev1.Pod) view {
		return view{
			readiness.Pod(pod, "d", now),
			readiness.Pod(pod, "next", now),
			readiness.ValidatedAnother(pod, "another"),
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
	for _, trim := range []func(any) (any, error){cachefilter.TrimNode, trimPod} {
		if got, err := trim(other); err != nil || got != any(other) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// A write replaces the whole list of taints, so the trim must keep all of it.
func TestTrimKeepsTaints(t *testing.T) {
	g := NewWithT(t)
	added := metav1.Now()
	taints := []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}}
	g.Expect(cachefilter.TrimNode(&corev1.Node{
		Spec: corev1.NodeSpec{Taints: taints},
	})).To(HaveField("Spec.Taints", Equal(taints)))
}

// The trim drops nothing that the verdict on a pod depends on.
func TestTrimmedPodsHaveTheSameVerdict(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	ended := func(ago time.Duration, code int32) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ExitCode:   code,
			Message:    "message",
			StartedAt:  metav1.NewTime(at.Add(-ago)),
			FinishedAt: metav1.NewTime(at.Add(-ago)),
		}
	}
	running := corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Add(-10 * time.Second))},
	}
	waits := corev1.Container{Name: "gpu-node-wait", Args: []string{"wait", "--for=driver-ready"}}
	tests := map[string]struct {
		change func(*corev1.Pod)
		stable bool
	}{
		"ready":              {func(*corev1.Pod) {}, true},
		"ready and replaced": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }, true},
		"failed as a whole":  {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, true},
		"not scheduled":      {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"starting":           {func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, false},
		"ready after a failure": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = ended(15*time.Second, 1)
		}, false},
		"ready after a reboot": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = ended(time.Hour, 1)
		}, false},
		"ready with a terminated container": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: ended(0, 0)}
		}, false},
		"without a sandbox": {func(p *corev1.Pod) {
			p.Spec.RuntimeClassName = new("nvidia")
			p.Status.Conditions[1].Status = corev1.ConditionFalse
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type:   corev1.PodReadyToStartContainers,
				Status: corev1.ConditionFalse,
			})
		}, false},
		"waiting": {func(p *corev1.Pod) {
			p.Status.Conditions[1].Status = corev1.ConditionFalse
			p.Status.InitContainerStatuses[0].State = running
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{templateDigest: "d"}},
				Spec:       corev1.PodSpec{InitContainers: []corev1.Container{waits}},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning,
					Conditions: []corev1.PodCondition{
						{Type: corev1.PodScheduled, Status: "True"},
						{Type: corev1.PodReady, Status: "True"},
					},
					InitContainerStatuses: []corev1.ContainerStatus{
						{Name: "gpu-node-wait", State: corev1.ContainerState{Terminated: ended(20*time.Second, 0)}},
					},
					ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, State: running}},
				},
			}
			test.change(pod)
			want := readiness.Pod(pod, "d", at)
			left := trimmed(t, trimPod, pod)
			g.Expect(readiness.Pod(left, "d", at)).To(Equal(want))
			g.Expect(left.Status.ContainerStatuses == nil).To(Equal(test.stable))
		})
	}
}

// The cache has all CRDs of the cluster, many of which are large.
func TestTrimCRDKeepsTheIdentity(t *testing.T) {
	now := metav1.Now()
	whole := observe.CRDMetadata()
	whole.ObjectMeta = metav1.ObjectMeta{
		Name: "a", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now,
		Annotations: map[string]string{"large": "text"}, Labels: map[string]string{"a": "b"},
	}
	want := observe.CRDMetadata()
	want.ObjectMeta = metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now}
	got, err := cachefilter.TrimCRD(whole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whether a sidecar has started decides which container keeps a pod from being ready.
func TestTrimmedPodsKeepStartedSidecars(t *testing.T) {
	g := NewWithT(t)
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"nvidia.com/gpu-operator.operand": "driver"}},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "sidecar", State: runs, Started: new(true)}, {Name: "init", State: runs, Started: new(false)},
		}},
	}
	trimmed, err := trimPod(pod)
	g.Expect(err).NotTo(HaveOccurred())
	of, isPod := trimmed.(*corev1.Pod)
	g.Expect(isPod).To(BeTrue())
	statuses := of.Status.InitContainerStatuses
	g.Expect(readiness.RunsBeside(&statuses[0])).To(BeTrue())
	g.Expect(readiness.RunsBeside(&statuses[1])).To(BeFalse())
}
