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
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// How soon drift of where pods run is repaired and reported, and how soon the effect of it is.
const (
	placementTime = 2 * time.Second
	effectTime    = 5 * time.Second
)

// TestNobodyElsePlacesDriverPods changes on which nodes the pods of DaemonSets run. Of the driver and the toolkit the API
// server refuses that, and lets everything else pass; of the others the operator sets it right. Where the cluster has no
// such policy, as with the Operator Lifecycle Manager, that holds for the driver, too.
func TestNobodyElsePlacesDriverPods(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(3)
	pods := b.anchored()
	t.Run("of the driver and the toolkit", func(t *testing.T) { b.in(t).placementIsRefused() })
	b.settled()
	b.Expect(b.anchored()).To(Equal(pods), "no pod of them was replaced")
	t.Run("of another", func(t *testing.T) { b.in(t).placementIsRepaired(pluginName) })
	b.awaitReady(3)
	b.Expect(b.anchored()).To(Equal(pods))
	b.removePolicy("gpu-operator-placement")
	t.Run("of the driver without the policy", func(t *testing.T) {
		b := b.in(t)
		b.placementIsRepaired(driverName)
		b.awaitReady(3)
		replaced := 0
		for of, uid := range b.podsOf("driver") {
			if pods[of] != uid {
				replaced++
			}
		}
		t.Logf("%d of 3 driver pods were replaced without the policy", replaced)
	})
}

// removePolicy deletes an admission policy and its binding.
func (b *bed) removePolicy(name string) {
	b.t.Helper()
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("admissionregistration.k8s.io/v1")
		object.SetKind(kind)
		object.SetName(name)
		b.Expect(b.client.Delete(b.t.Context(), object)).To(Succeed())
	}
}

// placementIsRefused changes each field that decides where pods run, and some that do not.
func (b *bed) placementIsRefused() {
	refused := map[string]func(*corev1.PodSpec){
		"nodeSelector": func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"team": "a"} },
		"affinity":     func(pod *corev1.PodSpec) { pod.Affinity = nil },
		"tolerations":  func(pod *corev1.PodSpec) { pod.Tolerations = nil },
		"nodeName":     func(pod *corev1.PodSpec) { pod.NodeName = "gpu-00000" },
	}
	for _, name := range []string{driverName, "nvidia-container-toolkit-daemonset"} {
		for field, change := range refused {
			ds := b.daemonSet(name)
			change(&ds.Spec.Template.Spec)
			err := b.client.Update(b.t.Context(), ds)
			b.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s of %s: %v", field, name, err)
			b.Expect(err).To(MatchError(And(ContainSubstring(field+" of DaemonSet "+name+" may only be changed by the GPU operator"),
				ContainSubstring("set nodeSelector or tolerations in the ClusterPolicy"))))
		}
		ds := b.daemonSet(name)
		b.Expect(b.edit(ds, func() {
			ds.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
			ds.Labels["team"] = "a"
		}, client.DryRunAll)).To(Succeed(), "kubectl rollout restart of %s", name)
		b.Expect(b.client.Status().Update(b.t.Context(), b.daemonSet(name))).To(Succeed())
	}
	ds := b.daemonSet(driverName)
	b.Expect(b.edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:1" })).To(Succeed())
}

// placementIsRepaired adds a key to a nodeSelector that no node has.
func (b *bed) placementIsRepaired(name string) {
	b.t.Helper()
	ds := b.daemonSet(name)
	wanted := ds.Spec.Template.Spec.NodeSelector
	begin := time.Now()
	patch := []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"example.com/no":"node"}}}}}`)
	b.Eventually(func() error {
		begin = time.Now()
		return b.client.Patch(b.t.Context(), &appsv1.DaemonSet{ObjectMeta: ds.ObjectMeta}, client.RawPatch(types.MergePatchType, patch))
	}).Should(Succeed(), "a policy that was deleted is in force for a moment")
	b.Eventually(func() map[string]string { return b.daemonSet(name).Spec.Template.Spec.NodeSelector }).
		WithTimeout(placementTime).WithPolling(10 * time.Millisecond).Should(Equal(wanted))
	b.t.Logf("%s: repaired after %s", name, time.Since(begin).Round(10*time.Millisecond))
	b.Eventually(func() []corev1.Event { return b.eventsAbout("ClusterPolicy", policy) }).WithTimeout(placementTime).WithPolling(10 * time.Millisecond).
		Should(ContainElement(And(HaveField("Reason", v1.ReasonPlacementRepaired), HaveField("Message", ContainSubstring("DaemonSet "+name)))))
	b.t.Logf("%s: reported after %s", name, time.Since(begin).Round(10*time.Millisecond))
	b.Expect(time.Since(begin)).To(BeNumerically("<", effectTime))
}
