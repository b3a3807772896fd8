package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// A node that is starting is assessed soon after what may end that, and later after each step on the way.
func TestStepsOfANodeThatStartsAreTakenTogether(t *testing.T) {
	r := newRig(t)
	r.publish()
	after := func(name string, change func(*corev1.PodStatus)) time.Duration {
		t.Helper()
		r.pod(name, change)
		pod := &corev1.Pod{}
		r.Expect(r.client.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, pod)).To(Succeed())
		return r.reconciler.batch(pod)
	}
	const toolkit, plugin = "container-toolkit", "device-plugin"
	const soon, step = 100 * time.Millisecond, 800 * time.Millisecond
	works := func(status *corev1.PodStatus) {
		status.Phase, status.Conditions[1].Status = corev1.PodRunning, corev1.ConditionTrue
	}
	fails := func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed }
	r.Expect(after(plugin, starts)).To(Equal(soon), "the node is not known yet")

	r.pod(toolkit, starts)
	_, err := r.after(0)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(after(plugin, starts)).To(Equal(step), "it goes on to start")
	// One node is starting.
	r.Expect(after(toolkit, works)).To(Equal(soon+time.Millisecond), "labels wait for it")
	r.pod(toolkit, starts)
	r.Expect(after(plugin, works)).To(Equal(step), "another one is missing")
	r.Expect(after(toolkit, fails)).To(Equal(soon+time.Millisecond), "it fails")
	r.Expect(after(toolkit, works)).To(Equal(soon+time.Millisecond), "it is the last one")

	_, err = r.after(time.Second)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(after(plugin, starts)).To(Equal(soon), "the node was ready")
}

// A plan is made once for a Node and a spec.
func TestAPlanIsKeptWhileNothingChanges(t *testing.T) {
	r := newRig(t)
	r.publish()
	planned := func() *fleet.Planned {
		t.Helper()
		_, err := r.after(time.Second)
		r.Expect(err).NotTo(HaveOccurred())
		return r.fleet.Get("a").Planned
	}
	planned()
	first := planned()
	r.pod("device-plugin", starts)
	r.Expect(planned()).To(BeIdenticalTo(first), "pods are no part of it")

	node := &corev1.Node{}
	r.Expect(r.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	r.Expect(first.From.Version).To(Equal(node.ResourceVersion))
	node.Labels[labels.DeployPrefix+"dcgm-exporter"] = labels.False
	r.Expect(r.client.Update(t.Context(), node)).To(Succeed())
	relabelled := planned()
	r.Expect(relabelled).NotTo(BeIdenticalTo(first))
	r.Expect(relabelled.Node.Facts.Deploy).To(HaveKeyWithValue("dcgm-exporter", labels.False))
	r.Expect(planned()).To(BeIdenticalTo(relabelled))

	r.publish()
	r.Expect(planned()).NotTo(BeIdenticalTo(relabelled), "it was decided anew")
}

// Labels that somebody has changed are written again, though the plan was kept before.
func TestLabelsAreWrittenAgain(t *testing.T) {
	r := newRig(t)
	r.publish()
	for range 3 {
		_, err := r.after(time.Second)
		r.Expect(err).NotTo(HaveOccurred())
	}
	node := &corev1.Node{}
	r.Expect(r.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	delete(node.Labels, labels.GPUPresent)
	r.Expect(r.client.Update(t.Context(), node)).To(Succeed())
	_, err := r.after(time.Second)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	r.Expect(node.Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.True))
}
