package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var begin = time.Unix(1_000_000, 0)

// assessed returns an assessment with this state of the node and of its operand.
func assessed(state readiness.State) assess.Assessment {
	return assess.Assessment{
		NodeVerdict: readiness.NodeVerdict{Stage: v1.StageDriver, Verdict: readiness.Verdict{State: state}},
		Operands:    map[operand.Name]readiness.Verdict{"driver": {State: state}}, Since: begin, At: begin,
	}
}

// reported returns the first report of a node.
func reported(latest assess.Assessment) assess.Report {
	report, _ := assess.Report{}.Next(latest, assess.DefaultDwell())
	return report
}

// gpuNode returns the entry of a GPU node in this state, assessed by the first Basis.
func gpuNode(name string, state readiness.State) *fleet.Entry {
	latest := assessed(state)
	return &fleet.Entry{
		Facts:        nodeinfo.Facts{Name: name, HasGPU: true, HasDiscoveryLabels: true, Labels: map[string]string{"a": "b"}},
		BasisVersion: 1, Latest: latest, Report: reported(latest),
	}
}

func cpuNode(name string, discovered bool) *fleet.Entry {
	return &fleet.Entry{Facts: nodeinfo.Facts{Name: name, HasDiscoveryLabels: discovered}, BasisVersion: 1}
}

// drainEvents empties the channel of events.
func drainEvents(f *fleet.Fleet) {
	select {
	case <-f.Changed():
	default:
	}
}

// A pass is due only if it would aggregate something else.
func TestSetNotifies(t *testing.T) {
	report := func(e *fleet.Entry, change func(*assess.Assessment)) {
		change(&e.Latest)
		e.Report = reported(e.Latest)
	}
	tests := map[string]struct {
		from   readiness.State
		change func(*fleet.Entry)
		want   bool
	}{
		"nothing":            {change: func(*fleet.Entry) {}},
		"a label":            {change: func(e *fleet.Entry) { e.Facts.Labels = map[string]string{"a": "c"} }, want: true},
		"another basis":      {change: func(e *fleet.Entry) { e.BasisVersion = 2 }, want: true},
		"a failed write":     {change: func(e *fleet.Entry) { e.WriteError = "forbidden" }, want: true},
		"a pool of the spec": {change: func(e *fleet.Entry) { e.NodePool = "h100" }, want: true},
		"a driver pool":      {change: func(e *fleet.Entry) { e.DriverPool = "ubuntu24.04-amd64" }, want: true},
		"what is reported": {change: func(e *fleet.Entry) {
			report(e, func(a *assess.Assessment) { a.State, a.Reason = readiness.Failed, "CrashLoopBackOff" })
		}, want: true},
		"since when": {from: readiness.Failed, change: func(e *fleet.Entry) {
			report(e, func(a *assess.Assessment) { a.Since = begin.Add(time.Second) })
		}, want: true},
		"the same time in another zone": {from: readiness.Failed, change: func(e *fleet.Entry) {
			report(e, func(a *assess.Assessment) { a.Since = begin.UTC() })
		}},
		"exclusion": {
			change: func(e *fleet.Entry) { report(e, func(a *assess.Assessment) { a.Excluded = true }) },
			want:   true,
		},
		"an operand": {change: func(e *fleet.Entry) {
			report(e, func(a *assess.Assessment) {
				a.Operands = map[operand.Name]readiness.Verdict{"driver": {Outdated: true}}
			})
		}, want: true},
		"what is not reported yet": {change: func(e *fleet.Entry) { e.Latest = assessed(readiness.Progressing) }},
		"the stage of a node that is not ready, not reported yet": {
			from: readiness.Progressing,
			change: func(e *fleet.Entry) {
				e.Latest.Stage = v1.StageToolkit
			},
			want: true,
		},
		"when it was assessed": {change: func(e *fleet.Entry) {
			report(e, func(a *assess.Assessment) { a.At = begin.Add(time.Hour) })
		}},
		"whether its GPUs are usable": {
			change: func(e *fleet.Entry) { report(e, func(a *assess.Assessment) { a.Usable = true }) },
		},
		"the record of writes": {change: func(e *fleet.Entry) {
			e.Writes = fleet.Writes{
				Version:    "7",
				RetryAt:    begin,
				Stage:      "Driver",
				StageSince: begin,
				NextDwell:  time.Second,
				Joined:     begin,
				Reached:    2,
			}
		}},
		"the verdicts on discovery": {change: func(e *fleet.Entry) {
			e.Discovering = map[operand.Name]readiness.Verdict{"node-discovery": {State: readiness.Failed}}
		}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := fleet.New()
			before := gpuNode("a", test.from)
			f.Set(before)
			g.Expect(f.Changed()).To(Receive(), "the node is new")
			g.Expect(f.Changed()).NotTo(Receive(), "once")
			after := gpuNode("a", test.from)
			test.change(after)
			f.Set(after)
			if test.want {
				g.Expect(f.Changed()).To(Receive())
			} else {
				g.Expect(f.Changed()).NotTo(Receive())
			}
			g.Expect(f.Get("a")).To(BeIdenticalTo(after))
			f.Set(after)
			g.Expect(f.Changed()).NotTo(Receive(), "the same again")
		})
	}
}

// Changes that a pass does not read do not start one.
func TestSetIgnoresWhatPassesDoNotRead(t *testing.T) {
	tests := map[string][2]*fleet.Entry{
		"until when a container must run to recover": {gpuNode("a", readiness.Failed), func() *fleet.Entry {
			after := gpuNode("a", readiness.Failed)
			after.Latest.Until = begin.Add(time.Minute)
			after.Latest.Operands = map[operand.Name]readiness.Verdict{
				"driver": {State: readiness.Failed, Until: begin.Add(time.Minute)},
			}
			after.Report = reported(after.Latest)
			return after
		}()},
		"the basis of a node without GPUs": {cpuNode("a", true), func() *fleet.Entry {
			after := cpuNode("a", true)
			after.BasisVersion = 2
			return after
		}()},
	}
	for name, entries := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := fleet.New()
			f.Set(entries[0])
			drainEvents(f)
			f.Set(entries[1])
			g.Expect(f.Changed()).NotTo(Receive())
		})
	}
}

func TestView(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	g.Expect(f.View()).To(And(
		HaveField("Hydrated", false),
		HaveField("AnyDiscovered", false),
		HaveField("Nodes", BeEmpty()),
	))
	unknown, other := cpuNode("unknown", false), cpuNode("other", false)
	f.Set(unknown)
	f.Set(other)
	g.Expect(f.View().AnyDiscovered).To(BeFalse())
	was := &fleet.Entry{Facts: nodeinfo.Facts{Name: "was", WasGPU: true}, BasisVersion: 2}
	a, b := gpuNode("a", readiness.Ready), gpuNode("b", readiness.Failed)
	for _, entry := range []*fleet.Entry{b, cpuNode("cpu", true), was, a} {
		f.Set(entry)
	}
	view := f.View()
	g.Expect(view.Nodes).To(HaveExactElements(BeIdenticalTo(a), BeIdenticalTo(b), BeIdenticalTo(was)))
	g.Expect(view.Undiscovered).To(HaveExactElements(BeIdenticalTo(other), BeIdenticalTo(unknown), BeIdenticalTo(was)))
	g.Expect(view.AnyDiscovered).To(BeTrue())
	g.Expect(view.Facts()).To(HaveExactElements(HaveField("Name", "a"), HaveField("Name", "b"), HaveField("Name", "was")))
	g.Expect(f.Names()).To(ConsistOf("a", "b", "was", "cpu", "unknown", "other"))
	g.Expect(view.UnassessedCount(&fleet.Basis{Version: 1})).To(Equal(1))
	g.Expect(view.UnassessedCount(&fleet.Basis{Version: 2})).To(Equal(2))
	g.Expect(view.UnassessedCount(&fleet.Basis{Version: 3})).To(Equal(3), "nodes without GPUs do not count")
	f.Delete("a")
	g.Expect(view.Nodes).To(HaveLen(3), "a view is a snapshot")
}

// A node that was a GPU node counts as discovered, even if no node has discovery labels.
func TestAFleetWithoutDiscoveryLabelsWasDiscovered(t *testing.T) {
	f := fleet.New()
	f.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "a", WasGPU: true}})
	NewWithT(t).Expect(f.View().AnyDiscovered).To(BeTrue())
}

// The version of the facts changes only with the facts of managed nodes.
func TestFactsVersion(t *testing.T) {
	tests := map[string]struct {
		change func(*fleet.Fleet)
		want   bool
	}{
		"the same again": {change: func(f *fleet.Fleet) { f.Set(gpuNode("a", readiness.Ready)) }},
		"another verdict": {change: func(f *fleet.Fleet) {
			f.Set(gpuNode("a", readiness.Failed))
		}},
		"a label": {change: func(f *fleet.Fleet) {
			labelled := gpuNode("a", readiness.Ready)
			labelled.Facts.Deploy = map[string]string{"driver": "false"}
			f.Set(labelled)
		}, want: true},
		"a node is added":   {change: func(f *fleet.Fleet) { f.Set(gpuNode("c", readiness.Ready)) }, want: true},
		"a node is deleted": {change: func(f *fleet.Fleet) { f.Delete("a") }, want: true},
		"a node is replaced by another": {change: func(f *fleet.Fleet) {
			f.Delete("a")
			f.Set(gpuNode("c", readiness.Ready))
		}, want: true},
		"a node is no longer a GPU node":    {change: func(f *fleet.Fleet) { f.Set(cpuNode("a", true)) }, want: true},
		"a node without GPUs is added":      {change: func(f *fleet.Fleet) { f.Set(cpuNode("d", false)) }},
		"a node without GPUs is discovered": {change: func(f *fleet.Fleet) { f.Set(cpuNode("cpu", true)) }},
		"a node without GPUs is deleted":    {change: func(f *fleet.Fleet) { f.Delete("cpu") }},
		"an unknown node is deleted":        {change: func(f *fleet.Fleet) { f.Delete("x") }},
		"GPUs are discovered on a node": {
			change: func(f *fleet.Fleet) { f.Set(gpuNode("cpu", readiness.Progressing)) },
			want:   true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := fleet.New()
			for _, entry := range []*fleet.Entry{
				gpuNode("a", readiness.Ready),
				gpuNode("b", readiness.Ready),
				cpuNode("cpu", false),
			} {
				f.Set(entry)
			}
			before := f.View().FactsVersion
			test.change(f)
			same := f.View().FactsVersion == before
			g.Expect(same).NotTo(Equal(test.want))
		})
	}
}

func TestHydrateReplacesNothing(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	existing := gpuNode("a", readiness.Progressing)
	f.Set(existing)
	drainEvents(f)
	version := f.View().FactsVersion
	fresh := &fleet.Entry{Facts: nodeinfo.Facts{Name: "b", HasGPU: true}}
	f.Hydrate([]*fleet.Entry{{Facts: nodeinfo.Facts{Name: "a", HasGPU: true}}, fresh})
	g.Expect(f.Get("a")).To(BeIdenticalTo(existing))
	g.Expect(f.Get("b")).To(BeIdenticalTo(fresh))
	g.Expect(f.View().Hydrated).To(BeTrue())
	g.Expect(f.View().FactsVersion).NotTo(Equal(version))
	g.Expect(f.Changed()).To(Receive())
	g.Expect(f.Starting()).To(Equal(1))
}

func TestDeleteRemovesEverything(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	for i := range 100 {
		f.Set(gpuNode(fmt.Sprint(i), readiness.Progressing))
	}
	g.Expect(f.Starting()).To(Equal(100))
	for i := range 100 {
		drainEvents(f)
		f.Delete(fmt.Sprint(i))
		g.Expect(f.Changed()).To(Receive())
	}
	g.Expect(f.Names()).To(BeEmpty())
	g.Expect(f.Get("1")).To(BeNil())
	g.Expect(f.Starting()).To(BeZero())
	g.Expect(f.View().Nodes).To(BeEmpty())
	f.Delete("1")
	g.Expect(f.Changed()).NotTo(Receive(), "it is deleted already")
}

// The number of starting nodes matches the entries after any sequence of operations.
func TestStartingMatchesTheEntries(t *testing.T) {
	g := NewWithT(t)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		f, entries, most := fleet.New(), map[string]*fleet.Entry{}, 0
		for range 500 {
			name := fmt.Sprint(random.IntN(20))
			switch random.IntN(8) {
			case 0:
				f.Delete(name)
				delete(entries, name)
			case 1:
				hydrated := &fleet.Entry{Facts: nodeinfo.Facts{Name: name, HasGPU: true}}
				f.Hydrate([]*fleet.Entry{hydrated})
				if entries[name] == nil {
					entries[name] = hydrated
				}
			default:
				entry := gpuNode(name, []readiness.State{readiness.Ready, readiness.Progressing, readiness.Failed}[random.IntN(3)])
				entry.BasisVersion = uint64(random.IntN(3))
				entry.Latest.Excluded = random.IntN(4) == 0
				f.Set(entry)
				entries[name] = entry
			}
			want := 0
			for _, entry := range entries {
				if entry.BasisVersion > 0 && entry.Latest.State == readiness.Progressing && !entry.Latest.Excluded {
					want++
				}
			}
			most = max(most, want)
			g.Expect(f.Starting()).To(Equal(want), "seed %d", seed)
		}
		g.Expect(most).To(BeNumerically(">", 3), "some nodes start at the same time")
	}
}

// Ready nodes share equal maps of verdicts, which are not modified.
func TestReadyNodesShareTheirVerdicts(t *testing.T) {
	g := NewWithT(t)
	at := func(m map[operand.Name]readiness.Verdict) uintptr { return reflect.ValueOf(m).Pointer() }
	f := fleet.New()
	for i := range 10 {
		f.Set(gpuNode(fmt.Sprint(i), readiness.Ready))
	}
	first := f.Get("0")
	for i := range 10 {
		g.Expect(at(f.Get(fmt.Sprint(i)).Latest.Operands)).To(Equal(at(first.Latest.Operands)))
		g.Expect(at(f.Get(fmt.Sprint(i)).Report.Operands)).To(Equal(at(first.Latest.Operands)))
	}
	failing := gpuNode("failing", readiness.Failed)
	own := at(failing.Latest.Operands)
	f.Set(failing)
	g.Expect(at(f.Get("failing").Latest.Operands)).To(Equal(own))
	other := gpuNode("other", readiness.Ready)
	other.Latest.Operands = map[operand.Name]readiness.Verdict{"driver": {Outdated: true}}
	// The report still has the previous verdict.
	f.Set(other)
	g.Expect(f.Get("other").Latest.Operands).To(HaveKeyWithValue(operand.Name("driver"), readiness.Verdict{
		Outdated: true,
	}))
	g.Expect(f.Get("other").Report.Operands).To(HaveKeyWithValue(operand.Name("driver"), readiness.Verdict{}))
	f.Set(gpuNode("again", readiness.Ready))
	g.Expect(maps.Equal(f.Get("again").Latest.Operands, first.Latest.Operands)).To(BeTrue())
	g.Expect(first.Latest.Operands).To(HaveKeyWithValue(operand.Name("driver"), readiness.Verdict{}))
}

// The reported assessment counts while it is ready, otherwise the latest one.
func TestStatusAssessment(t *testing.T) {
	g := NewWithT(t)
	unchanged := gpuNode("a", readiness.Ready)
	unchanged.Latest = assessed(readiness.Progressing)
	g.Expect(unchanged.StatusAssessment().State).To(Equal(readiness.Ready))
	progressed := gpuNode("a", readiness.Progressing)
	progressed.Latest.Stage = v1.StageToolkit
	g.Expect(progressed.StatusAssessment().Stage).To(Equal(v1.StageToolkit))
}
