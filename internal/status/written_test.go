package status

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
)

// What is computed is written here as the operator writes it.

// desk is a statuswriter.Writer at an API server that counts its writes.
type desk struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	writer *statuswriter.Writer
	writes int
}

func newDesk(t *testing.T, b *bed) *desk {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, clock: clocktesting.NewFakePassiveClock(now)}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
	d.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy).WithStatusSubresource(policy).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
				d.writes++
				return c.SubResource(sub).Update(ctx, o, options...)
			},
		}).Build()
	recorder := events.NewRecorder(d.client, d.clock, func(string) {})
	d.writer = statuswriter.New(d.client, d.clock, recorder, b.catalogue, statuswriter.DefaultTiming())
	return d
}

func (d *desk) read() *v1.ClusterPolicy {
	d.t.Helper()
	policy := &v1.ClusterPolicy{}
	if err := d.client.Get(context.Background(), client.ObjectKey{Name: "cp"}, policy); err != nil {
		d.t.Fatal(err)
	}
	return policy
}

// TestOperandEvents: of several operands that fail beside the ladder each is told once, with node, container and
// cause, the first one by the policy's own Event.
func TestOperandEvents(t *testing.T) {
	g := NewWithT(t)
	b := newBed(t, 1)
	d := newDesk(t, b)
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

// What is computed twice of the same cluster is equal: a pass at rest writes nothing.
func TestAPassAtRestWritesNothing(t *testing.T) {
	b := newBed(t, 120)
	d := newDesk(t, b)
	b.fail(7, "driver", "boom")
	for i, want := range []bool{true, false, false} {
		policy := d.read()
		status := Compute(policy, b.pass())
		before := d.writes
		if _, err := d.writer.Write(t.Context(), policy, status); err != nil {
			t.Fatal(err)
		}
		if wrote := d.writes > before; wrote != want {
			t.Errorf("pass %d: wrote %v", i, wrote)
		}
		b.fail(7, "driver", "boom, attempt "+string(rune('a'+i)))
		d.clock.SetTime(d.clock.Now().Add(time.Minute))
	}
}
