package node

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// at is an assessment of a node that is starting at a stage.
func at(stage v1.Stage) assess.Assessment {
	return assess.Assessment{NodeVerdict: readiness.NodeVerdict{
		Stage: stage, Verdict: readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonStarting},
	}}
}

// starting has the fleet know of so many nodes that are starting.
func starting(f *fleet.Fleet, nodes int) {
	for i := range nodes {
		f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: fmt.Sprint("other-", i), HasGPU: true}, Basis: 1, Latest: at(v1.StageDriver)})
	}
}

// left is how long the stage must still last before it is written.
func (s *scope) left(stage v1.Stage) time.Duration {
	s.entry.Report.Assessment = at(stage)
	return s.unsettled()
}

// The further a node has come on its way, the longer must a stage last before it is written.
func TestStagesOfALongWayAreWrittenLessAndLess(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	s := &scope{Reconciler: r, now: now}
	g.Expect(s.left(v1.StageDriver)).To(Equal(10 * time.Second))
	s.now = s.now.Add(9 * time.Second)
	g.Expect(s.left(v1.StageDriver)).To(Equal(time.Second))
	g.Expect(s.left(v1.StageToolkit)).To(Equal(10*time.Second), "another stage begins anew")
	s.now = s.now.Add(5 * time.Second)
	s.entry.Report.Reason = v1.ReasonPodMissing
	g.Expect(s.unsettled()).To(Equal(10*time.Second), "another reason begins anew")
	for _, want := range []time.Duration{40 * time.Second, 160 * time.Second, 160 * time.Second} {
		s.written(true)
		g.Expect(s.entry.Writes.Stage).To(BeEmpty())
		g.Expect(s.left(v1.StageDevicePlugin)).To(Equal(want))
	}
	other := &scope{Reconciler: r, now: s.now}
	g.Expect(other.left(v1.StageDriver)).To(Equal(10*time.Second), "another node")
	s.written(false)
	g.Expect(s.left(v1.StageDriver)).To(Equal(10*time.Second), "the way has ended, and another begins")
}

// Where many nodes are starting, what each writes of it slows all.
func TestManyNodesThatStartWriteLess(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	s := &scope{Reconciler: r, now: now}
	starting(r.Fleet, 101)
	g.Expect(s.left(v1.StageDriver)).To(Equal(25*time.Second), "100 others")
	s.written(true)
	g.Expect(s.left(v1.StageToolkit)).To(Equal(100 * time.Second))
	for i := range 101 {
		r.Fleet.Delete(fmt.Sprint("other-", i))
	}
	g.Expect(s.left(v1.StageToolkit)).To(Equal(100*time.Second), "it goes on from there")
	s.written(false)
	g.Expect(s.left(v1.StageDriver)).To(Equal(10*time.Second), "the others are ready")
	starting(r.Fleet, 10_000)
	g.Expect(s.left(v1.StageDriver)).To(Equal(160 * time.Second))
}

// Where many nodes start, the steps of their pods are taken together for longer.
func TestManyNodesThatStartAreTakenTogetherForLonger(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	pod := &corev1.Pod{}
	g.Expect(r.batch(pod)).To(Equal(100 * time.Millisecond))
	starting(r.Fleet, 400)
	g.Expect(r.batch(pod)).To(Equal(500 * time.Millisecond))
	starting(r.Fleet, 5000)
	g.Expect(r.batch(pod)).To(Equal(1500 * time.Millisecond))
}
