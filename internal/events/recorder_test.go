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

	"github.com/clusterpolicy/gpu-operator/internal/events"
)

// desk is a Recorder at an API server that counts.
type desk struct {
	*WithT
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	server   client.Client
	recorder *events.Recorder
	calls    int
	dropped  map[string]int
	refuses  error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), dropped: map[string]int{}}
	d.server = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			d.calls++
			if d.refuses != nil {
				return d.refuses
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	d.recorder = events.NewRecorder(d.server, d.clock, func(kind string) { d.dropped[kind]++ })
	return d
}

func (d *desk) written() []corev1.Event {
	d.t.Helper()
	list := &corev1.EventList{}
	d.Expect(d.server.List(d.t.Context(), list)).To(Succeed())
	return list.Items
}

func about(kind, name, transition string) events.Event {
	return events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID("uid of " + name)},
		Type:      corev1.EventTypeWarning, Reason: "CrashLoopBackOff", Message: name + ": it crashes", Transition: transition,
	}
}

func TestAnEventIsWrittenOncePerTransition(t *testing.T) {
	d := newDesk(t)
	d.recorder.Record(t.Context(), about("Node", "a", "ready > failed"))
	d.Expect(d.written()).To(HaveLen(1))
	first := d.written()[0]
	d.Expect(first).To(And(HaveField("Namespace", "default"), HaveField("Name", HavePrefix("a.")), HaveField("Type", "Warning"),
		HaveField("Reason", "CrashLoopBackOff"), HaveField("Message", "a: it crashes"), HaveField("Count", int32(1)),
		HaveField("InvolvedObject", about("Node", "a", "").Regarding), HaveField("Source.Component", "gpu-operator")))
	d.Expect(first.LastTimestamp.Time).To(BeTemporally("==", d.clock.Now()))

	d.clock.SetTime(d.clock.Now().Add(time.Minute))
	d.recorder.Record(t.Context(), about("Node", "a", "ready > failed"))
	d.Expect(d.written()).To(HaveLen(1), "an operator that starts anew writes the same")
	d.recorder.Record(t.Context(), about("Node", "a", "failed > ready"))
	d.recorder.Record(t.Context(), about("Node", "b", "ready > failed"))
	d.Expect(d.written()).To(HaveLen(3))
}

func TestABrokenFleetMakesABoundedNumberOfEvents(t *testing.T) {
	d := newDesk(t)
	for i := range 1000 {
		d.recorder.Record(t.Context(), about("Node", fmt.Sprintf("node-%04d", i), "ready > failed"))
	}
	d.Expect(d.calls).To(Equal(100))
	d.Expect(d.dropped).To(Equal(map[string]int{"Node": 900}))
	d.recorder.Record(t.Context(), about("ClusterPolicy", "cp", "ready > failed"))
	d.Expect(d.calls).To(Equal(101), "the policy's tells of all of them")
	d.clock.SetTime(d.clock.Now().Add(time.Minute))
	for i := range 1000 {
		d.recorder.Record(t.Context(), about("Node", fmt.Sprintf("node-%04d", i), "failed > ready"))
	}
	d.Expect(d.calls).To(Equal(107), "six more a minute")
	for i := range 100 {
		d.recorder.Record(t.Context(), about("ClusterPolicy", "cp", fmt.Sprint(i)))
	}
	d.Expect(d.calls).To(Equal(107+50), "a few operands at once, several times")
}

func TestEventsAreValid(t *testing.T) {
	d := newDesk(t)
	long := about("Node", strings.Repeat("a", 229)+".-b", "x")
	long.Message = strings.Repeat("ü", 1000)
	d.recorder.Record(t.Context(), long)
	event := d.written()[0]
	d.Expect(validation.IsDNS1123Subdomain(event.Name)).To(BeEmpty(), event.Name)
	d.Expect(len(event.Message)).To(BeNumerically("<=", 1024))
	d.Expect(event.Message).To(HaveSuffix("ü"))
}

func TestAnEventThatCannotBeWrittenIsNoFailure(t *testing.T) {
	d := newDesk(t)
	d.refuses = errors.New("no room")
	d.recorder.Record(t.Context(), about("Node", "a", "x"))
	d.refuses = nil
	d.recorder.Record(t.Context(), about("Node", "a", "x"))
	d.Expect(d.written()).To(HaveLen(1), "the same may be tried again")
}
