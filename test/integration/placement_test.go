package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestPlacementOfDriverPodsIsProtected changes the node placement of DaemonSets. The admission policy refuses that
// for the driver and the toolkit, and permits other changes; for other operands the operator repairs it. Without the
// policy, as with the Operator Lifecycle Manager, it also repairs the driver.
func TestPlacementOfDriverPodsIsProtected(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(3)
	pods := e.anchored()
	t.Run("of the driver and the toolkit", func(t *testing.T) { e.in(t).placementIsRefused() })
	e.settled()
	e.Expect(e.anchored()).To(Equal(pods), "no pod of them was replaced")
	t.Run("of another", func(t *testing.T) { e.in(t).placementIsRepaired(pluginName) })
	e.awaitReady(3)
	e.Expect(e.anchored()).To(Equal(pods))
	e.removePolicy("gpu-operator-placement")
	t.Run("of the driver without the policy", func(t *testing.T) {
		e := e.in(t)
		e.placementIsRepaired(driverName)
		e.awaitReady(3)
	})
}

// removePolicy deletes an admission policy and its binding.
func (e *env) removePolicy(name string) {
	e.t.Helper()
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("admissionregistration.k8s.io/v1")
		object.SetKind(kind)
		object.SetName(name)
		e.Expect(e.client.Delete(e.t.Context(), object)).To(Succeed())
	}
}

// placementIsRefused changes each field that affects placement, and some that do not.
func (e *env) placementIsRefused() {
	refused := map[string]func(*corev1.PodSpec){
		"nodeSelector": func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"team": "a"} },
		"affinity":     func(pod *corev1.PodSpec) { pod.Affinity = nil },
		"tolerations":  func(pod *corev1.PodSpec) { pod.Tolerations = nil },
		"nodeName":     func(pod *corev1.PodSpec) { pod.NodeName = "gpu-00000" },
	}
	for _, name := range []string{driverName, "nvidia-container-toolkit-daemonset"} {
		for field, change := range refused {
			ds := e.daemonSet(name)
			change(&ds.Spec.Template.Spec)
			err := e.client.Update(e.t.Context(), ds)
			e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s of %s: %v", field, name, err)
			e.Expect(err).
				To(MatchError(And(ContainSubstring(field+" of DaemonSet "+name+" may only be changed by the GPU operator"),
					ContainSubstring("set nodeSelector or tolerations in the ClusterPolicy"))))
		}
		ds := e.daemonSet(name)
		e.Expect(e.edit(ds, func() {
			ds.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
			ds.Labels["team"] = "a"
		}, client.DryRunAll)).To(Succeed(), "kubectl rollout restart of %s", name)
		e.Expect(e.client.Status().Update(e.t.Context(), e.daemonSet(name))).To(Succeed())
	}
	ds := e.daemonSet(driverName)
	e.Expect(e.edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:1" })).To(Succeed())
}

// placementIsRepaired adds a label that no node has to a nodeSelector.
func (e *env) placementIsRepaired(name string) {
	e.t.Helper()
	ds := e.daemonSet(name)
	wanted := ds.Spec.Template.Spec.NodeSelector
	begin := time.Now()
	patch := []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"example.com/no":"node"}}}}}`)
	e.Eventually(func() error {
		begin = time.Now()
		return e.client.Patch(e.t.Context(), &appsv1.DaemonSet{ObjectMeta: ds.ObjectMeta},
			client.RawPatch(types.MergePatchType, patch))
	}).Should(Succeed(), "a deleted policy is enforced for a moment")
	e.Eventually(func() map[string]string { return e.daemonSet(name).Spec.Template.Spec.NodeSelector }).
		WithPolling(10 * time.Millisecond).Should(Equal(wanted))
	e.t.Logf("%s: repaired after %s", name, time.Since(begin).Round(10*time.Millisecond))
	e.Eventually(func() []corev1.Event {
		return e.eventsAbout("ClusterPolicy", policy)
	}).WithPolling(10 * time.Millisecond).
		Should(ContainElement(And(HaveField("Reason", v1.ReasonPlacementRepaired),
			HaveField("Message", ContainSubstring("DaemonSet "+name)))))
	e.t.Logf("%s: reported after %s", name, time.Since(begin).Round(10*time.Millisecond))
}
