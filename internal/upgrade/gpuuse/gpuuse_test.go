package gpuuse_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// requests is a pod whose container has a limit of one of the resource.
func requests(name, count string) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(count)},
	}}}}}
}

func with(pod corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&pod)
	return pod
}

// names is a pod that names a claim, generated one with a claim from a template, and mapped one for whose extended
// resource the scheduler has created a claim.
func names(claim string) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{
		Name: "one", ResourceClaimName: &claim,
	}}}}
}

func generated(claim string) corev1.Pod {
	template := "template"
	return corev1.Pod{
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{
			Name: "one", ResourceClaimTemplateName: &template,
		}}},
		Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{
			Name: "one", ResourceClaimName: &claim,
		}}},
	}
}

func mapped(name, claim string) corev1.Pod {
	return with(requests(name, "1"), func(pod *corev1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: claim,
			RequestMappings: []corev1.ContainerExtendedResourceRequest{{
				ContainerName: "main", ResourceName: name, RequestName: "container-0-request-0",
			}},
		}
	})
}

// implied starts the extended resource that a DeviceClass implies.
const implied = "deviceclass.resource.kubernetes.io/"

func TestOf(t *testing.T) {
	unnamed := func(pod *corev1.Pod) { pod.Status.ResourceClaimStatuses = nil }
	elsewhere := func(pod *corev1.Pod) { pod.Namespace = "other" }
	withClass := func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = new("nvidia") }
	inInit := func(pod *corev1.Pod) { pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil }
	asRequest := func(pod *corev1.Pod) {
		container := &pod.Spec.Containers[0]
		container.Resources.Requests, container.Resources.Limits = container.Resources.Limits, nil
	}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	class := func(name string) corev1.Pod { return corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &name}} }
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want gpuuse.Use
	}{
		"nothing":                  {corev1.Pod{}, gpuuse.None},
		"memory":                   {requests("memory", "1Gi"), gpuuse.None},
		"a GPU":                    {requests("nvidia.com/gpu", "1"), gpuuse.Held},
		"no GPU":                   {requests("nvidia.com/gpu", "0"), gpuuse.None},
		"a shared GPU":             {requests("nvidia.com/gpu.shared", "1"), gpuuse.Held},
		"a MIG device":             {requests("nvidia.com/mig-1g.10gb", "1"), gpuuse.Held},
		"a shared MIG device":      {requests("nvidia.com/mig-1g.10gb.shared", "1"), gpuuse.Held},
		"in an init container":     {with(requests("nvidia.com/gpu", "1"), inInit), gpuuse.Held},
		"as a request":             {with(requests("nvidia.com/gpu", "1"), asRequest), gpuuse.Held},
		"another device of NVIDIA": {requests("nvidia.com/hostdev", "1"), gpuuse.Possible},
		"a GPU of another vendor":  {requests("amd.com/gpu", "1"), gpuuse.None},

		"the implicit name":               {requests(implied+"gpu.nvidia.com", "1"), gpuuse.Held},
		"that of MIG devices":             {requests(implied+"mig.nvidia.com", "1"), gpuuse.Held},
		"that of GPUs for VMs":            {requests(implied+"vfio.gpu.nvidia.com", "1"), gpuuse.Held},
		"that of another driver":          {requests(implied+"dra.net", "1"), gpuuse.None},
		"that of a class that ends alike": {requests(implied+"not-gpu.nvidia.com", "1"), gpuuse.None},
		"none of it":                      {requests(implied+"gpu.nvidia.com", "0"), gpuuse.None},

		"a claim":                        {names("gpus"), gpuuse.Held},
		"a claim for a network device":   {names("nic"), gpuuse.None},
		"a claim from a template":        {generated("gpus"), gpuuse.Held},
		"one for a network device":       {generated("nic"), gpuuse.None},
		"a template without its claim":   {with(generated(""), unnamed), gpuuse.None},
		"a mapped resource":              {mapped("example.com/accelerator", "gpus"), gpuuse.Held},
		"one of another driver":          {mapped("example.com/accelerator", "nic"), gpuuse.None},
		"the plugin's name, mapped":      {mapped("nvidia.com/gpu", "gpus"), gpuuse.Held},
		"a resource that nothing maps":   {requests("example.com/accelerator", "1"), gpuuse.None},
		"the claim of another namespace": {with(names("gpus"), elsewhere), gpuuse.None},

		"the RuntimeClass":      {class("gpu"), gpuuse.Possible},
		"the one for CDI":       {class("nvidia-cdi"), gpuuse.Possible},
		"another RuntimeClass":  {class("gvisor"), gpuuse.None},
		"with it, and a GPU":    {with(requests("nvidia.com/gpu", "1"), withClass), gpuuse.Held},
		"one that runs":         {with(requests("nvidia.com/gpu", "1"), phase(corev1.PodRunning)), gpuuse.Held},
		"one that is to start":  {with(requests("nvidia.com/gpu", "1"), phase(corev1.PodPending)), gpuuse.Held},
		"one that is unknown":   {with(requests("nvidia.com/gpu", "1"), phase(corev1.PodUnknown)), gpuuse.Held},
		"one that succeeded":    {with(requests("nvidia.com/gpu", "1"), phase(corev1.PodSucceeded)), gpuuse.None},
		"one that failed":       {with(mapped("example.com/accelerator", "gpus"), phase(corev1.PodFailed)), gpuuse.None},
		"a claim, in the past":  {with(names("gpus"), phase(corev1.PodSucceeded)), gpuuse.None},
		"the RuntimeClass, too": {with(class("nvidia"), phase(corev1.PodSucceeded)), gpuuse.None},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			claims := func(namespace, claim string) bool { return namespace == "" && claim == "gpus" }
			g.Expect(gpuuse.Of(&test.pod, "gpu", claims)).To(Equal(test.want))
		})
	}
	nic := names("nic")
	NewWithT(t).Expect(gpuuse.Of(&nic, "", nil)).To(Equal(gpuuse.Held), "claims that are not known count")
}

func TestClaimHolds(t *testing.T) {
	device := func(driver string, admin *bool) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{
			Request: "one", Driver: driver, Pool: "a", Device: "d", AdminAccess: admin,
		}
	}
	type devices []resourcev1.DeviceRequestAllocationResult
	for name, test := range map[string]struct {
		devices devices
		want    bool
	}{
		"a GPU":                            {devices{device("gpu.nvidia.com", nil)}, true},
		"a GPU, expressly not as an admin": {devices{device("gpu.nvidia.com", new(false))}, true},
		"a GPU as an admin":                {devices{device("gpu.nvidia.com", new(true))}, false},
		"one as an admin and one to use": {devices{
			device("gpu.nvidia.com", new(true)), device("gpu.nvidia.com", nil),
		}, true},
		"a network device":           {devices{device("dra.net", nil)}, false},
		"a channel between nodes":    {devices{device("compute-domain.nvidia.com", nil)}, false},
		"a network device and a GPU": {devices{device("dra.net", nil), device("gpu.nvidia.com", nil)}, true},
		"no device":                  {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status := &resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}
			status.Allocation.Devices.Results = test.devices
			g.Expect(gpuuse.ClaimHolds(status)).To(Equal(test.want))
			g.Expect(gpuuse.ClaimReaches(status)).To(Equal(test.want || name == "a GPU as an admin"))
		})
	}
	NewWithT(t).Expect(gpuuse.ClaimHolds(&resourcev1.ResourceClaimStatus{})).To(BeFalse(), "it is not allocated")
}

// A claim that was not read counts as holding GPUs, whatever its namespace has besides.
func TestAmong(t *testing.T) {
	claim := func(namespace, name, driver string) *resourcev1.ResourceClaim {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		claim.Status.Allocation = &resourcev1.AllocationResult{}
		claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Driver: driver}}
		return claim
	}
	monitor := claim("team-a", "monitor", "gpu.nvidia.com")
	monitor.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	holds := gpuuse.Among([]*resourcev1.ResourceClaim{
		claim("team-a", "gpus", "gpu.nvidia.com"), claim("team-a", "nic", "dra.net"), claim("team-b", "gpus", "dra.net"),
		monitor,
	})
	for name, test := range map[string]struct {
		namespace, claim string
		want             bool
	}{
		"a GPU":                                {"team-a", "gpus", true},
		"a network device":                     {"team-a", "nic", false},
		"a GPU as an admin":                    {"team-a", "monitor", false},
		"the same name in another namespace":   {"team-b", "gpus", false},
		"one that was not read":                {"team-a", "other", true},
		"one of a namespace that has no other": {"team-c", "nic", true},
		"one whose namespace has such a name":  {"gpus", "team-b", true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(holds(test.namespace, test.claim)).To(Equal(test.want))
		})
	}
}

func TestHasClaims(t *testing.T) {
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"nothing":                      {corev1.Pod{}, false},
		"a GPU of the plugin":          {requests("nvidia.com/gpu", "1"), false},
		"a claim":                      {names("nic"), true},
		"a claim from a template":      {generated("nic"), true},
		"a mapped resource":            {mapped("example.com/accelerator", "nic"), true},
		"one whose claim has no name":  {mapped("example.com/accelerator", ""), false},
		"a resource that nothing maps": {requests("example.com/accelerator", "1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(gpuuse.HasClaims(&test.pod)).To(Equal(test.want))
		})
	}
}
