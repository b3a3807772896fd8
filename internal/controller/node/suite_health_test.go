package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// withAgent is a spec with the health agent.
var withAgent = v1.ClusterPolicySpec{Health: &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}}}

const (
	healthy = `{"boot":"b","faults":[]}`
	needs   = `{"boot":"b","faults":[{"pci":"0000:1b:00.0","class":"Reset","reason":"NVLinkError","xid":74,` +
		`"since":"2026-11-25T12:03:00Z"}]}`
)

// health returns status and reason of the condition nvidia.com/GPUHealthy; empty if there is none.
func (f *fixture) health(ctx context.Context) string {
	GinkgoHelper()
	condition := assess.GPUHealthyCondition(f.node(ctx))
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// report writes what the agent of the node reports.
func (f *fixture) report(ctx context.Context, value string) {
	GinkgoHelper()
	f.update(ctx, func(node *corev1.Node) {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[labels.GPUHealth] = value
	})
}

var _ = Describe("A node with a health agent", func() {
	It("has the condition that follows from its report, with one Event for each change", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(withAgent)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.health(ctx)).To(Equal("Unknown GPUHealthUnknown"))
		f.report(ctx, healthy)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.health(ctx)).To(Equal("True GPUsHealthy"))
		Expect(f.events(ctx)).To(BeEmpty())

		f.report(ctx, needs)
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, createEvent, patchCondition}))
		Expect(f.health(ctx)).To(Equal("False NVLinkError"))
		Expect(f.reported(ctx)).To(Equal("True GPUReady"), "a GPU that needs a reset is not lost")
		Expect(f.reconcileAfter(ctx, time.Minute)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
		Expect(f.events(ctx)).To(ConsistOf("Warning NVLinkError"))

		f.report(ctx, healthy)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.health(ctx)).To(Equal("True GPUsHealthy"))
		Expect(f.events(ctx)).To(ConsistOf("Warning NVLinkError", "Normal GPUsHealthy"))
	})

	It("has no condition and no report once the agent is turned off", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(withAgent)
		f.report(ctx, needs)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		Expect(f.health(ctx)).To(Equal("False NVLinkError"))
		f.publish(v1.ClusterPolicySpec{})
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.health(ctx)).To(BeEmpty())
		Expect(f.node(ctx).Annotations).NotTo(HaveKey(labels.GPUHealth))
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}))
	})

	It("loses both when the policy is deleted, in as many calls as without", func(ctx SpecContext) {
		f := newFixture(ctx, func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{team} })
		f.publish(withAgent)
		f.report(ctx, needs)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, patchLabels, patchCondition}))
		f.expectReleased(ctx)
	})

	It("reports what is done because of its faults, which a restart does not change", func(ctx SpecContext) {
		f := newFixture(ctx)
		spec := withAgent
		spec.Health = &v1.HealthSpec{
			Agent: spec.Health.Agent, Actions: &v1.HealthActionsSpec{All: v1.HealthActionTaint},
		}
		f.publish(spec)
		f.report(ctx, needs)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		message := func() string { return assess.GPUHealthyCondition(f.node(ctx)).Message }
		plain := message()
		f.fleet.SetHealthActions(map[string]healthaction.Verdict{f.name: {Done: v1.HealthActionTaint, Text: "tainted"}})
		Expect(f.fleet.TakeHealthChanges()).To(ConsistOf(f.name))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(message()).To(Equal(plain + "; tainted"))

		restarted := fleet.New()
		f.fleet, f.reconciler.Fleet = restarted, restarted
		f.publish(spec)
		f.takeCalls()
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods}), "the verdict is not known yet")
		f.fleet.SetHealthActions(map[string]healthaction.Verdict{})
		Expect(f.fleet.TakeHealthChanges()).To(ConsistOf(f.name))
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(message()).To(Equal(plain))
	})

	It("is not written while the policy is paused", func(ctx SpecContext) {
		f := newFixture(ctx)
		f.publish(withAgent)
		f.report(ctx, healthy)
		Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
		paused := withAgent
		paused.Paused = new(true)
		f.publish(paused)
		f.report(ctx, needs)
		Expect(f.reconcileAfter(ctx, time.Second)).To(BeZero())
		Expect(f.health(ctx)).To(Equal("True GPUsHealthy"))
	})
})
