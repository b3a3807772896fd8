package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// sessionWith returns a session with an API server that serves these paths, and refuses others with the code.
func sessionWith(t *testing.T, code int, served map[string]string) *session {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := served[r.URL.Path]
		if !known {
			http.Error(w, "refused", code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	asked, err := newSession(&rest.Config{Host: server.URL}, "")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return asked
}

// claimList has a claim for a GPU, one with admin access and one for a network device.
const claimList = `{"kind":"ResourceClaimList","apiVersion":"resource.k8s.io/v1",
	"metadata":{"resourceVersion":"7"},"items":[
	{"metadata":{"namespace":"a","name":"gpu"},
	 "spec":{"devices":{"requests":[{"name":"one","deviceClassName":"gpu.nvidia.com"}]}},
	 "status":{"allocation":{"devices":{"results":[{"driver":"gpu.nvidia.com","pool":"n","device":"0"}]}}}},
	{"metadata":{"namespace":"a","name":"admin"},"status":{"allocation":{"devices":{"results":[
	 {"driver":"gpu.nvidia.com","pool":"n","device":"0","adminAccess":true}]}}}},
	{"metadata":{"namespace":"a","name":"nic"},"status":{"allocation":{"devices":{"results":[
	 {"driver":"dra.net","pool":"n","device":"0"}]}}}}]}`

// The bundle has each pod with a GPU, however it gets it, in each version of the API of claims.
func TestPodsInTheBundle(t *testing.T) {
	requests := func(name string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")},
			},
		}}}}
	}
	claims := func(claim string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", ResourceClaims: []corev1.PodResourceClaim{{
			Name: "one", ResourceClaimName: &claim,
		}}}}
	}
	mapped := func(name, claim string) corev1.Pod {
		pod := requests(name)
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim}
		return pod
	}
	with := func(pod corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
		change(&pod)
		return pod
	}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	pending := func(pod *corev1.Pod) { pod.Spec.NodeName = "" }
	tests := map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"nothing":                      {corev1.Pod{}, false},
		"a plain request":              {requests("nvidia.com/gpu"), true},
		"a share":                      {requests("nvidia.com/gpu.shared"), true},
		"a MIG device":                 {requests("nvidia.com/mig-1g.10gb"), true},
		"a claim":                      {claims("gpu"), true},
		"a claim with admin access":    {claims("admin"), false},
		"a claim for a network device": {claims("nic"), false},
		"a claim that is gone":         {claims("gone"), true},
		"what a DeviceClass implies":   {requests("deviceclass.resource.kubernetes.io/gpu.nvidia.com"), true},
		"what a DeviceClass maps":      {mapped("example.com/fast", "gpu"), true},
		"a network device, mapped":     {mapped("example.com/nic", "nic"), false},
		"a pending claim":              {with(claims("nic"), pending), true},
		"a request that failed":        {with(requests("nvidia.com/gpu"), phase(corev1.PodFailed)), true},
		"a request that succeeded":     {with(requests("nvidia.com/gpu"), phase(corev1.PodSucceeded)), false},
	}
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		s := sessionWith(t, http.StatusNotFound, map[string]string{
			"/apis/resource.k8s.io/" + version + "/resourceclaims": claimList,
		})
		for name, test := range tests {
			t.Run(version+"/"+name, func(t *testing.T) {
				g := NewWithT(t)
				known, err := gpuClaims(t.Context(), s)
				g.Expect(err).NotTo(HaveOccurred())
				test.pod.Namespace = "a"
				g.Expect(wantsGPU(&test.pod, known)).To(Equal(test.want))
			})
		}
	}
}

// Who may not read claims sees all pods with claims; a cluster without the API has none.
func TestClaimsThatAreNotRead(t *testing.T) {
	g, claim := NewWithT(t), "nic"
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: corev1.PodSpec{
		NodeName: "n", ResourceClaims: []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: &claim}},
	}}
	known, err := gpuClaims(t.Context(), sessionWith(t, http.StatusForbidden, nil))
	g.Expect(err).To(MatchError("Error from server (Forbidden): refused"))
	g.Expect(wantsGPU(&pod, known)).To(BeTrue())
	_, err = gpuClaims(t.Context(), sessionWith(t, http.StatusNotFound, nil))
	g.Expect(err).NotTo(HaveOccurred())
}

// A pod is explained with its claims, and with the resources that DeviceClasses map.
func TestClaimsOfAPod(t *testing.T) {
	g, claim := NewWithT(t), "gpu"
	s := sessionWith(t, http.StatusNotFound, map[string]string{
		"/apis/resource.k8s.io/v1/namespaces/a/resourceclaims": claimList,
		"/apis/resource.k8s.io/v1/deviceclasses": `{"kind":"DeviceClassList","apiVersion":"resource.k8s.io/v1",
			"metadata":{},"items":[{"spec":{"extendedResourceName":
			"example.com/fast"}},{"spec":{}}]}`,
	})
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}
	g.Expect(claimsOf(t.Context(), s, &pod)).To(BeEmpty())
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "one", ResourceClaimName: &claim}}
	g.Expect(claimsOf(t.Context(), s, &pod)).To(ContainElement(HaveField("ObjectMeta.Name", "gpu")))
	g.Expect(mappedResources(t.Context(), s)).To(Equal(map[corev1.ResourceName]bool{"example.com/fast": true}))
}
