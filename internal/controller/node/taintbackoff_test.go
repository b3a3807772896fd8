package node

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// A rejected change is held back for its period, other changes are not, and expired ones are dropped.
func TestTaintBackoff(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(now)
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	r := newTaintBackoff(clock)
	g.Expect(r.remaining("remove a, add ")).To(BeZero())
	r.add("remove a, add ", 30*time.Second)
	g.Expect(r.remaining("remove a, add ")).To(Equal(30 * time.Second))
	g.Expect(r.remaining("remove b, add ")).To(BeZero())
	pass(20 * time.Second)
	g.Expect(r.remaining("remove a, add ")).To(Equal(10 * time.Second))
	r.add("remove a, add ", 30*time.Second)
	g.Expect(r.remaining("remove a, add ")).To(Equal(30*time.Second), "it was rejected again")
	pass(30*time.Second - 1)
	g.Expect(r.remaining("remove a, add ")).To(Equal(time.Nanosecond))
	pass(1)
	g.Expect(r.remaining("remove a, add ")).To(BeZero())
	for i := range 1000 {
		r.add(fmt.Sprint(i), time.Second)
		pass(time.Second)
		g.Expect(r.remaining("another")).To(BeZero())
	}
	g.Expect(r.until).To(HaveLen(1), "expired ones are dropped")
}
