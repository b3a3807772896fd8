package guides

import (
	"fmt"
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gangOfEight: six of the eight pods would fit, and none is bound; with two GPUs more all run.
func gangOfEight(e *env) { gang(e, nil) }

// gang is gangOfEight with a change of the sample's objects; nil for none.
func gang(e *env, change func(*unstructured.Unstructured)) {
	e.expectAllocatable(gangNode, map[string]int64{wholeGPU: 6})
	team := e.apply("gang-scheduling.yaml", change)
	pods := e.podsOf(team, 8)
	e.expectNoneBound(pods)
	single := request{name: "single", resource: wholeGPU, on: gangNode}.pod()
	e.create(single)
	e.expectRunning(single)
	e.expectNoneBound(e.podsOf(team, 8))
	e.Expect(e.client.Delete(e.t.Context(), single, client.GracePeriodSeconds(0))).To(Succeed())
	_, err := e.sim.AddNode(e.t.Context(), h100("gang-too", 2))
	e.Expect(err).NotTo(HaveOccurred())
	for _, pod := range e.podsOf(team, 8) {
		e.Eventually(func(g Gomega) {
			g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(&pod), &pod)).To(Succeed())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%s: %v", pod.Name, pod.Status.Conditions)
		}).WithTimeout(readyTime).Should(Succeed())
	}
}

// sampleQuota: each resource of the quota has its own number. No node has the label, so that no pod takes a GPU.
func sampleQuota(e *env) {
	team := e.apply("resource-quota.yaml", nil)
	quota := &corev1.ResourceQuota{}
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: team, Name: "gpus"}, quota)).To(Succeed())
		g.Expect(quota.Status.Hard).To(HaveLen(3))
	}).Should(Succeed())
	for name, count := range map[string]int64{wholeGPU: 8, slice10: 14, renamedGPU: 16} {
		of := request{
			name: fmt.Sprint("all-", count), namespace: team, resource: name, count: count,
			selector: map[string]string{"example.com/none": "true"},
		}
		e.create(of.pod())
		of.name, of.count = "one-more", 1
		err := e.client.Create(e.t.Context(), of.pod())
		e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		e.Expect(err).To(MatchError(ContainSubstring("exceeded quota: gpus, requested: requests.%s=1", name)))
	}
}

// inferenceEvictsBatch: two pods of batch work have both GPUs of a node. A third one waits, and one of them makes room
// for inference.
func inferenceEvictsBatch(e *env) {
	e.expectAllocatable(batchNode, map[string]int64{wholeGPU: 2})
	team := e.apply("priority.yaml", nil)
	running := e.podsOf(team, 2)
	for i := range running {
		e.expectRunning(&running[i])
		e.Expect(running[i].Spec.NodeName).To(Equal(batchNode))
	}
	third := request{name: "third", namespace: team, resource: wholeGPU, on: batchNode}.pod()
	third.Spec.PriorityClassName = "gpu-batch"
	e.create(third)
	e.expectWaiting(third, insufficient(wholeGPU))
	inference := request{name: "inference", namespace: team, resource: wholeGPU, on: batchNode}.pod()
	inference.Spec.PriorityClassName = "gpu-inference"
	e.create(inference)
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(inference), inference)).To(Succeed())
		g.Expect(inference.Status.Phase).To(Equal(corev1.PodRunning), "%v", inference.Status.Conditions)
	}).WithTimeout(readyTime).Should(Succeed())
	evicted := slices.DeleteFunc(running, func(pod corev1.Pod) bool {
		err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(&pod), &pod)
		return err == nil && pod.DeletionTimestamp == nil
	})
	e.Expect(evicted).To(HaveLen(1))
}

// restrictedTenant: a pod with a GPU needs no privilege.
func restrictedTenant(e *env) {
	e.expectAllocatable(tenantNode, map[string]int64{wholeGPU: 8})
	for _, object := range e.sample("pod-security.yaml") {
		onTenantNode(object)
		e.Eventually(func() error { return e.client.Create(e.t.Context(), object, strictly) }).Should(Succeed())
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "restricted"}}
	e.expectRunning(pod)
	privileged := request{name: "privileged", namespace: "tenant", resource: wholeGPU}.pod()
	privileged.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	e.Expect(e.client.Create(e.t.Context(), privileged)).To(MatchError(ContainSubstring("violates PodSecurity")))
}

// networkPolicies: those for operands select pods that run, each named by its app.
func networkPolicies(e *env) {
	e.expectReady(tenantNode)
	selected := 0
	for _, object := range e.sample("network-policies.yaml") {
		policy := &networkingv1.NetworkPolicy{}
		e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy)).To(Succeed())
		if policy.Namespace == "" {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		e.Expect(err).NotTo(HaveOccurred())
		list := &corev1.PodList{}
		e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(policy.Namespace),
			client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
		apps := map[string]bool{}
		for i := range list.Items {
			apps[list.Items[i].Labels["app"]] = true
		}
		e.Expect(apps).To(HaveKey("nvidia-dcgm-exporter"), policy.Name)
		for _, requirement := range policy.Spec.PodSelector.MatchExpressions {
			for _, app := range requirement.Values {
				// No node has a layout that the MIG manager would have to apply.
				if app != "nvidia-mig-manager" {
					e.Expect(apps).To(HaveKey(app), policy.Name)
				}
			}
		}
		selected++
	}
	e.Expect(selected).To(Equal(2))
}

// refusedByTheAPIServer: why the policy for GPU pods has no rules for this.
func refusedByTheAPIServer(e *env) {
	e.newNamespace("refused")
	for name, test := range map[string]struct{ requests, limits, want string }{
		"a limit above the request": {"1", "2", "must be equal to nvidia.com/gpu limit of 2"},
		"a request without a limit": {"1", "", "Limit must be set for non overcommitable resources"},
		"a fraction":                {"", "500m", "must be an integer"},
	} {
		pod := request{name: "refused", namespace: "refused", resource: wholeGPU}.pod()
		resources := &pod.Spec.Containers[0].Resources
		resources.Limits, resources.Requests = nil, nil
		if test.limits != "" {
			resources.Limits = corev1.ResourceList{wholeGPU: resource.MustParse(test.limits)}
		}
		if test.requests != "" {
			resources.Requests = corev1.ResourceList{wholeGPU: resource.MustParse(test.requests)}
		}
		err := e.client.Create(e.t.Context(), pod)
		e.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", name, err)
		e.Expect(err).To(MatchError(ContainSubstring(test.want)), name)
	}
}
