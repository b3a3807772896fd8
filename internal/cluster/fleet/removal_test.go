package fleet_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// removedFrom is the entry of a node that was assessed by a Basis, and how far the removal has got there.
func removedFrom(name string, basis uint64, got *fleet.NodeRemoval) *fleet.Entry {
	entry := cpuNode(name, true)
	entry.BasisVersion, entry.Removal = basis, got
	return entry
}

func step(action removal.Action) *fleet.NodeRemoval {
	return &fleet.NodeRemoval{Step: removal.Step{Action: action}}
}

// The stack is left on each node until the node was found clean by the current Basis, with or without GPUs.
func TestRemoving(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	f.Publish(fleet.Basis{}, begin)
	f.Publish(fleet.Basis{Removal: &fleet.Removal{}}, begin)
	for _, entry := range []*fleet.Entry{
		removedFrom("unknown", 0, nil), removedFrom("earlier", 1, step(removal.Done)),
		removedFrom("busy", 2, step(removal.Hold)), removedFrom("clean", 2, step(removal.Done)),
		removedFrom("assessed", 2, nil), gpuNode("gpu", readiness.Ready),
	} {
		f.Set(entry)
	}
	names := func() (names []string, unseen int) {
		left, unseen := f.Removing()
		for _, entry := range left {
			names = append(names, entry.Facts.Name)
		}
		return names, unseen
	}
	left, unseen := names()
	g.Expect(left).To(HaveExactElements("assessed", "busy", "earlier", "gpu", "unknown"))
	g.Expect(unseen).To(Equal(4), "all but the busy one")
	f.Publish(fleet.Basis{Removal: &fleet.Removal{Force: true}}, begin)
	left, unseen = names()
	g.Expect(left).To(HaveLen(6), "no node is assessed by the next Basis")
	g.Expect(unseen).To(Equal(6))
}

func TestNothingIsRemovedBeforeABasis(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	f.Set(removedFrom("a", 0, step(removal.Done)))
	left, unseen := f.Removing()
	g.Expect(left).To(HaveLen(1))
	g.Expect(unseen).To(Equal(1))
}

// A pass is due when the removal has got to another step, not when pods hold the node for longer.
func TestSetNotifiesOfRemovals(t *testing.T) {
	held := func(change func(*fleet.NodeRemoval)) *fleet.NodeRemoval {
		got := step(removal.Hold)
		got.Step.Message, got.HeldSince = "pod team-a/train uses GPUs", begin
		change(got)
		return got
	}
	before := held(func(*fleet.NodeRemoval) {})
	for name, test := range map[string]struct {
		before, after *fleet.NodeRemoval
		want          bool
	}{
		"none":            {},
		"the same":        {before: before, after: held(func(*fleet.NodeRemoval) {})},
		"the first step":  {after: before, want: true},
		"no removal":      {before: before, want: true},
		"another action":  {before, held(func(r *fleet.NodeRemoval) { r.Step.Action = removal.Wait }), true},
		"a failure":       {before, held(func(r *fleet.NodeRemoval) { r.Step.Failed = true }), true},
		"another message": {before, held(func(r *fleet.NodeRemoval) { r.Step.Message = "" }), true},
		"since when":      {before, held(func(r *fleet.NodeRemoval) { r.HeldSince = begin.Add(time.Hour) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := fleet.New()
			f.Set(removedFrom("a", 1, test.before))
			drainEvents(f)
			f.Set(removedFrom("a", 1, test.after))
			if test.want {
				g.Expect(f.Changed()).To(Receive())
			} else {
				g.Expect(f.Changed()).NotTo(Receive())
			}
		})
	}
}
