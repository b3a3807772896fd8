package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// Reasons why a pod does not get its GPU.
const (
	// NoGPURequested: no container of the pod requests a GPU, and no resource claim of it has one.
	NoGPURequested = "NoGPURequested"
	// SharedRequestTooLarge: the pod requests several shares of GPUs, which the device plugin refuses.
	SharedRequestTooLarge = "SharedRequestTooLarge"
	// RefusedByKubelet: the kubelet has not admitted the pod (UnexpectedAdmissionError), as after a boot.
	RefusedByKubelet = "RefusedByKubelet"
	// NotAligned: the kubelet cannot give the pod CPUs and GPUs of one NUMA node (TopologyAffinityError).
	NotAligned = "NotAligned"
	// Ended: the pod has ended.
	Ended = "Ended"
	// RuntimeHandlerMissing: the container runtime does not know the handler of the pod's RuntimeClass.
	RuntimeHandlerMissing = "RuntimeHandlerMissing"
	// PodNotStarted: the kubelet cannot mount a volume of the pod, or the container runtime cannot create the pod.
	PodNotStarted = "PodNotStarted"
	// ContainerWaiting: a container does not start.
	ContainerWaiting = "ContainerWaiting"
	// NodeGPUsNotReady: the pod is on a node whose GPUs cannot be used.
	NodeGPUsNotReady = "NodeGPUsNotReady"
	// SchedulingGated: a controller, such as a queue, holds the pod back.
	SchedulingGated = "SchedulingGated"
	// NoGPUNodes: the cluster has no node with GPUs.
	NoGPUNodes = "NoGPUNodes"
	// ResourceNotOffered: no node offers the resource, such as a MIG device with mig.strategy single, or nvidia.com/gpu
	// where shares are renamed.
	ResourceNotOffered = "ResourceNotOffered"
	// RequestTooLarge: no node has that many devices.
	RequestTooLarge = "RequestTooLarge"
	// NotSelected: the nodeSelector or the affinity of the pod excludes nodes.
	NotSelected = "NotSelected"
	// UntoleratedTaint: nodes have a taint that the pod does not tolerate.
	UntoleratedTaint = "UntoleratedTaint"
	// Cordoned: nodes take no new pods.
	Cordoned = "Cordoned"
	// NotEnoughFree: other pods have the devices.
	NotEnoughFree = "NotEnoughFree"
	// ClaimNotAllocated: a resource claim of the pod has no device yet.
	ClaimNotAllocated = "ClaimNotAllocated"
	// NoNVLinkDomain: a rule of the pod is about NVLink domains, and nodes have no label of one.
	NoNVLinkDomain = "NoNVLinkDomain"
	// OtherConstraint: nodes have GPUs for the pod, and something else keeps it from them, as the scheduler reports.
	OtherConstraint = "OtherConstraint"
	// CreationRefused: a quota or an admission check refuses the pods of a controller.
	CreationRefused = "CreationRefused"
)

// Pod is why a pod does not get its GPU.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is what the pod waits for, or its phase.
	State string `json:"state"`
	// Node of the pod; empty until it is scheduled.
	Node string `json:"node,omitempty"`
	// Requests of resources of GPUs.
	Requests map[string]int64 `json:"requests,omitempty"`
	// Claims are the names of its resource claims (DRA), that for extended resources which a DeviceClass maps included.
	Claims []string `json:"claims,omitempty"`
	// Findings are what keeps it from its GPU, the nearest first; none if nothing does.
	Findings []Finding `json:"findings"`
}

// PodInput is what a Pod is computed from.
type PodInput struct {
	Pod *corev1.Pod
	// Events about the pod.
	Events []corev1.Event
	// Nodes with GPUs, and what pods request of them; Usage is nil if that is not known.
	Nodes []*corev1.Node
	Usage *overview.Usage
	// Claims of the pod that could be read.
	Claims []*resourcev1.ResourceClaim
	// Mapped are the extended resources that DeviceClasses map to claims, in addition to those that they imply.
	Mapped map[corev1.ResourceName]bool
	// Reasons are those of package reasons.
	Reasons map[string]reasons.Explanation
}

// OfPod explains a pod.
func OfPod(in PodInput) Pod {
	requests := overview.GPURequests(in.Pod)
	p := Pod{
		Namespace: in.Pod.Namespace, Name: in.Pod.Name, Node: in.Pod.Spec.NodeName, State: podState(in.Pod),
		Claims: gpuuse.ClaimsOf(in.Pod), Findings: []Finding{},
	}
	for name, count := range requests {
		if p.Requests == nil {
			p.Requests = map[string]int64{}
		}
		p.Requests[string(name)] = count
	}
	p.Findings = append(p.Findings, in.findings(requests)...)
	return p
}

func (in PodInput) findings(requests overview.Requests) []Finding {
	pod := in.Pod
	switch {
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return in.ended()
	case len(requests) == 0 && !in.mayClaim():
		return in.noRequest()
	case pod.Spec.NodeName != "":
		return in.onItsNode()
	case len(pod.Spec.SchedulingGates) > 0:
		return gated(pod)
	case len(in.Nodes) == 0:
		return []Finding{{
			Reason: NoGPUNodes, Message: "the cluster has no node with the label nvidia.com/gpu.present=true",
			Next: "add a node with a GPU; if there is one, see whether node discovery runs on it: " +
				"kubectl get clusterpolicy -o yaml, the operand node-discovery",
		}}
	}
	return in.unscheduled(requests)
}

// ended explains a pod that has ended.
func (in PodInput) ended() []Finding {
	status := in.Pod.Status
	switch {
	case status.Reason == readiness.RefusedByKubelet &&
		strings.Contains(status.Message, "maximum request size for shared"):
		return []Finding{{
			Reason: SharedRequestTooLarge, Message: status.Message,
			Cause: "the GPUs are shared, and several shares do not give more computing power, so the device plugin refuses them",
			Next: "request 1; or, where GPUs are time-sliced and pods are to get several shares nevertheless, turn " +
				"failRequestsGreaterThanOne off, in spec.sharing.timeSlicing or in the ConfigMap of " +
				"spec.devicePlugin.config. MPS never gives a pod several",
		}}
	case status.Reason == readiness.RefusedByKubelet:
		return []Finding{{
			Reason: RefusedByKubelet, Message: status.Message,
			Cause: "the kubelet has started, as after a boot, before the device plugin, or a GPU has become unhealthy",
			Next: "delete the pod; its controller, if it has one, creates another one. Look at the node: " +
				"kubectl gpu explain node/" + in.Pod.Spec.NodeName,
		}}
	case status.Reason == refusedByTopology:
		return []Finding{{
			Reason: NotAligned, Message: status.Message,
			Cause: "the Topology Manager of the kubelet is to take CPUs and GPUs from as few NUMA nodes as possible, and " +
				"other pods have what was free there",
			Next: "delete the pod; its controller, if it has one, creates another one. If it comes back, request fewer CPUs, " +
				"or set topologyManagerPolicy: best-effort in the kubelet's configuration of " + in.Pod.Spec.NodeName,
		}}
	case status.Phase == corev1.PodFailed:
		return []Finding{{
			Reason: Ended, Message: strings.TrimSpace("the pod has failed: " + podState(in.Pod) + " " + status.Message),
			Next: "read its log: kubectl -n " + in.Pod.Namespace + " logs " + in.Pod.Name + " --all-containers",
		}}
	}
	return nil
}

// refusedByTopology is the reason of a failed pod that the Topology Manager of the kubelet has refused.
const refusedByTopology = "TopologyAffinityError"

func gated(pod *corev1.Pod) []Finding {
	var names []string
	for _, gate := range pod.Spec.SchedulingGates {
		names = append(names, gate.Name)
	}
	return []Finding{{
		Reason: SchedulingGated, Message: "the pod has the scheduling gates " + strings.Join(names, ", "),
		Next: "look at the controller that owns the gate, such as a queue, and at its quota",
	}}
}

// unscheduled explains a pod for which the scheduler has found no node.
func (in PodInput) unscheduled(requests overview.Requests) []Finding {
	requests = in.ofPlugins(requests)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if f := in.offered(name, requests[name]); f != nil {
			return []Finding{*f}
		}
	}
	// Nodes with the same cause are one finding: a taint of the operator needs another step than one of a team.
	blocked := map[string]*Finding{}
	for _, node := range in.Nodes {
		found := in.blocker(node, requests)
		known := blocked[found.Message]
		if known == nil {
			known = &found
			blocked[found.Message] = known
		}
		known.Nodes = append(known.Nodes, node.Name)
	}
	var all []Finding
	for _, message := range slices.Sorted(maps.Keys(blocked)) {
		slices.Sort(blocked[message].Nodes)
		all = append(all, *blocked[message])
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(nearest, a.Reason), slices.Index(nearest, b.Reason))
	})
	return all
}

// nearest orders the causes on nodes: from those that end by themselves to those that the pod itself has.
var nearest = []string{
	ClaimNotAllocated, OtherConstraint, NotEnoughFree, Cordoned, UntoleratedTaint, NoNVLinkDomain,
	ResourceNotOffered, NotSelected,
}

// offered reports a resource that no node offers, or not so much of it; nil if one does.
func (in PodInput) offered(name corev1.ResourceName, count int64) *Finding {
	most, on := int64(0), ""
	others := map[string]bool{}
	for _, node := range in.Nodes {
		for _, resource := range overview.Resources(node, nil) {
			others[resource.Name] = true
			if resource.Name == string(name) && resource.Allocatable > most {
				most, on = resource.Allocatable, node.Name
			}
		}
	}
	switch {
	case most == 0:
		return &Finding{
			Reason: ResourceNotOffered, Message: fmt.Sprintf("no node offers %s; what nodes offer: %s", name,
				cmp.Or(strings.Join(slices.Sorted(maps.Keys(others)), ", "), "nothing")),
			Cause: notOfferedCause(string(name)),
			Next:  notOfferedNext(string(name), others),
		}
	case most < count:
		return &Finding{
			Reason:  RequestTooLarge,
			Message: fmt.Sprintf("the pod requests %d %s, and no node has more than %d (%s)", count, name, most, on),
			Next:    "request less, or split the work over several pods",
		}
	}
	return nil
}

// blocker returns the first thing that keeps the pod from a node.
func (in PodInput) blocker(node *corev1.Node, requests overview.Requests) Finding {
	selected, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(node)
	if err != nil || !selected {
		return Finding{
			Reason: NotSelected, Message: "the nodeSelector or the node affinity of the pod excludes these nodes",
			Next: "compare them with the labels: kubectl get nodes --show-labels. The label nvidia.com/gpu.product ends with " +
				"-SHARED where GPUs are shared, and has -MIG- where each is partitioned in one way",
		}
	}
	offers := map[string]overview.Resource{}
	for _, resource := range overview.Resources(node, in.Usage) {
		offers[resource.Name] = resource
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if offers[string(name)].Allocatable < requests[name] {
			return Finding{
				Reason: ResourceNotOffered, Message: fmt.Sprintf("these nodes do not offer %d %s", requests[name], name),
				Next: "see what they offer and why: kubectl gpu status -o wide",
			}
		}
	}
	if taint := untolerated(in.Pod, node); taint != "" {
		return taintFinding(taint)
	}
	if node.Spec.Unschedulable {
		return Finding{
			Reason: Cordoned, Message: "these nodes are cordoned",
			Next: "see why, and what to do: kubectl gpu explain NODE",
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if free := offers[string(name)].Free; free != nil && *free < requests[name] {
			return Finding{
				Reason: NotEnoughFree, Message: fmt.Sprintf("of these nodes, none has %d %s free", requests[name], name),
				Next: "wait until other pods end, or add nodes; kubectl gpu status shows what is free",
			}
		}
	}
	if outsideNVLinkDomains(in.Pod, node) {
		return noNVLinkDomain()
	}
	return in.otherConstraint()
}

// otherConstraint is the finding on a pod for which a node has GPUs: a claim without a device, unless the scheduler
// reports something else, or what it reports.
func (in PodInput) otherConstraint() Finding {
	reported := in.event("FailedScheduling")
	if in.claimIsOpen() && (reported == "" || strings.Contains(reported, "claim")) {
		return in.notAllocated()
	}
	return Finding{
		Reason:  OtherConstraint,
		Message: cmp.Or(reported, "the scheduler has not reported on the pod yet"),
		Cause: "these nodes have GPUs for the pod; other resources, volumes or rules keep it from them, as the scheduler " +
			"reports",
		Next: "follow the message of the scheduler",
	}
}

// OfController explains why a controller, such as a Job, has no pod; nil if no event states it. events are those of its
// namespace with the reason FailedCreate. A ReplicaSet has the name of its Deployment with a suffix.
func OfController(namespace, name string, events []corev1.Event) *Pod {
	latest := latestOf(events, func(event *corev1.Event) bool {
		object := event.InvolvedObject
		isIts := object.Name == name || object.Kind == "ReplicaSet" && strings.HasPrefix(object.Name, name+"-")
		return isIts && event.Reason == "FailedCreate"
	})
	if latest == nil || latest.Message == "" {
		return nil
	}
	finding := Finding{
		Reason: CreationRefused, Message: latest.Message,
		Next: "change what refuses the pods of " + latest.InvolvedObject.Kind + " " + latest.InvolvedObject.Name +
			", as the message describes",
	}
	if strings.Contains(latest.Message, "exceeded quota") {
		finding.Next = "wait until other pods of the namespace end, or raise the quota: kubectl -n " + namespace +
			" get resourcequotas"
	}
	return &Pod{Namespace: namespace, Name: name, State: "not created", Findings: []Finding{finding}}
}
