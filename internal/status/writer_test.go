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
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
)

// writerFixture is a statuswriter.Writer with a fake API server that counts its writes.
type writerFixture struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	writer *statuswriter.Writer
	writes int
}

func newWriterFixture(t *testing.T, e *env) *writerFixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	f := &writerFixture{t: t, clock: clocktesting.NewFakePassiveClock(now)}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy).WithStatusSubresource(policy).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(
				ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption,
			) error {
				f.writes++
				return c.SubResource(sub).Update(ctx, o, options...)
			},
		}).Build()
	recorder := events.NewRecorder(f.client, f.clock, func(string) {})
	f.writer = statuswriter.New(f.client, f.clock, recorder, e.catalogue, statuswriter.DefaultTiming())
	return f
}

func (f *writerFixture) read() *v1.ClusterPolicy {
	f.t.Helper()
	policy := &v1.ClusterPolicy{}
	if err := f.client.Get(context.Background(), client.ObjectKey{Name: "cp"}, policy); err != nil {
		f.t.Fatal(err)
	}
	return policy
}

// Each failing auxiliary operand has one Event with node, container and cause. The first one is the policy's own.
func TestOperandEvents(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, 1)
	f := newWriterFixture(t, e)
	messages := func() []string {
		list := &corev1.EventList{}
		g.Expect(f.client.List(t.Context(), list)).To(Succeed())
		var found []string
		for i := range list.Items {
			g.Expect(list.Items[i].InvolvedObject).To(And(HaveField("Kind", "ClusterPolicy"), HaveField("Name", "cp")))
			found = append(found, list.Items[i].Type+" "+list.Items[i].Reason+" "+list.Items[i].Message)
		}
		return found
	}
	write := func() {
		_, err := f.writer.Write(t.Context(), f.read(), e.status(f.read().Status))
		g.Expect(err).NotTo(HaveOccurred())
		f.clock.SetTime(f.clock.Now().Add(time.Minute))
	}
	write()
	g.Expect(messages()).To(BeEmpty())
	e.failPod(0, "gpu-feature-discovery", "no GPU")
	write()
	const first = "Warning OperandFailed gpu-feature-discovery: fails on 1 of 1 nodes: " +
		"node-00000 (container main: CrashLoopBackOff, exit code 1): on node-00000: no GPU"
	g.Expect(messages()).To(ConsistOf(first), "by the policy's own Event")
	e.failPod(0, "dcgm-exporter", "no engine")
	write()
	second := strings.NewReplacer("gpu-feature-discovery", "dcgm-exporter", "no GPU", "no engine").Replace(first)
	g.Expect(messages()).To(ConsistOf(first, second), "the policy is degraded already")
	e.failPod(0, "dcgm-exporter", "no engine any more")
	write()
	g.Expect(messages()).To(HaveLen(2), "the same failure")
	e.failPod(0, "device-plugin", "boom")
	write()
	g.Expect(messages()).To(HaveLen(2), "the node has the Event of an operand with a stage")
}

// A pass over an unchanged cluster writes nothing.
func TestUnchangedStatusIsNotWritten(t *testing.T) {
	e := newEnv(t, 120)
	f := newWriterFixture(t, e)
	e.failPod(7, "driver", "boom")
	for i, want := range []bool{true, false, false} {
		policy := f.read()
		status := Compute(policy, e.input())
		before := f.writes
		if _, err := f.writer.Write(t.Context(), policy, status); err != nil {
			t.Fatal(err)
		}
		if wrote := f.writes > before; wrote != want {
			t.Errorf("pass %d: wrote %v", i, wrote)
		}
		e.failPod(7, "driver", "boom, attempt "+string(rune('a'+i)))
		f.clock.SetTime(f.clock.Now().Add(time.Minute))
	}
}
