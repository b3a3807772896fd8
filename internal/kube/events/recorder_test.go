package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
)

// fixture is a Recorder with a fake API server that counts calls.
type fixture struct {
	*WithT
	t           *testing.T
	clock       *clocktesting.FakePassiveClock
	server      client.Client
	recorder    *events.Recorder
	calls       int
	dropped     map[string]int
	createError error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		WithT:   NewWithT(t),
		t:       t,
		clock:   clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		dropped: map[string]int{},
	}
	f.server = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			f.calls++
			if f.createError != nil {
				return f.createError
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	f.recorder = events.NewRecorder(f.server, f.clock, func(kind string) { f.dropped[kind]++ })
	return f
}

func (f *fixture) written() []corev1.Event {
	f.t.Helper()
	list := &corev1.EventList{}
	f.Expect(f.server.List(f.t.Context(), list)).To(Succeed())
	return list.Items
}

func newEvent(kind, name, transition string) events.Event {
	return events.Event{
		Regarding:  corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID("uid of " + name)},
		Type:       corev1.EventTypeWarning,
		Reason:     "CrashLoopBackOff",
		Message:    name + ": it crashes",
		Transition: transition,
	}
}

func TestOneEventPerTransition(t *testing.T) {
	f := newFixture(t)
	f.recorder.Record(t.Context(), newEvent("Node", "a", "ready > failed"))
	f.Expect(f.written()).To(HaveLen(1))
	first := f.written()[0]
	f.Expect(first).To(And(
		HaveField("Namespace", "default"), HaveField("Name", HavePrefix("a.")), HaveField("Type", "Warning"),
		HaveField("Reason", "CrashLoopBackOff"), HaveField("Message", "a: it crashes"), HaveField("Count", int32(1)),
		HaveField("InvolvedObject", newEvent("Node", "a", "").Regarding),
		HaveField("Source.Component", "gpu-operator"),
	))
	f.Expect(first.LastTimestamp.Time).To(BeTemporally("==", f.clock.Now()))

	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	f.recorder.Record(t.Context(), newEvent("Node", "a", "ready > failed"))
	f.Expect(f.written()).To(HaveLen(1), "a restarted operator repeats the Event")
	f.recorder.Record(t.Context(), newEvent("Node", "a", "failed > ready"))
	f.recorder.Record(t.Context(), newEvent("Node", "b", "ready > failed"))
	f.Expect(f.written()).To(HaveLen(3))
}

// What repeats one transition leaves the limit to other Events, and is repeated once the API server has dropped it.
func TestRepetitionsDoNotCount(t *testing.T) {
	f := newFixture(t)
	for range 1000 {
		f.recorder.Record(t.Context(), newEvent("ClusterPolicy", "cp", "edited again"))
	}
	f.recorder.Record(t.Context(), newEvent("ClusterPolicy", "cp", "ready > failed"))
	f.Expect(f.written()).To(HaveLen(2))
	f.Expect(f.dropped).To(BeEmpty())
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	f.recorder.Record(t.Context(), newEvent("ClusterPolicy", "cp", "edited again"))
	f.Expect(f.calls).To(Equal(3))
}

func TestEventRateLimit(t *testing.T) {
	f := newFixture(t)
	for i := range 1000 {
		f.recorder.Record(t.Context(), newEvent("Node", fmt.Sprintf("node-%04d", i), "ready > failed"))
	}
	f.Expect(f.calls).To(Equal(100))
	f.Expect(f.dropped).To(Equal(map[string]int{"Node": 900}))
	f.recorder.Record(t.Context(), newEvent("ClusterPolicy", "cp", "ready > failed"))
	f.Expect(f.calls).To(Equal(101), "the limit is per kind")
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	for i := range 1000 {
		f.recorder.Record(t.Context(), newEvent("Node", fmt.Sprintf("node-%04d", i), "failed > ready"))
	}
	f.Expect(f.calls).To(Equal(107), "six more after a minute")
	for i := range 100 {
		f.recorder.Record(t.Context(), newEvent("ClusterPolicy", "cp", fmt.Sprint(i)))
	}
	f.Expect(f.calls).To(Equal(107+50), "the burst for policies")
}

// The names of Events that are in memory are bounded, however many objects come and go.
func TestTheMemoryOfEventsIsBounded(t *testing.T) {
	g, sent, clock := NewWithT(t), 0, clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	server := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			sent++
			return nil
		},
	}).Build()
	recorder := events.NewRecorder(server, clock, func(string) {})
	for i := range 1200 {
		clock.SetTime(clock.Now().Add(10 * time.Second))
		recorder.Record(t.Context(), newEvent("Node", fmt.Sprint("node-", i), "ready > failed"))
		g.Expect(recorder.Remembered()).To(And(BeNumerically(">", 0), BeNumerically("<=", 512)), "after %d Events", i+1)
		if i < 3 {
			g.Expect(recorder.Remembered()).To(Equal(i + 1))
		}
	}
	g.Expect(sent).To(Equal(1200), "each Event was sent")
}

func TestEventsAreValid(t *testing.T) {
	f := newFixture(t)
	long := newEvent("Node", strings.Repeat("a", 229)+".-b", "x")
	long.Message = strings.Repeat("ü", 1000)
	f.recorder.Record(t.Context(), long)
	event := f.written()[0]
	f.Expect(validation.IsDNS1123Subdomain(event.Name)).To(BeEmpty(), event.Name)
	f.Expect(len(event.Message)).To(BeNumerically("<=", 1024))
	f.Expect(event.Message).To(HaveSuffix("ü"))
	f.Expect(event.Source.Component).To(Equal("gpu-operator"))
	f.Expect(event.ReportingController).To(Equal("gpu-operator"))
}

func TestFailedCreateIsNotFatal(t *testing.T) {
	f := newFixture(t)
	f.createError = errors.New("quota exceeded")
	f.recorder.Record(t.Context(), newEvent("Node", "a", "x"))
	f.createError = nil
	f.recorder.Record(t.Context(), newEvent("Node", "a", "x"))
	f.Expect(f.written()).To(HaveLen(1), "a second attempt succeeds")
}
