package node

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// A starting node is reconciled soon after a pod event that may end its start, and later after others.
func TestPodEventsOfAStartingNodeAreBatched(t *testing.T) {
	e := newEnv(t)
	e.publish()
	delayAfter := func(name string, change func(*corev1.PodStatus)) time.Duration {
		t.Helper()
		e.setPod(name, change)
		pod := &corev1.Pod{}
		e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, pod)).To(Succeed())
		return e.reconciler.debounceDelay(pod)
	}
	const toolkit, plugin = "container-toolkit", "device-plugin"
	const soon, step = 100 * time.Millisecond, 800 * time.Millisecond
	works := func(status *corev1.PodStatus) {
		status.Phase, status.Conditions[1].Status = corev1.PodRunning, corev1.ConditionTrue
	}
	fails := func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed }
	e.Expect(delayAfter(plugin, starts)).To(Equal(soon), "the node has no entry yet")

	e.setPod(toolkit, starts)
	_, err := e.reconcileAfter(0)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(delayAfter(plugin, starts)).To(Equal(step), "it is still starting")
	addStarting(e.fleet, 10_000)
	e.Expect(delayAfter(toolkit, works)).To(BeZero(), "labels wait for it, however many nodes are starting")
	for i := range 10_000 {
		e.fleet.Delete(fmt.Sprint("other-", i))
	}
	e.setPod(toolkit, starts)
	e.Expect(delayAfter(plugin, works)).To(Equal(step), "another one is missing")
	// One node is starting.
	e.Expect(delayAfter(toolkit, fails)).To(Equal(soon+time.Millisecond), "it fails")
	e.setPod(toolkit, works)
	e.Expect(delayAfter(plugin, starts)).To(Equal(step), "it is the last one, but not ready")
	e.Expect(delayAfter(plugin, works)).To(Equal(soon), "it is the last one")

	_, err = e.reconcileAfter(time.Second)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(delayAfter(plugin, starts)).To(Equal(soon), "the node was ready")
}

// The plan of a node is computed once per version of the Node and the decisions.
func TestPlanIsCached(t *testing.T) {
	e := newEnv(t)
	e.publish()
	planned := func() *fleet.PlannedNode {
		t.Helper()
		_, err := e.reconcileAfter(time.Second)
		e.Expect(err).NotTo(HaveOccurred())
		return e.fleet.Get("a").Planned
	}
	planned()
	first := planned()
	e.setPod("device-plugin", starts)
	e.Expect(planned()).To(BeIdenticalTo(first), "it does not depend on pods")

	node := &corev1.Node{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	e.Expect(first.Inputs.Version).To(Equal(node.ResourceVersion))
	node.Labels[labels.DeployPrefix+"dcgm-exporter"] = labels.False
	e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
	relabelled := planned()
	e.Expect(relabelled).NotTo(BeIdenticalTo(first))
	e.Expect(relabelled.NodePlan.Facts.Deploy).To(HaveKeyWithValue("dcgm-exporter", labels.False))
	e.Expect(planned()).To(BeIdenticalTo(relabelled))

	e.publish()
	e.Expect(planned()).NotTo(BeIdenticalTo(relabelled), "there are new decisions")
}

// Labels that another client has changed are restored, though the plan is cached.
func TestChangedLabelsAreRestored(t *testing.T) {
	e := newEnv(t)
	e.publish()
	for range 3 {
		_, err := e.reconcileAfter(time.Second)
		e.Expect(err).NotTo(HaveOccurred())
	}
	node := &corev1.Node{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	delete(node.Labels, labels.GPUPresent)
	e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
	_, err := e.reconcileAfter(time.Second)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "a"}, node)).To(Succeed())
	e.Expect(node.Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.True))
}
