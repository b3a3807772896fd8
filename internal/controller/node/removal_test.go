package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// A node that pods with GPUs hold is looked at again, the less often the longer they have held it.
func TestHowOftenAHeldNodeIsLookedAt(t *testing.T) {
	now := time.Unix(10_000, 0)
	timing := DefaultTiming()
	hold := removal.Step{Action: removal.Hold}
	recently, yesterday := now.Add(-40*time.Second), now.AddDate(0, 0, -1)
	for name, test := range map[string]struct {
		step   removal.Step
		before *fleet.NodeRemoval
		since  time.Time
		again  time.Duration
	}{
		"for the first time":   {hold, nil, now, timing.RetryHeld},
		"after another step":   {hold, &fleet.NodeRemoval{}, now, timing.RetryHeld},
		"for 40 seconds":       {hold, &fleet.NodeRemoval{HeldSince: recently}, recently, 20 * time.Second},
		"for a day":            {hold, &fleet.NodeRemoval{HeldSince: yesterday}, yesterday, timing.MaxRetryHeld},
		"until a time":         {removal.Step{Action: removal.Wait, Until: now.Add(time.Hour)}, nil, time.Time{}, time.Hour},
		"until a time that is": {removal.Step{Action: removal.Wait, Until: now}, nil, time.Time{}, time.Millisecond},
		"at the end":           {removal.Step{Action: removal.Done}, &fleet.NodeRemoval{HeldSince: now}, time.Time{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{Reconciler: &Reconciler{Options: Options{Timing: timing}}, entry: fleet.Entry{}, now: now}
			s.recordRemoval(test.step, test.before)
			g.Expect(s.entry.Removal).To(HaveValue(Equal(fleet.NodeRemoval{Step: test.step, HeldSince: test.since})))
			g.Expect(s.requeueAfter).To(Equal(test.again))
		})
	}
}
