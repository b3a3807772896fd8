package node

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// at returns the assessment of a node that is starting at a stage.
func at(stage v1.Stage) assess.Assessment {
	return assess.Assessment{NodeVerdict: readiness.NodeVerdict{
		Stage: stage, Verdict: readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonStarting},
	}}
}

// addStarting adds starting nodes to the fleet.
func addStarting(f *fleet.Fleet, nodes int) {
	for i := range nodes {
		f.Set(&fleet.Entry{
			Facts:        nodeinfo.Facts{Name: fmt.Sprint("other-", i), HasGPU: true},
			BasisVersion: 1,
			Latest:       at(v1.StageDriver),
		})
	}
}

// dwellLeftAt returns how long the stage must still last before it is written.
func (s *scope) dwellLeftAt(stage v1.Stage) time.Duration {
	s.entry.Report.Assessment = at(stage)
	s.trackStage()
	return s.dwellLeft()
}

// The more stages of a node have been written, the longer the next one must last.
func TestStageDwellGrowsWithEachWrite(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	s := &scope{Reconciler: r, now: now}
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(10 * time.Second))
	s.now = s.now.Add(9 * time.Second)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(time.Second))
	g.Expect(s.dwellLeftAt(v1.StageToolkit)).To(Equal(10*time.Second), "another stage starts again")
	s.now = s.now.Add(5 * time.Second)
	s.entry.Report.Reason = v1.ReasonPodMissing
	s.trackStage()
	g.Expect(s.dwellLeft()).To(Equal(10*time.Second), "another reason starts again")
	for _, want := range []time.Duration{40 * time.Second, 160 * time.Second, 160 * time.Second} {
		s.resetDwell(true)
		g.Expect(s.entry.Writes.Stage).To(BeEmpty())
		g.Expect(s.dwellLeftAt(v1.StageDevicePlugin)).To(Equal(want))
	}
	other := &scope{Reconciler: r, now: s.now}
	g.Expect(other.dwellLeftAt(v1.StageDriver)).To(Equal(10*time.Second), "another node")
	s.resetDwell(false)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(10*time.Second), "the start has ended, and another begins")
}

// The more nodes are starting, the longer a stage must last.
func TestStageDwellGrowsWithStartingNodes(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	s := &scope{Reconciler: r, now: now}
	addStarting(r.Fleet, 101)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(25*time.Second), "100 others")
	s.resetDwell(true)
	g.Expect(s.dwellLeftAt(v1.StageToolkit)).To(Equal(100 * time.Second))
	for i := range 101 {
		r.Fleet.Delete(fmt.Sprint("other-", i))
	}
	g.Expect(s.dwellLeftAt(v1.StageToolkit)).To(Equal(100*time.Second), "it goes on from there")
	s.resetDwell(false)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(10*time.Second), "the others are ready")
	addStarting(r.Fleet, 10_000)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(160 * time.Second))
}

// The last nodes of a rollout write no stage because the others are ready: they are about to be ready themselves.
func TestStageDwellDoesNotShrinkWithStartingNodes(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	s := &scope{Reconciler: r, now: now}
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(10*time.Second), "the first node")
	addStarting(r.Fleet, 201)
	s.now = s.now.Add(5 * time.Second)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(35*time.Second), "200 others have started")
	for i := range 201 {
		r.Fleet.Delete(fmt.Sprint("other-", i))
	}
	s.now = s.now.Add(10 * time.Second)
	g.Expect(s.dwellLeftAt(v1.StageDriver)).To(Equal(25*time.Second), "the others are ready")
	g.Expect(s.dwellLeftAt(v1.StageToolkit)).To(Equal(10*time.Second), "the next stage is as of now")
}

// The more nodes are starting, the longer pod events are batched.
func TestBatchDelayGrowsWithStartingNodes(t *testing.T) {
	g := NewWithT(t)
	r := New(Options{Fleet: fleet.New(), Timing: DefaultTiming()})
	pod := &corev1.Pod{}
	g.Expect(r.debounceDelay(pod)).To(Equal(100 * time.Millisecond))
	addStarting(r.Fleet, 400)
	g.Expect(r.debounceDelay(pod)).To(Equal(500 * time.Millisecond))
	addStarting(r.Fleet, 5000)
	g.Expect(r.debounceDelay(pod)).To(Equal(1500 * time.Millisecond))
}
