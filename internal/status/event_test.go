package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/events"
)

// TestPolicyEvents: a policy that becomes degraded tells once, with each other reason once more, and when it is
// over.
func TestPolicyEvents(t *testing.T) {
	g := NewWithT(t)
	broken := func(name string) v1.ClusterPolicyStatus {
		b := newBed(t, 3)
		if name != "" {
			b.fail(1, "driver", name)
		}
		return b.status()
	}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
	_, tells := policyEvent(policy, broken(""))
	g.Expect(tells).To(BeFalse(), "all works from the start")
	event, tells := policyEvent(policy, broken("boom"))
	g.Expect(tells).To(BeTrue())
	g.Expect(event).To(And(HaveField("Type", "Warning"), HaveField("Reason", "OperandFailed"),
		HaveField("Message", "1 of 3 GPU nodes have failed: node-00001 (Driver: CrashLoopBackOff)"), HaveField("Regarding.Kind", "ClusterPolicy")))
	policy.Status = broken("boom")
	_, tells = policyEvent(policy, broken("bang"))
	g.Expect(tells).To(BeFalse(), "it is degraded already")
	event, tells = policyEvent(policy, broken(""))
	g.Expect(tells).To(BeTrue())
	g.Expect(event).To(And(HaveField("Type", "Normal"), HaveField("Reason", "Reconciled"), HaveField("Message", "no longer degraded: 3 of 3 GPU nodes are ready")))
	unreached := Pass{Err: errors.New("timeout")}
	after := Compute(policy, unreached)
	event, tells = policyEvent(policy, after)
	g.Expect(tells).To(BeTrue(), "degraded for another reason")
	g.Expect(event).To(And(HaveField("Type", "Warning"), HaveField("Reason", "ReconcileFailed")))
}

// TestOperandEvents: of several operands that fail beside the ladder each is told once, with node, container and
// cause, the first one by the policy's own Event.
func TestOperandEvents(t *testing.T) {
	g := NewWithT(t)
	d := newDesk(t)
	d.writer = NewWriter(d.client, d.clock, events.NewRecorder(d.client, d.clock, func(string) {}), newBed(t, 0).catalogue, DefaultTiming())
	b := newBed(t, 1)
	told := func() []string {
		list := &corev1.EventList{}
		g.Expect(d.client.List(t.Context(), list)).To(Succeed())
		var messages []string
		for i := range list.Items {
			g.Expect(list.Items[i].InvolvedObject).To(And(HaveField("Kind", "ClusterPolicy"), HaveField("Name", "cp")))
			messages = append(messages, list.Items[i].Type+" "+list.Items[i].Reason+" "+list.Items[i].Message)
		}
		return messages
	}
	write := func() {
		_, err := d.writer.Write(t.Context(), d.read(), b.status(d.read().Status))
		g.Expect(err).NotTo(HaveOccurred())
		d.clock.SetTime(d.clock.Now().Add(time.Minute))
	}
	write()
	g.Expect(told()).To(BeEmpty())
	b.fail(0, "gpu-feature-discovery", "no GPU")
	write()
	const first = "Warning OperandFailed gpu-feature-discovery: fails on 1 of 1 nodes: " +
		"node-00000 (container main: CrashLoopBackOff, exit code 1): node-00000 says: no GPU"
	g.Expect(told()).To(ConsistOf(first), "by the policy's own Event")
	b.fail(0, "dcgm-exporter", "no engine")
	write()
	second := strings.NewReplacer("gpu-feature-discovery", "dcgm-exporter", "no GPU", "no engine").Replace(first)
	g.Expect(told()).To(ConsistOf(first, second), "the policy is degraded already")
	b.fail(0, "dcgm-exporter", "no engine any more")
	write()
	g.Expect(told()).To(HaveLen(2), "the same failure")
	b.fail(0, "device-plugin", "boom")
	write()
	g.Expect(told()).To(HaveLen(2), "a node tells of what its ladder needs")
}
