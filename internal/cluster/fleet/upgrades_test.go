package fleet_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// A pass is due when a report of upgrades differs, but not for a new estimate of the remaining time alone.
func TestSetUpgrades(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	report := func(change func(*upgrade.Report)) *upgrade.Report {
		made := &upgrade.Report{
			Nodes: map[string]upgrade.Progress{
				"a": {State: upgrade.StateValidation, Since: since, Reason: v1.ReasonUpgradeValidating},
			},
			InProgress: 1, Done: 2, Remaining: time.Minute,
		}
		change(made)
		return made
	}
	unchanged := func(*upgrade.Report) {}
	progress := func(change func(*upgrade.Progress)) func(*upgrade.Report) {
		return func(r *upgrade.Report) {
			node := r.Nodes["a"]
			change(&node)
			r.Nodes["a"] = node
		}
	}
	tests := map[string]struct {
		before, after *upgrade.Report
		due           bool
	}{
		"the first report": {after: report(unchanged), due: true},
		"an equal one":     {before: report(unchanged), after: report(unchanged)},
		"another estimate": {
			before: report(unchanged), after: report(func(r *upgrade.Report) { r.Remaining = time.Second }),
		},
		"the same time in another location": {before: report(unchanged), after: report(progress(func(p *upgrade.Progress) {
			p.Since = since.In(time.FixedZone("east", 3600))
		}))},
		"another count": {
			before: report(unchanged), after: report(func(r *upgrade.Report) { r.Done = 3 }), due: true,
		},
		"another message": {
			before: report(unchanged), due: true,
			after: report(progress(func(p *upgrade.Progress) { p.Message = "x" })),
		},
		"another time": {
			before: report(unchanged), due: true,
			after: report(progress(func(p *upgrade.Progress) { p.Since = since.Add(time.Second) })),
		},
		"another node": {
			before: report(unchanged), due: true,
			after: report(func(r *upgrade.Report) { r.Nodes = map[string]upgrade.Progress{"b": r.Nodes["a"]} }),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := fleet.New()
			f.SetUpgrades(test.before)
			drainEvents(f)
			f.SetUpgrades(test.after)
			if due := len(f.Changed()) > 0; due != test.due {
				t.Errorf("a pass is due: %t, want %t", due, test.due)
			}
			if got := f.View().Upgrades; !reflect.DeepEqual(got, test.after) {
				t.Errorf("the view has %+v, want %+v", got, test.after)
			} else if got != nil && got == test.after {
				t.Error("the view has the report itself: it keeps in memory what it is part of")
			}
		})
	}
}

// While no node matters to driver upgrades, no plan is needed. Whether one does is known once each was looked at.
func TestUpgradesAtRest(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	expect := func(done int, atRest bool) {
		t.Helper()
		gotDone, gotRest := f.UpgradesAtRest()
		g.Expect(gotRest).To(Equal(atRest))
		g.Expect(gotDone).To(Equal(done))
	}
	atRest, upToDate := &upgrade.Resting{}, &upgrade.Resting{UpToDate: true}
	set := func(name string, resting *upgrade.Resting) (due bool) {
		for len(f.Assessed()) > 0 {
			<-f.Assessed()
		}
		f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: name}, Resting: resting})
		return len(f.Assessed()) > 0
	}
	expect(0, false)
	f.Hydrate([]*fleet.Entry{{Facts: nodeinfo.Facts{Name: "a"}}})
	expect(0, false)
	g.Expect(set("a", atRest)).To(BeTrue())
	expect(0, true)
	g.Expect(set("a", new(*atRest))).To(BeFalse())
	g.Expect(set("a", upToDate)).To(BeTrue())
	expect(1, true)
	set("b", upToDate)
	expect(2, true)
	g.Expect(set("b", &upgrade.Resting{UpToDate: true, Unavailable: "is cordoned"})).To(BeTrue(), "of the budgets")
	g.Expect(set("b", nil)).To(BeTrue())
	<-f.Assessed()
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "b"}, Latest: assess.Assessment{NothingOffers: true}})
	g.Expect(f.Assessed()).To(Receive(), "all works, and nothing is to offer its GPUs")
	expect(0, false)
	f.Delete("b")
	expect(1, true)
	f.Hydrate([]*fleet.Entry{{Facts: nodeinfo.Facts{Name: "a"}}, {Facts: nodeinfo.Facts{Name: "c"}}})
	expect(0, false)
}

// A view has the entries that a plan has to look at, and sums of the others. What a node was by an earlier Basis does
// not count.
func TestUpgradeView(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	active := func(asked ...string) (names []string, others int) {
		view := f.UpgradeView(slices.Values(asked))
		for _, entry := range view.Active {
			names = append(names, entry.Facts.Name)
		}
		return names, view.Rest.UpToDate()
	}
	expect := func(others int, names []string, asked ...string) {
		t.Helper()
		gotNames, gotOthers := active(asked...)
		g.Expect(gotNames).To(ConsistOf(names))
		g.Expect(gotOthers).To(Equal(others))
	}
	set := func(name string, version uint64, resting *upgrade.Resting) {
		f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: name}, BasisVersion: version, Resting: resting})
	}
	upToDate := func(name string) *upgrade.Resting { return &upgrade.Resting{Name: name, UpToDate: true} }
	f.Hydrate(nil)
	first := f.Publish(fleet.Basis{}, time.Time{})
	set("a", first.Version, upToDate("a"))
	set("b", first.Version, upToDate("b"))
	set("c", first.Version, nil)
	set("d", first.Version-1, upToDate("d"))
	expect(2, []string{"c", "d"})
	expect(1, []string{"c", "d", "a"}, "a", "c", "unknown")
	expect(2, []string{"c", "d"})

	next := f.Publish(fleet.Basis{KeepNodes: true}, time.Time{})
	expect(0, []string{"a", "b", "c", "d"})
	set("a", next.Version, upToDate("a"))
	set("b", first.Version, upToDate("b"))
	expect(1, []string{"b", "c", "d"})
	f.Delete("a")
	f.Delete("b")
	expect(0, []string{"c", "d"})
}
