package healthaction_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var _ = Describe("Nodes with unhealthy GPUs", func() {
	It("are tainted one at a time, in two writes each, and at rest there is none", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b", "c")
		Expect(f.settle(ctx)).To(BeEmpty())
		f.fails(ctx, "a", "Reset", 2*time.Hour)
		f.fails(ctx, "b", "Reset", time.Hour)
		Expect(f.settle(ctx)).To(Equal([]string{"a", "a"}))
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-", "-"}))
		Expect(f.text("a")).To(Equal("tainted"))
		Expect(f.text("b")).To(HavePrefix("not tainted: 1 of 1 nodes are acted on already; fault reset-"))
		f.manager = f.newManager()
		Expect(f.settle(ctx)).To(BeEmpty(), "after a restart")

		f.recovers(ctx, "a")
		Expect(f.settle(ctx)).To(Equal([]string{"a", "b", "b"}))
		Expect(f.acted(ctx)).To(Equal([]string{"-", "tainted", "-"}))
		f.recovers(ctx, "b")
		Expect(f.settle(ctx)).To(Equal([]string{"b"}))
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-", "-"}))
		Expect(f.node(ctx, "b").Annotations).NotTo(HaveKey(labels.HealthRecord))
	})

	It("are acted on after the dwell time, at which a pass is due", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", 4*time.Minute)
		Expect(f.settle(ctx)).To(BeEmpty())
		Expect(f.text("a")).To(HavePrefix("not tainted: the fault must last 10m;"))
		Expect(f.pass(ctx, f.manager)).To(Equal(6 * time.Minute))
		f.clock.SetTime(f.clock.Now().Add(6 * time.Minute))
		Expect(f.settle(ctx)).To(Equal([]string{"a", "a"}))
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
	})

	It("keep their other taints, and are cordoned instead once the fault needs a reboot", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		team := corev1.Taint{Key: "example.com/team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
		f.update(ctx, "a", func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{team} })
		f.fails(ctx, "a", "Reset", time.Hour)
		f.settle(ctx)
		Expect(f.node(ctx, "a").Spec.Taints).To(ContainElement(team))
		f.fails(ctx, "a", "Reboot", time.Hour)
		Expect(f.settle(ctx)).To(Equal([]string{"a"}))
		Expect(f.acted(ctx)).To(Equal([]string{"cordoned", "-"}))
		f.recovers(ctx, "a")
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-"}))
		Expect(f.node(ctx, "a").Spec.Taints).To(ConsistOf(team))
	})

	It("are left alone once a person has uncordoned them", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reboot", time.Hour)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"cordoned", "-"}))
		f.update(ctx, "a", func(node *corev1.Node) { node.Spec.Unschedulable = false })
		Expect(f.settle(ctx)).To(Equal([]string{"a"}), "it is remembered")
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-"}))
		Expect(f.text("a")).To(HavePrefix("not cordoned: someone has undone it; fault reboot-"))
		f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
		Expect(f.settle(ctx)).To(BeEmpty())
	})

	It("keep a cordon of someone else", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.update(ctx, "a", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		f.fails(ctx, "a", "Reboot", time.Hour)
		Expect(f.settle(ctx)).To(BeEmpty())
		Expect(f.text("a")).To(HavePrefix("not cordoned: someone else has cordoned the node;"))
		f.recovers(ctx, "a")
		Expect(f.settle(ctx)).To(BeEmpty())
		Expect(f.acted(ctx)).To(Equal([]string{"cordoned", "-"}))
	})

	It("are acted on at once when a user approves the fault, and not when one forbids it", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", 0)
		f.settle(ctx)
		var id string
		_, err := fmt.Sscanf(f.text("a"), "not tainted: the fault must last 10m; fault %s", &id)
		Expect(err).NotTo(HaveOccurred())
		f.annotate(ctx, "a", labels.HealthConsent, "approve:"+id)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
		f.annotate(ctx, "a", labels.HealthConsent, "forbid")
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-"}))
		Expect(f.text("a")).To(ContainSubstring("forbids it"))
		f.annotate(ctx, "a", labels.HealthConsent, "approve:"+id)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
		f.recovers(ctx, "a")
		f.settle(ctx)
		Expect(f.node(ctx, "a").Annotations).NotTo(HaveKey(labels.HealthConsent), "it was for this fault")
	})

	DescribeTable("are left alone while someone else works on them",
		func(ctx SpecContext, begin func(*corev1.Node), says string) {
			f := newFixture(ctx, "a", "b")
			f.update(ctx, "a", begin)
			f.fails(ctx, "a", "Reset", time.Hour)
			Expect(f.settle(ctx)).To(BeEmpty())
			Expect(f.text("a")).To(HavePrefix("not tainted: " + says))
		},
		Entry("NVSentinel", func(node *corev1.Node) {
			node.Labels["dgxc.nvidia.com/nvsentinel-state"] = "draining"
		}, "NVSentinel works on the node"),
		Entry("the cluster autoscaler", func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
		}, "the cluster autoscaler works on the node"),
		Entry("Karpenter", func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
		}, "Karpenter works on the node"),
		Entry("the MIG manager", func(node *corev1.Node) {
			node.Labels["nvidia.com/mig.config.state"] = "rebooting"
		}, "the MIG manager works on the node"),
		Entry("an upgrade of NVIDIA's operator", func(node *corev1.Node) {
			node.Labels["nvidia.com/gpu-driver-upgrade-state"] = "drain-required"
		}, "its driver is being upgraded"),
	)

	It("lose what was done when the agent is turned off, and when the policy is deleted", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reboot", time.Hour)
		f.settle(ctx)
		f.spec.Health.Agent.Enabled = new(false)
		f.play(ctx)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-"}))
		f.spec = acting()
		f.play(ctx)
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"cordoned", "-"}))
		f.fleet.Publish(fleet.Basis{KeepNodes: true}, f.clock.Now())
		Expect(f.settle(ctx)).To(BeEmpty(), "while the spec is unknown")
		f.fleet.Publish(fleet.Basis{}, f.clock.Now())
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"-", "-"}))
		Expect(f.node(ctx, "a").Annotations).NotTo(HaveKey(labels.HealthRecord))
	})

	It("are not written while the policy is paused", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.spec.Paused = new(true)
		f.play(ctx)
		f.fails(ctx, "a", "Reset", time.Hour)
		Expect(f.settle(ctx)).To(BeEmpty())
	})

	It("are not more than allowed when two managers write by turns", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b", "c")
		second := f.newManager()
		f.fails(ctx, "a", "Reset", 2*time.Hour)
		f.pass(ctx, f.manager)
		f.fails(ctx, "b", "Reset", time.Hour)
		f.annotate(ctx, "b", labels.HealthConsent, "approve:any")
		for range 4 {
			f.pass(ctx, second)
			f.pass(ctx, f.manager)
		}
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-", "-"}))
	})

	It("are tried again after a failed write, and a refusal is reported", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", time.Hour)
		f.refuse = errUnavailable
		Expect(f.pass(ctx, f.manager)).To(Equal(time.Second))
		Expect(f.pass(ctx, f.manager)).To(Equal(time.Second), "it waits")
		Expect(f.patches).To(HaveLen(1))
		f.clock.SetTime(f.clock.Now().Add(time.Second))
		f.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errUnavailable)
		Expect(f.pass(ctx, f.manager)).To(Equal(30 * time.Second))
		Expect(f.text("a")).To(HavePrefix("the API server has rejected a change of the node: "))
		f.refuse = nil
		f.clock.SetTime(f.clock.Now().Add(time.Minute))
		f.settle(ctx)
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
	})

	DescribeTable("free their place for others while the API server denies their patches for good",
		func(ctx SpecContext, denied string) {
			f := newFakeFixture(ctx, "a", "b", "c")
			f.fails(ctx, "a", "Reset", 2*time.Hour)
			f.fails(ctx, "b", "Reset", time.Hour)
			f.denies = func(node, patch string) bool { return node == "a" && strings.Contains(patch, denied) }
			f.passFor(ctx, 4*time.Minute)
			Expect(f.acted(ctx)).To(Equal([]string{"-", "-", "-"}))
			f.passFor(ctx, 3*time.Minute)
			Expect(f.acted(ctx)).To(Equal([]string{"-", "tainted", "-"}))
			Expect(f.verdict("a").Hold).To(Equal(healthaction.HoldRejected))
			Expect(f.text("a")).To(And(HavePrefix("not tainted: the API server has rejected a change of the node: "),
				ContainSubstring("is forbidden: no; fault reset-")))
			Expect(f.pass(ctx, f.manager)).To(And(BeNumerically(">", 0), BeNumerically("<=", 5*time.Minute)),
				"a pass is due when the node is tried again")

			f.passFor(ctx, 10*time.Minute)
			Expect(f.acted(ctx)).To(Equal([]string{"-", "tainted", "-"}))
			Expect(f.text("a")).To(HavePrefix("not tainted: 1 of 1 nodes are acted on already; fault reset-"))
			f.recovers(ctx, "b")
			f.passFor(ctx, 10*time.Minute)
			f.denies = nil
			f.passFor(ctx, 6*time.Minute)
			Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-", "-"}), "it is tried again")
		},
		Entry("of taints", `"taints"`),
		Entry("of any kind, so that it claims no place", ""),
	)

	It("are acted on although two of their patches are denied with more than 5 minutes between", func(ctx SpecContext) {
		f := newFakeFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", time.Hour)
		f.denies = func(string, string) bool { return true }
		f.pass(ctx, f.manager)
		f.annotate(ctx, "a", labels.HealthConsent, "forbid")
		f.passFor(ctx, 10*time.Minute)
		f.annotate(ctx, "a", labels.HealthConsent, "")
		f.pass(ctx, f.manager)
		f.denies = nil
		f.passFor(ctx, 2*time.Minute)
		Expect(f.acted(ctx)).To(Equal([]string{"tainted", "-"}))
	})

	DescribeTable("are not shown as tainted, nor as released, while the write fails",
		func(ctx SpecContext, refusal error, says string) {
			f := newFixture(ctx, "a", "b")
			f.fails(ctx, "a", "Reset", time.Hour)
			f.pass(ctx, f.manager)
			Expect(f.node(ctx, "a").Annotations).To(HaveKey(labels.HealthRecord), "it has claimed a place")
			f.refuse = refusal
			f.pass(ctx, f.manager)
			failed := healthaction.Verdict{Hold: healthaction.HoldRejected, Text: says}
			Expect(f.verdict("a")).To(Equal(failed))
			f.pass(ctx, f.manager)
			Expect(f.verdict("a")).To(Equal(failed), "while it waits")
			f.refuse = nil
			f.clock.SetTime(f.clock.Now().Add(time.Minute))
			f.settle(ctx)
			Expect(f.verdict("a")).To(Equal(healthaction.Verdict{Done: v1.HealthActionTaint, Text: "tainted"}))
			f.refuse = refusal
			f.recovers(ctx, "a")
			f.pass(ctx, f.manager)
			failed.Done = v1.HealthActionTaint
			Expect(f.verdict("a")).To(Equal(failed))
			f.refuse = nil
			f.clock.SetTime(f.clock.Now().Add(time.Minute))
			f.settle(ctx)
			Expect(f.verdict("a")).To(BeZero())
		},
		Entry("as invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "a", nil),
			"the API server has rejected a change of the node: Node \"a\" is invalid"),
		Entry("by an error of the API server", apierrors.NewInternalError(errUnavailable),
			"the API server has rejected a change of the node: Internal error occurred: the API server is not available"),
		Entry("without an answer", context.DeadlineExceeded, "the API server has not answered a change of the node"),
	)

	It("are shown as before while another write has changed the node", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.fails(ctx, "a", "Reset", time.Hour)
		f.pass(ctx, f.manager)
		f.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errUnavailable)
		f.pass(ctx, f.manager)
		Expect(f.verdict("a")).To(BeZero())
	})

	It("cost nothing without actions", func(ctx SpecContext) {
		f := newFixture(ctx, "a", "b")
		f.spec.Health.Actions = &v1.HealthActionsSpec{}
		f.play(ctx)
		f.fails(ctx, "a", "Reset", time.Hour)
		Expect(f.settle(ctx)).To(BeEmpty())
		Expect(f.text("a")).To(BeEmpty())
	})
})
