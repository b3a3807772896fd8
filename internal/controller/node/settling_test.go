package node

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// The further a node's way is from its beginning, the longer must a stage last before it is written.
func TestStagesOfALongWayAreWrittenLessAndLess(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	s := newSettling(clock)
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	g.Expect(s.left("a", "Driver")).To(Equal(10 * time.Second))
	pass(9 * time.Second)
	g.Expect(s.left("a", "Driver")).To(Equal(time.Second))
	g.Expect(s.left("a", "Toolkit")).To(Equal(10*time.Second), "another stage begins anew")
	s.drop("a")
	pass(time.Hour)
	g.Expect(s.left("a", "Toolkit")).To(Equal(10*time.Second), "it was over meanwhile")
	for _, want := range []time.Duration{40 * time.Second, 160 * time.Second, 160 * time.Second} {
		s.wrote("a", true)
		g.Expect(s.left("a", "DevicePlugin")).To(Equal(want))
		s.drop("a")
		g.Expect(s.left("a", "DevicePlugin")).To(Equal(want), "a state that is over changes nothing")
	}
	s.drop("a")
	g.Expect(s.left("b", "Driver")).To(Equal(10*time.Second), "another node")
	s.drop("b")
	s.wrote("a", false)
	g.Expect(s.left("a", "Driver")).To(Equal(10*time.Second), "the way has ended, and another begins")
	s.forget("a")
	s.forget("b")
	g.Expect(s.nodes).To(BeEmpty())
}

// Where many nodes are on their way, what each writes of it slows all.
func TestManyNodesOnTheirWayWriteLess(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	s := newSettling(clock)
	for i := range 100 {
		s.left(strconv.Itoa(i), "Driver")
	}
	g.Expect(s.left("a", "Driver")).To(Equal(25*time.Second), "100 others")
	s.wrote("a", true)
	g.Expect(s.left("a", "Toolkit")).To(Equal(100 * time.Second))
	for i := range 100 {
		s.drop(strconv.Itoa(i))
	}
	s.wrote("a", false)
	g.Expect(s.left("a", "Driver")).To(Equal(10*time.Second), "the others are ready")
	for i := range 100_000 {
		s.left(strconv.Itoa(i), "Driver")
	}
	g.Expect(s.left("a", "Driver")).To(Equal(160 * time.Second))
}
