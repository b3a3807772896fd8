package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

func all(t *testing.T) map[string]reasons.Explanation {
	t.Helper()
	known, err := reasons.All()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return known
}

// node returns a ready node that offers resources, such as "nvidia.com/gpu=8".
func node(name string, offers ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	n.Status.Allocatable, n.Status.Capacity = corev1.ResourceList{}, corev1.ResourceList{}
	for _, offer := range offers {
		key, count, _ := strings.Cut(offer, "=")
		n.Status.Allocatable[corev1.ResourceName(key)] = resource.MustParse(count)
		n.Status.Capacity[corev1.ResourceName(key)] = resource.MustParse(count)
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: "nvidia.com/GPUReady", Status: corev1.ConditionTrue, Reason: "GPUReady", Message: name + ": GPUs can be used",
	}}
	return n
}

// pod returns a pod that requests a resource, such as "nvidia.com/gpu=1"; none for an empty text.
func pod(request string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "training", UID: "training"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if key, count, found := strings.Cut(request, "="); found {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(key): resource.MustParse(count)}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// usage of pods that request all of these on a node.
func usage(node, request string) *overview.Usage {
	u := &overview.Usage{}
	u.Set(pod(request, on(node), func(p *corev1.Pod) { p.UID = "other" }))
	return u
}

func failed(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
	}
}

// byDomain requires other pods in the same domain of a key.
func byDomain(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}},
		}}
	}
}

func event(reason, message string) corev1.Event {
	return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(1, 0))}
}

// What keeps a pod from its GPU is named, with the next step.
func TestReasonsOfAPod(t *testing.T) {
	waiting := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			}}
		}
	}
	exited := func(code int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "first", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
				{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}},
			}
		}
	}
	changed := func(n *corev1.Node, change func(*corev1.Node)) *corev1.Node {
		change(n)
		return n
	}
	tests := map[string]struct {
		pod    *corev1.Pod
		nodes  []*corev1.Node
		usage  *overview.Usage
		events []corev1.Event
		// want are the reasons, in their order; message and next are parts of the first finding.
		want          []string
		message, next string
	}{
		"no request": {pod: pod(""), want: []string{explain.NoGPURequested}, next: "nvidia.com/gpu: 1"},
		"no node":    {pod: pod("nvidia.com/gpu=1"), want: []string{explain.NoGPUNodes}},
		"gated": {
			pod: pod("nvidia.com/gpu=1", func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			}),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")},
			want:  []string{explain.SchedulingGated}, message: "kueue.x-k8s.io/admission",
		},
		"MIG devices where the strategy is single": {
			pod: pod("nvidia.com/mig-1g.10gb=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=7")},
			want: []string{explain.ResourceNotOffered}, message: "what nodes offer: nvidia.com/gpu", next: "mixed",
		},
		"renamed shares": {
			pod: pod("nvidia.com/gpu=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu.shared=16")},
			want: []string{explain.ResourceNotOffered}, next: "request nvidia.com/gpu.shared",
		},
		"shares that are not renamed": {
			pod: pod("nvidia.com/gpu.shared=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=16")},
			want: []string{explain.ResourceNotOffered}, next: "request nvidia.com/gpu",
		},
		"no node offers anything": {
			pod: pod("nvidia.com/gpu=1"), nodes: []*corev1.Node{node("a")},
			want: []string{explain.ResourceNotOffered}, message: "offer: nothing", next: "kubectl gpu status",
		},
		"more than a node has": {
			pod: pod("nvidia.com/gpu=16"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8"), node("b", "nvidia.com/gpu=4")},
			want: []string{explain.RequestTooLarge}, message: "no node has more than 8 (a)",
		},
		"all in use": {
			pod: pod("nvidia.com/gpu=4"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")},
			usage: usage("a", "nvidia.com/gpu=5"), want: []string{explain.NotEnoughFree}, message: "none has 4 nvidia.com/gpu",
		},
		"a taint, a cordon, a selector and a small node, the nearest first": {
			pod: pod("nvidia.com/gpu=2", func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{"pool": "x"}
			}),
			nodes: []*corev1.Node{
				node("other-pool", "nvidia.com/gpu=8"),
				changed(node("small", "nvidia.com/gpu=1"), func(n *corev1.Node) { n.Labels["pool"] = "x" }),
				changed(node("tainted", "nvidia.com/gpu=8"), func(n *corev1.Node) {
					n.Labels["pool"] = "x"
					n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
				}),
				changed(node("cordoned", "nvidia.com/gpu=8"), func(n *corev1.Node) {
					n.Labels["pool"] = "x"
					n.Spec.Unschedulable = true
					n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				}),
			},
			want: []string{explain.Cordoned, explain.UntoleratedTaint, explain.ResourceNotOffered, explain.NotSelected},
			next: "kubectl gpu explain NODE",
		},
		"a start-up taint": {
			pod: pod("nvidia.com/gpu=1"),
			nodes: []*corev1.Node{changed(node("a", "nvidia.com/gpu=8"), func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu-operator.not-ready", Effect: corev1.TaintEffectNoSchedule}}
			})},
			want: []string{explain.UntoleratedTaint}, next: "kubectl gpu explain NODE",
		},
		"an unhealthy node": {
			pod: pod("nvidia.com/gpu=1"),
			nodes: []*corev1.Node{changed(node("a", "nvidia.com/gpu=8"), func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu-operator.unhealthy", Effect: corev1.TaintEffectNoSchedule}}
			})},
			want: []string{explain.UntoleratedTaint}, next: "use other nodes",
		},
		"the taints of the operator and of a team": {
			pod: pod("nvidia.com/gpu=1"),
			nodes: []*corev1.Node{
				changed(node("a", "nvidia.com/gpu=8"), func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu-operator.unhealthy", Effect: corev1.TaintEffectNoSchedule}}
				}),
				changed(node("b", "nvidia.com/gpu=8"), func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
				}),
			},
			want: []string{explain.UntoleratedTaint, explain.UntoleratedTaint}, message: "nvidia.com/gpu-operator.unhealthy",
			next: "use other nodes",
		},
		"a repeated event of the scheduler": {
			pod: pod("nvidia.com/gpu=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")}, usage: &overview.Usage{},
			events: []corev1.Event{
				{
					Reason: "FailedScheduling", Message: "Insufficient cpu", EventTime: metav1.NewMicroTime(time.Unix(1, 0)),
					Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(time.Unix(9, 0))},
				},
				{
					Reason: "FailedScheduling", Message: "Insufficient memory",
					EventTime: metav1.NewMicroTime(time.Unix(5, 0)),
				},
			},
			want: []string{explain.OtherConstraint}, message: "Insufficient cpu",
		},
		"something else": {
			pod: pod("nvidia.com/gpu=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")}, usage: &overview.Usage{},
			events: []corev1.Event{event("FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.")},
			want:   []string{explain.OtherConstraint}, message: "Insufficient cpu",
		},
		"several shares": {
			pod: pod("nvidia.com/gpu=2", on("a"), failed("UnexpectedAdmissionError", "Allocate failed due to rpc error: "+
				`code = Unknown desc = invalid allocation request for "nvidia.com/gpu": invalid request: maximum request size `+
				"for shared resources is 1; found 2, which is unexpected")),
			want: []string{explain.SharedRequestTooLarge},
			next: "off, in spec.sharing.timeSlicing or in the ConfigMap of spec.devicePlugin.config. MPS never",
		},
		"refused after a boot": {
			pod: pod("nvidia.com/gpu=1", on("a"), failed("UnexpectedAdmissionError", "Allocate failed due to no healthy "+
				"devices "+
				"present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected")),
			want: []string{explain.RefusedByKubelet}, message: "no healthy devices", next: "kubectl gpu explain node/a",
		},
		"refused by the Topology Manager": {
			pod: pod("nvidia.com/gpu=1", on("a"), failed("TopologyAffinityError",
				"Resources cannot be allocated with Topology locality")),
			want: []string{explain.NotAligned}, message: "Topology locality", next: "best-effort in the kubelet's " +
				"configuration of a",
		},
		"an NVLink domain, on some nodes": {
			pod: pod("nvidia.com/gpu=1", byDomain("nvidia.com/gpu.clique")),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8"), changed(node("b", "nvidia.com/gpu=8"),
				func(n *corev1.Node) { n.Labels["nvidia.com/gpu.clique"] = "uuid.1" })},
			usage: &overview.Usage{}, want: []string{explain.OtherConstraint, explain.NoNVLinkDomain},
			message: "has not reported",
		},
		"no NVLink domain": {
			pod:   pod("nvidia.com/gpu=1", byDomain("nvidia.com/gpu.clique")),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")},
			want:  []string{explain.NoNVLinkDomain}, next: "kubectl get nodes -L nvidia.com/gpu.clique",
		},
		"an affinity that is not about NVLink": {
			pod:   pod("nvidia.com/gpu=1", byDomain("topology.kubernetes.io/zone")),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")}, want: []string{explain.OtherConstraint},
			message: "has not reported",
		},
		"an affinity to nodes alone": {
			pod:   pod("nvidia.com/gpu=1", func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} }),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")}, want: []string{explain.OtherConstraint},
			message: "has not reported",
		},
		"failed": {
			pod: pod("nvidia.com/gpu=1", on("a"), failed("", "")), want: []string{explain.Ended}, next: "logs training",
		},
		"succeeded": {pod: pod("nvidia.com/gpu=1", on("a"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		"a runtime handler that was missing at first": {
			pod: pod("nvidia.com/gpu=1", on("a"), func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}}
			}),
			nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")},
			events: []corev1.Event{event("FailedCreatePodSandBox",
				`failed to get sandbox runtime: no runtime for "nvidia" is configured`)},
		},
		"no runtime handler": {
			pod: pod("nvidia.com/gpu=1", on("a")), nodes: []*corev1.Node{node("a", "nvidia.com/gpu=8")},
			events: []corev1.Event{event("FailedCreatePodSandBox",
				`failed to get sandbox runtime: no runtime for "nvidia" is configured`)},
			want: []string{explain.RuntimeHandlerMissing}, next: "kubectl gpu explain node/a",
		},
		"an image that cannot be pulled": {
			pod: pod("nvidia.com/gpu=1", on("a"), waiting("ImagePullBackOff")), want: []string{explain.ContainerWaiting},
			message: "container main: ImagePullBackOff", next: "image",
		},
		"on a node that is not ready": {
			pod: pod("nvidia.com/gpu=1", on("a")),
			nodes: []*corev1.Node{changed(node("a", "nvidia.com/gpu=8"), func(n *corev1.Node) {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].Message = corev1.ConditionFalse, "a: stage Driver: x"
			})},
			want: []string{explain.NodeGPUsNotReady}, message: "stage Driver", next: "kubectl gpu explain node/a",
		},
		"neither MIG devices nor GPUs": {
			pod: pod("nvidia.com/mig-1g.10gb=1"), nodes: []*corev1.Node{node("a", "nvidia.com/gpu.shared=7")},
			want: []string{explain.ResourceNotOffered}, next: "request one of the resources that nodes offer",
		},
		"neither shares nor GPUs": {
			pod: pod("nvidia.com/gpu.shared=1"), nodes: []*corev1.Node{node("a", "nvidia.com/mig-1g.10gb=7")},
			want: []string{explain.ResourceNotOffered}, next: "request one of the resources that nodes offer",
		},
		"taints that keep no pod away": {
			pod: pod("nvidia.com/gpu=1", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
			}),
			nodes: []*corev1.Node{changed(node("a", "nvidia.com/gpu=8"), func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{
					{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule},
					{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule},
				}
			})},
			want: []string{explain.OtherConstraint}, message: "has not reported",
		},
		"full nodes": {
			pod: pod("nvidia.com/gpu=8"), nodes: []*corev1.Node{node("b", "nvidia.com/gpu=8"), node("a", "nvidia.com/gpu=8")},
			usage: func() *overview.Usage {
				u := usage("a", "nvidia.com/gpu=1")
				u.Set(pod("nvidia.com/gpu=1", on("b"), func(p *corev1.Pod) { p.UID = "third" }))
				return u
			}(),
			want: []string{explain.NotEnoughFree},
		},
		"a handler that containerd lacks": {
			pod: pod("nvidia.com/gpu=1", on("a"), waiting("ContainerCreating")),
			events: []corev1.Event{event("Other", "x"), event("FailedCreatePodSandBox", `RuntimeHandler "nvidia" not supported`),
				event("Other", "x")},
			want: []string{explain.RuntimeHandlerMissing}, next: "kubectl gpu explain node/a",
		},
		"a handler that CRI-O lacks": {
			pod:    pod("nvidia.com/gpu=1", on("a"), waiting("ImagePullBackOff")),
			events: []corev1.Event{event("FailedCreatePodSandBox", "failed to find runtime handler nvidia from runtime list")},
			want:   []string{explain.RuntimeHandlerMissing}, next: "kubectl gpu explain node/a",
		},
		"a sandbox that another cause keeps from starting": {
			pod:    pod("nvidia.com/gpu=1", on("a"), waiting("ContainerCreating")),
			events: []corev1.Event{event("FailedCreatePodSandBox", "no address left")},
			want:   []string{explain.PodNotStarted}, message: "FailedCreatePodSandBox: no address left", next: "network plugin",
		},
		"a volume that cannot be mounted": {
			pod: pod("nvidia.com/gpu=1", on("a"), waiting("ContainerCreating")),
			events: []corev1.Event{
				event("FailedMount", `MountVolume.SetUp failed for volume "data" : configmap "sets" not found`),
				event("Other", "x"),
			},
			want:    []string{explain.PodNotStarted},
			message: `FailedMount: MountVolume.SetUp failed for volume "data" : configmap "sets" not found`,
			next:    "create the object",
		},
		"a volume that could not be mounted at first": {
			pod:    pod("nvidia.com/gpu=1", on("a"), waiting("ImagePullBackOff")),
			events: []corev1.Event{event("FailedMount", "timed out")},
			want:   []string{explain.ContainerWaiting}, next: "image",
		},
		"a handler that was missing before the container ended": {
			pod:    pod("nvidia.com/gpu=1", on("a"), exited(3)),
			events: []corev1.Event{event("FailedCreatePodSandBox", `no runtime for "nvidia" is configured`)},
		},
		"an init container that runs, on a node beside one that is not ready": {
			pod: pod("nvidia.com/gpu=1", on("a"), func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{
					{Name: "sidecar", Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
					{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}},
					{Name: "runs", Started: new(false), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				}
			}),
			nodes: []*corev1.Node{changed(node("b"), func(n *corev1.Node) {
				n.Status.Conditions[0].Status = corev1.ConditionFalse
			}), node("a")},
		},
		"an exit code": {
			pod:  pod("nvidia.com/gpu=1", on("a"), exited(3), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			want: []string{explain.Ended}, message: "exit code 3",
		},
		"running": {pod: pod("nvidia.com/gpu=1", on("a"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })},
	}
	whole := map[string]explain.Pod{}
	for name, test := range tests {
		got := explain.OfPod(explain.PodInput{
			Pod: test.pod, Events: test.events, Nodes: test.nodes, Usage: test.usage, Reasons: all(t),
		})
		whole[name] = got
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var found []string
			for _, f := range got.Findings {
				g.Expect(f.Message).NotTo(BeEmpty(), f.Reason)
				g.Expect(f.Next).NotTo(BeEmpty(), f.Reason)
				found = append(found, f.Reason)
			}
			g.Expect(found).To(Equal(test.want))
			if len(found) > 0 {
				g.Expect(got.Findings[0].Message).To(ContainSubstring(test.message))
				g.Expect(got.Findings[0].Next).To(ContainSubstring(test.next))
			}
		})
	}
	compare(t, "pods", whole)
}

// compare compares a value with testdata/NAME.golden.
func compare(t *testing.T, name string, value any) {
	t.Helper()
	found, err := yaml.Marshal(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	golden.Compare(t, "testdata/"+name+".golden", string(found))
}

// gpusAndMore offers whole GPUs, shares and MIG devices by a device plugin.
var gpusAndMore = []string{"nvidia.com/gpu=8", "nvidia.com/gpu.shared=4", "nvidia.com/mig-1g.10gb=7"}

// How a pod gets its GPUs does not change whether it is explained: by a device plugin, or by a claim of DRA.
func TestEachWayToGetAGPU(t *testing.T) {
	claimed := func(p *corev1.Pod) {
		name := "c"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	}
	fromTemplate := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	mapped := func(p *corev1.Pod) {
		var name corev1.ResourceName
		for name = range p.Spec.Containers[0].Resources.Limits { // There is one.
		}
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: "c", RequestMappings: []corev1.ContainerExtendedResourceRequest{{
				ContainerName: "main", ResourceName: string(name), RequestName: "one",
			}},
		}
	}
	claim := func(driver string, admin bool) []*resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "c"}}
		c.Status.Allocation = &resourcev1.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
			{Request: "one", Driver: driver, Pool: "a", Device: "d", AdminAccess: &admin},
		}
		return []*resourcev1.ResourceClaim{c}
	}
	open := []*resourcev1.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "c"}}}
	const implied = "deviceclass.resource.kubernetes.io/gpu.nvidia.com=1"
	tests := map[string]struct {
		pod    *corev1.Pod
		offers []string
		claims []*resourcev1.ResourceClaim
		// classes are the extended resources that DeviceClasses map.
		classes []corev1.ResourceName
		// scheduler is what the scheduler has reported on the pod; empty for nothing.
		scheduler string
		want      []string
	}{
		"a plain request, on a node": {pod: pod("nvidia.com/gpu=1", on("a")), offers: gpusAndMore},
		"a plain request, pending":   {pod: pod("nvidia.com/gpu=1"), offers: gpusAndMore, want: []string{"OtherConstraint"}},
		"a share": {
			pod: pod("nvidia.com/gpu.shared=1"), offers: gpusAndMore,
			want: []string{"OtherConstraint"},
		},
		"a MIG device": {
			pod: pod("nvidia.com/mig-1g.10gb=1"), offers: gpusAndMore,
			want: []string{"OtherConstraint"},
		},
		"a claim, on a node":          {pod: pod("", claimed, on("a")), claims: claim("gpu.nvidia.com", false)},
		"a claim with admin access":   {pod: pod("", claimed, on("a")), claims: claim("gpu.nvidia.com", true)},
		"a claim that cannot be read": {pod: pod("", claimed, on("a"))},
		"a claim for a network device": {
			pod: pod("", claimed, on("a")), claims: claim("dra.net", false), want: []string{"NoGPURequested"},
		},
		"a claim, pending":    {pod: pod("", claimed), claims: open, want: []string{"ClaimNotAllocated"}},
		"a template, pending": {pod: pod("", fromTemplate), want: []string{"ClaimNotAllocated"}},
		"a claim, not allocated": {
			pod: pod("", claimed), claims: open, scheduler: "0/1 nodes are available: 1 cannot allocate all claims.",
			want: []string{"ClaimNotAllocated"},
		},
		"a claim, but too little CPU": {
			pod: pod("", claimed), claims: open, scheduler: "0/1 nodes are available: 1 Insufficient cpu.",
			want: []string{"OtherConstraint"},
		},
		"a claim that has its device": {
			pod: pod("", claimed), claims: claim("gpu.nvidia.com", false),
			want: []string{"OtherConstraint"},
		},
		"an implied resource, pending": {pod: pod(implied), want: []string{"ClaimNotAllocated"}},
		"an implied resource, on a node": {
			pod: pod(implied, mapped, on("a")), claims: claim("gpu.nvidia.com", false),
		},
		"the plugin's name, mapped and pending": {
			pod: pod("nvidia.com/gpu=1"), classes: []corev1.ResourceName{"nvidia.com/gpu"},
			want: []string{"ClaimNotAllocated"},
		},
		"the plugin's name, mapped, beside a plugin": {
			pod: pod("nvidia.com/gpu=9"), offers: gpusAndMore, classes: []corev1.ResourceName{"nvidia.com/gpu"},
			want: []string{"RequestTooLarge"},
		},
		"the plugin's name, mapped, on a node": {
			pod: pod("nvidia.com/gpu=1", mapped, on("a")), claims: claim("gpu.nvidia.com", false),
		},
		"another name, mapped and pending": {
			pod: pod("example.com/fast=1"), classes: []corev1.ResourceName{"example.com/fast"},
			want: []string{"ClaimNotAllocated"},
		},
		"another name, mapped, on a node": {
			pod: pod("example.com/fast=1", mapped, on("a")), claims: claim("gpu.nvidia.com", false),
		},
		"another name that nothing maps": {pod: pod("example.com/fast=1"), want: []string{"NoGPURequested"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := explain.PodInput{
				Pod: test.pod, Nodes: []*corev1.Node{node("a", test.offers...)}, Usage: &overview.Usage{},
				Claims: test.claims, Mapped: map[corev1.ResourceName]bool{},
			}
			for _, class := range test.classes {
				in.Mapped[class] = true
			}
			if test.scheduler != "" {
				in.Events = []corev1.Event{event("FailedScheduling", test.scheduler)}
			}
			var found []string
			for _, f := range explain.OfPod(in).Findings {
				g.Expect([]string{f.Message, f.Next}).NotTo(ContainElement(BeEmpty()), f.Reason)
				found = append(found, f.Reason)
			}
			g.Expect(found).To(Equal(test.want))
		})
	}
	in := explain.PodInput{Pod: pod(implied, mapped, on("a")), Claims: claim("gpu.nvidia.com", false)}
	NewWithT(t).Expect(explain.OfPod(in).Claims).To(Equal([]string{"c"}))
	NewWithT(t).Expect(explain.OfPod(in).Requests).To(HaveLen(1))
}

// A controller whose pods are refused, as by a quota, is explained by its latest Event.
func TestControllerWithoutPods(t *testing.T) {
	g := NewWithT(t)
	quota := event("FailedCreate",
		`pods "training-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1`)
	quota.InvolvedObject = corev1.ObjectReference{Kind: "ReplicaSet", Name: "training-5c8d"}
	other := event("FailedCreate", "another")
	other.InvolvedObject.Name = "inference"
	job := event("FailedCreate", "a Job with a longer name")
	job.InvolvedObject = corev1.ObjectReference{Kind: "Job", Name: "training-eval"}
	got := explain.OfController("team-a", "training", []corev1.Event{other, quota, job})
	g.Expect(got.Findings).To(ConsistOf(And(HaveField("Reason", explain.CreationRefused),
		HaveField("Message", ContainSubstring("exceeded quota")), HaveField("Next", ContainSubstring("resourcequotas")))))
	g.Expect(explain.OfController("team-a", "train", []corev1.Event{quota})).To(BeNil())
}

// A node with any reason of the API is explained with its cause and the next step, and the stages up to its own are
// reached.
func TestEachReasonOfANode(t *testing.T) {
	known, explained := all(t), 0
	for reason, text := range known {
		g := NewWithT(t)
		n := node("a", "nvidia.com/gpu=8")
		n.Status.Conditions[0] = corev1.NodeCondition{
			Type: "nvidia.com/GPUReady", Status: corev1.ConditionFalse, Reason: reason,
			Message: "a: stage Toolkit, operand container-toolkit: something: else",
		}
		n.Annotations = map[string]string{
			"nvidia.com/gpu-operator.report": `{"stage":"Toolkit","operand":"container-toolkit"}`,
		}
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		seen := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}}).Nodes[0]
		got := explain.OfNode(explain.NodeInput{Node: n, Overview: seen, Policy: policy, Reasons: known})
		g.Expect(got.Findings).To(HaveLen(1), reason)
		g.Expect(got.Findings[0].Cause).To(Equal(text.Cause))
		g.Expect(got.Findings[0].Next).To(Equal(text.Remedy))
		g.Expect(text.Cause).NotTo(BeEmpty(), reason)
		g.Expect(text.Remedy).NotTo(BeEmpty(), reason)
		if reason != v1.ReasonExcluded && reason != v1.ReasonNotSelected {
			g.Expect(got.Findings[0].Message).To(Equal("something: else"))
			g.Expect(fmt.Sprint(got.Stages)).To(Equal(fmt.Sprintf(
				"[{Discovered true false} {Driver true false} {Toolkit false false} {DevicePlugin false %t} "+
					"{Allocatable false false} {Validated false false}]", reason == v1.ReasonDevicePluginOff)))
		}
		explained++
	}
	t.Logf("reasons of the API that are explained: %d/%d", explained, len(known))
	NewWithT(t).Expect(known).To(HaveKey(v1.ReasonContainerFailed))
}

// The command for the log of a container that crashes has the pod and the container which the message is about.
func TestTheLogOfAContainerThatCrashes(t *testing.T) {
	crashing := func(operand, container string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "gpus", Name: operand + "-a", Labels: map[string]string{"nvidia.com/gpu-operator.operand": operand},
		}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: container, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1},
			}}},
		}}
	}
	waiting := crashing("driver", "nvidia-driver-ctr")
	waiting.Status.ContainerStatuses[0].LastTerminationState.Terminated = nil
	waiting.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	// After a reboot the init container has ended well again, and the sidecar has recovered.
	rebooted := crashing("driver", "nvidia-driver-ctr")
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	rebooted.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "k8s-driver-manager", State: ended, LastTerminationState: ended},
	}
	sidecar := *rebooted.Status.ContainerStatuses[0].DeepCopy()
	sidecar.Name, sidecar.Ready = "peermem", true
	rebooted.Status.ContainerStatuses = append([]corev1.ContainerStatus{sidecar}, rebooted.Status.ContainerStatuses...)
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want []string
	}{
		"beside others that have ended": {
			[]corev1.Pod{rebooted}, []string{"kubectl -n gpus logs driver-a -c nvidia-driver-ctr --previous"},
		},
		"of two one": {
			[]corev1.Pod{crashing("gpu-feature-discovery", "gfd"), crashing("driver", "nvidia-driver-ctr")},
			[]string{"kubectl -n gpus logs driver-a -c nvidia-driver-ctr --previous"},
		},
		"another one":                       {[]corev1.Pod{crashing("gpu-feature-discovery", "gfd")}, nil},
		"a pod whose container has not run": {[]corev1.Pod{waiting}, []string{"kubectl -n gpus describe pod driver-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("a", "nvidia.com/gpu=8")
			n.Status.Conditions[0] = corev1.NodeCondition{
				Type: "nvidia.com/GPUReady", Status: corev1.ConditionFalse, Reason: "CrashLoopBackOff",
				Message: "a: stage Driver, operand driver: container nvidia-driver-ctr: CrashLoopBackOff, exit code 1",
			}
			n.Annotations = map[string]string{"nvidia.com/gpu-operator.report": `{"stage":"Driver","operand":"driver"}`}
			policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			seen := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}}).Nodes[0]
			got := explain.OfNode(explain.NodeInput{
				Node: n, Overview: seen, Policy: policy, Namespace: "gpus", Pods: test.pods, Reasons: all(t),
			})
			g, finding := NewWithT(t), got.Findings[0]
			g.Expect(finding.Commands).To(Equal(test.want))
			if len(test.want) == 0 || strings.Contains(test.want[0], "describe") {
				g.Expect(finding.Log).To(BeNil())
			} else {
				g.Expect(finding.Log).To(HaveField("Container", "nvidia-driver-ctr"))
			}
		})
	}
}

// Where the operand is not known, as of an upgrade, the command names a pod only if one alone has crashed.
func TestTheLogOfAnUpgradeThatFails(t *testing.T) {
	crashed := func(operand string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: operand}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1},
			}}},
		}}
	}
	n := node("a", "nvidia.com/gpu=8")
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	policy.Status.Nodes = []v1.NodeStatus{{Name: "a", Upgrade: &v1.NodeUpgradeStatus{Reason: "CrashLoopBackOff"}}}
	seen := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}}).Nodes[0]
	for want, pods := range map[string][]corev1.Pod{
		"[kubectl -n gpus logs driver -c main]": {crashed("driver"), {}},
		"[]":                                    {crashed("dcgm-exporter"), crashed("driver")},
	} {
		got := explain.OfNode(explain.NodeInput{
			Node: n, Overview: seen, Policy: policy, Namespace: "gpus", Pods: pods, Reasons: all(t),
		})
		NewWithT(t).Expect(got.Findings).To(ContainElement(And(HaveField("Reason", "CrashLoopBackOff"),
			HaveField("Commands", WithTransform(func(all []string) string { return fmt.Sprint(all) }, Equal(want))))))
	}
}

// Commands are about this very node.
func TestCommandsForANode(t *testing.T) {
	for reason, test := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"NodeNotReady":    {want: []string{"kubectl describe node a"}},
		"NodeUnreachable": {want: []string{"kubectl describe node a"}},
		"DevicePluginOff": {map[string]string{
			"nvidia.com/gpu.deploy.device-plugin": "false", "nvidia.com/gpu.deploy.dcgm": "false",
		}, []string{"kubectl label node a nvidia.com/gpu.deploy.device-plugin-"}},
		"Excluded": {map[string]string{"nvidia.com/gpu.deploy.operands": "false"},
			[]string{"kubectl label node a nvidia.com/gpu.deploy.operands-"}},
		"QuotaExceeded":     {want: []string{"kubectl -n gpus describe resourcequota"}},
		"PodSecurityDenied": {want: []string{"kubectl describe namespace gpus"}},
		"AdmissionDenied":   {want: []string{"kubectl -n gpus describe daemonset -l nvidia.com/gpu-operator.operand=driver"}},
		"FailedCreate":      {want: []string{"kubectl -n gpus describe daemonset -l nvidia.com/gpu-operator.operand=driver"}},
		"GPUsUnhealthy":     {},
	} {
		g, n := NewWithT(t), node("a", "nvidia.com/gpu=8")
		n.Labels = test.labels
		n.Status.Conditions[0] = corev1.NodeCondition{
			Type: "nvidia.com/GPUReady", Status: corev1.ConditionFalse, Reason: reason,
			Message: "a: stage Driver, operand driver: x",
		}
		n.Annotations = map[string]string{"nvidia.com/gpu-operator.report": `{"stage":"Driver","operand":"driver"}`}
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		seen := overview.Of(overview.Cluster{Policy: policy, Nodes: []*corev1.Node{n}}).Nodes[0]
		got := explain.OfNode(explain.NodeInput{Node: n, Overview: seen, Policy: policy, Namespace: "gpus", Reasons: all(t)})
		g.Expect(got.Findings[0].Reason).To(Equal(reason))
		g.Expect(got.Findings[0].Commands).To(Equal(test.want))
		off := reason == "DevicePluginOff"
		g.Expect(got.Stages).To(ContainElement(explain.Stage{Name: v1.StageDevicePlugin, Off: off}))
	}
	n := node("a")
	n.Spec.Unschedulable = true
	seen := overview.Of(overview.Cluster{Nodes: []*corev1.Node{n}}).Nodes[0]
	got := explain.OfNode(explain.NodeInput{Node: n, Overview: seen, Reasons: all(t)})
	NewWithT(t).Expect(got.Findings).To(ContainElement(HaveField("Commands", Equal([]string{"kubectl uncordon a"}))))
}

// A driver with known vulnerabilities is no cause of anything, but worth to know of a node.
func TestOutdatedDriverOfANode(t *testing.T) {
	g, known := NewWithT(t), all(t)
	n := node("a", "nvidia.com/gpu=8")
	findings := func(version string) []explain.Finding {
		n.Labels["nvidia.com/cuda.driver-version.full"] = version
		seen := overview.Of(overview.Cluster{Nodes: []*corev1.Node{n}}).Nodes[0]
		in := explain.NodeInput{Node: n, Overview: seen, Policy: &v1.ClusterPolicy{}, Reasons: known}
		return explain.OfNode(in).Findings
	}
	g.Expect(findings("580.178.04")).NotTo(ContainElement(HaveField("Reason", v1.ReasonOutdatedComponent)))
	g.Expect(findings("580.95.05")).To(ContainElement(And(HaveField("Reason", v1.ReasonOutdatedComponent),
		HaveField("Message", ContainSubstring("the driver 580.95.05 is before 580.178.04")),
		HaveField("Next", ContainSubstring("spec.driver.version")), HaveField("Cause", Not(BeEmpty())))))
}

// What concerns all nodes comes first.
func TestOtherCausesOfANode(t *testing.T) {
	g, known := NewWithT(t), all(t)
	n := node("a", "nvidia.com/gpu=8")
	n.Spec.Unschedulable = true
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: "nvidia.com/GPUHealthy", Status: corev1.ConditionFalse, Reason: v1.ReasonGPULost, Message: "a: GPU lost",
	})
	policy := v1.ClusterPolicy{Status: v1.ClusterPolicyStatus{
		State: v1.StateNotReady,
		Conditions: []metav1.Condition{
			{Type: v1.ConditionCRDOutdated, Status: metav1.ConditionTrue, Message: "old"},
			{Type: v1.ConditionOtherOperatorRunning, Status: metav1.ConditionFalse},
		},
		Nodes: []v1.NodeStatus{{Name: "a", Upgrade: &v1.NodeUpgradeStatus{
			State: "drain-required", Reason: v1.ReasonUpgradeBlocked, Message: "by a pod",
		}}},
	}}
	seen := overview.Of(overview.Cluster{Policy: &policy, Nodes: []*corev1.Node{n}}).Nodes[0]
	reasonsOf := func(in explain.NodeInput) []string {
		var found []string
		for _, f := range explain.OfNode(in).Findings {
			found = append(found, f.Reason)
			g.Expect(f.Next).NotTo(BeEmpty(), f.Reason)
		}
		return found
	}
	g.Expect(reasonsOf(explain.NodeInput{Node: n, Overview: seen, Policy: &policy, Reasons: known})).To(Equal([]string{
		v1.ConditionCRDOutdated, v1.ReasonGPULost, v1.ReasonUpgradeBlocked, explain.Cordoned,
	}))
	g.Expect(seen.Upgrade).To(Equal("drain-required"))
	operand := func(app, name string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			},
		}
	}
	queued := &v1.NodeUpgradeStatus{Reason: v1.ReasonUpgradeQueued, Message: "of another"}
	other := v1.NodeStatus{Name: "0", Upgrade: queued}
	beside := policy
	beside.Status.Nodes = append([]v1.NodeStatus{other}, policy.Status.Nodes...)
	compare(t, "node", explain.OfNode(explain.NodeInput{
		Node: n, Overview: seen, Policy: &beside, Reasons: known, Namespace: "gpus", Pods: []corev1.Pod{
			operand("b", "b-2", corev1.ConditionTrue), operand("b", "b-1", corev1.ConditionTrue),
			operand("a", "z", corev1.ConditionTrue), operand("c", "c", corev1.ConditionFalse),
		},
	}))
	next := func(annotation, record string) string {
		n.Annotations = map[string]string{annotation: record}
		all := explain.OfNode(explain.NodeInput{Node: n, Overview: seen, Policy: &policy, Reasons: known}).Findings
		return all[len(all)-1].Next
	}
	// Each cordon is that of its record, and otherwise that of a person.
	n.UID = "a"
	const byAPerson = "uncordon it, unless someone works on the node"
	for action, want := range map[v1.HealthAction]string{
		v1.HealthActionCordon: "spec.health.actions", v1.HealthActionTaint: byAPerson,
	} {
		record := healthaction.Record{UID: "a", State: healthaction.Done, Action: action}
		g.Expect(next(labels.HealthRecord, record.Encode())).To(ContainSubstring(want))
		record.UID = "another"
		g.Expect(next(labels.HealthRecord, record.Encode())).To(Equal(byAPerson))
	}
	for cordoned, want := range map[bool]string{true: "wait for the driver upgrade", false: byAPerson} {
		record := upgrade.Record{UID: "a", State: upgrade.StateDrain, Cordoned: cordoned}
		g.Expect(next(labels.UpgradeRecord, record.Encode())).To(ContainSubstring(want))
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	unseen := overview.Of(overview.Cluster{Nodes: []*corev1.Node{bare}}).Nodes[0]
	compare(t, "bare", explain.OfNode(explain.NodeInput{Node: bare, Overview: unseen}))
	g.Expect(reasonsOf(explain.NodeInput{Node: bare, Overview: unseen})).To(Equal([]string{"NoClusterPolicy",
		"NotReported"}))
}

// Only a drain of this Node that goes on ends its cordon.
func TestCordonForALayout(t *testing.T) {
	const waits = "wait for the change of the node's MIG layout"
	for name, test := range map[string]struct{ record, next string }{
		"this operator's cordon":   {`{"uid":"one","state":"evicts-users","cordoned":true}`, waits},
		"while the layout changes": {`{"uid":"one","state":"changing","cordoned":true}`, waits},
		"a failed drain":           {`{"uid":"one","state":"failed"}`, "uncordon it"},
		"another client's cordon":  {`{"uid":"one","state":"changing"}`, "uncordon it"},
		"another node's record":    {`{"uid":"two","state":"changing","cordoned":true}`, "uncordon it"},
		"no record":                {"cordoned", "uncordon it"},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("a", "nvidia.com/gpu=8")
			n.UID, n.Spec.Unschedulable = "one", true
			n.Annotations = map[string]string{"nvidia.com/gpu-operator.mig-drain": test.record}
			seen := overview.Of(overview.Cluster{Nodes: []*corev1.Node{n}}).Nodes[0]
			findings := explain.OfNode(explain.NodeInput{Node: n, Overview: seen}).Findings
			NewWithT(t).Expect(findings).To(ContainElement(And(
				HaveField("Reason", explain.Cordoned), HaveField("Next", ContainSubstring(test.next)))))
		})
	}
}

// What the upgrade of a node waits for comes before the fact that it waits.
func TestTheCauseOfAPendingUpgradeComesFirst(t *testing.T) {
	g, known := NewWithT(t), all(t)
	n := node("a", "nvidia.com/gpu=8")
	policy := v1.ClusterPolicy{Status: v1.ClusterPolicyStatus{Nodes: []v1.NodeStatus{{
		Name: "a", Upgrade: &v1.NodeUpgradeStatus{Reason: v1.ReasonUpgradeBudget, Message: "maxUnavailable 1 (1 of 4 nodes)"},
	}}}}
	seen := overview.Of(overview.Cluster{Policy: &policy, Nodes: []*corev1.Node{n}}).Nodes[0]
	seen.Reason, seen.Message = v1.ReasonUpgradePending, "driver is outdated: its upgrade is pending"
	findings := explain.OfNode(explain.NodeInput{Node: n, Overview: seen, Policy: &policy, Reasons: known}).Findings
	g.Expect(findings).To(HaveLen(2))
	g.Expect(findings[0].Reason).To(Equal(v1.ReasonUpgradeBudget))
	g.Expect(findings[1].Next).To(HavePrefix("wait if autoUpgrade is true in spec.driver.upgradePolicy"))
}
