package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

var begin = time.Unix(1_000_000, 0)

// exporter is an operand beside the ladder.
const exporter operand.Name = "dcgm-exporter"

// found is an assessment that a test has by hand: the node at this stage, and the exporter there.
func found(state readiness.State, stage v1.Stage, reason string, beside readiness.State) assess.Assessment {
	return assess.Assessment{
		NodeVerdict: readiness.NodeVerdict{Stage: stage, Verdict: readiness.Verdict{State: state, Reason: reason}},
		Operands:    map[operand.Name]readiness.Verdict{exporter: {State: beside}},
	}
}

var (
	works        = found(readiness.Ready, v1.StageValidated, "", readiness.Ready)
	starts       = found(readiness.Progressing, v1.StageDriver, v1.ReasonStarting, readiness.Ready)
	crashes      = found(readiness.Failed, v1.StageDriver, "CrashLoopBackOff", readiness.Ready)
	gpusGone     = found(readiness.Progressing, v1.StageAllocatable, v1.ReasonNotAllocatable, readiness.Ready)
	silent       = found(readiness.Progressing, v1.StageDiscovered, v1.ReasonNodeNotReady, readiness.Ready)
	besideStarts = found(readiness.Ready, v1.StageValidated, "", readiness.Progressing)
	besideFails  = found(readiness.Ready, v1.StageValidated, "", readiness.Failed)
)

func excludedNode() assess.Assessment {
	return assess.Assessment{Excluded: true, NodeVerdict: readiness.NodeVerdict{
		Stage: v1.StageDiscovered, Verdict: readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonExcluded},
	}}
}

// step is one assessment at this time after the begin, and what is to be reported then.
type step struct {
	after  time.Duration
	latest assess.Assessment
	// want is reported; wait is after how long that may become another one by itself.
	want assess.Assessment
	wait time.Duration
}

func TestNext(t *testing.T) {
	const s = time.Second
	overdue := found(readiness.Failed, v1.StageDriver, v1.ReasonStarting, readiness.Ready)
	overdue.Overdue = true
	withoutExporter := found(readiness.Ready, v1.StageValidated, "", readiness.Ready)
	withoutExporter.Operands = nil
	// down is a failure that is over after ten seconds, on a node that had been ready.
	down := []step{{after: 0, latest: works, want: works}, {after: 10 * s, latest: crashes, want: crashes}, {after: 20 * s, latest: works, want: works}}
	tests := map[string][]step{
		"the first assessment of a node that works":  {{latest: works, want: works}},
		"the first assessment of a node that starts": {{latest: starts, want: starts}},
		"the first assessment of one that fails":     {{latest: crashes, want: crashes}},
		"a node that starts, with all its stages": {
			{latest: starts, want: starts}, {after: s, latest: gpusGone, want: gpusGone}, {after: 2 * s, latest: crashes, want: crashes},
			{after: 3 * s, latest: starts, want: starts}, {after: 4 * s, latest: works, want: works},
		},
		"a failure": {{latest: works, want: works}, {after: s, latest: crashes, want: crashes}},
		"a failure by its deadline": {
			{latest: works, want: works}, {after: s, latest: overdue, want: overdue},
		},
		"no GPU is allocatable any more": {{latest: works, want: works}, {after: s, latest: gpusGone, want: gpusGone}},
		"a pod is replaced for four seconds": {
			{latest: works, want: works}, {after: 10 * s, latest: starts, want: works, wait: 4 * s}, {after: 13 * s, latest: starts, want: works, wait: s},
			{after: 14 * s, latest: starts, want: starts}, {after: 15 * s, latest: starts, want: starts},
		},
		"a kubelet that is not ready for four seconds": {
			{latest: works, want: works}, {after: 10 * s, latest: silent, want: works, wait: 4 * s}, {after: 14 * s, latest: silent, want: silent},
		},
		"a pod is back within four seconds": {
			{latest: works, want: works}, {after: 10 * s, latest: starts, want: works, wait: 4 * s}, {after: 13 * s, latest: works, want: works},
			// The time counts anew, and nothing of it counts as a recovery.
			{after: 14 * s, latest: starts, want: works, wait: 4 * s}, {after: 17 * s, latest: works, want: works},
			{after: 18 * s, latest: crashes, want: crashes},
		},
		"a pod is replaced and then fails": {
			{latest: works, want: works}, {after: 10 * s, latest: starts, want: works, wait: 4 * s}, {after: 11 * s, latest: crashes, want: crashes},
		},
		"a pod is replaced, and the GPUs go with it": {
			{latest: works, want: works}, {after: 10 * s, latest: starts, want: works, wait: 4 * s},
			{after: 12 * s, latest: gpusGone, want: works, wait: 2 * s}, {after: 14 * s, latest: gpusGone, want: gpusGone},
		},
		"several operands are replaced, one after the other": {
			{latest: works, want: works}, {after: 10 * s, latest: besideStarts, want: works, wait: 4 * s},
			{after: 13 * s, latest: starts, want: works, wait: s}, {after: 14 * s, latest: starts, want: starts},
		},
		"better at once": {{latest: crashes, want: crashes}, {after: s, latest: starts, want: starts}, {after: 2 * s, latest: works, want: works}},
		"a second failure half a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: crashes, want: works, wait: 10 * s}, step{after: 59 * s, latest: crashes, want: works, wait: s},
			step{after: 60 * s, latest: crashes, want: crashes}),
		"a second failure half a minute after a recovery, and over in nine seconds": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: crashes, want: works, wait: 10 * s}, step{after: 59 * s, latest: works, want: works}),
		"no GPU is allocatable half a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: gpusGone, want: works, wait: 10 * s}, step{after: 60 * s, latest: gpusGone, want: gpusGone}),
		"a pod is replaced half a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: starts, want: works, wait: 10 * s}, step{after: 54 * s, latest: starts, want: works, wait: 6 * s},
			step{after: 60 * s, latest: starts, want: starts}),
		"a second failure a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 80 * s, latest: crashes, want: crashes}),
		"a second failure just within a minute of a recovery lasts as long as any": append(down[:len(down):len(down)],
			step{after: 75 * s, latest: crashes, want: works, wait: 10 * s}, step{after: 82 * s, latest: crashes, want: works, wait: 3 * s},
			step{after: 85 * s, latest: crashes, want: crashes}),
		"a third failure": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: crashes, want: works, wait: 10 * s}, step{after: 60 * s, latest: crashes, want: crashes},
			step{after: 100 * s, latest: works, want: works}, step{after: 130 * s, latest: crashes, want: works, wait: 10 * s}),
		"ready for the first time is no recovery": {
			{latest: starts, want: starts}, {after: 10 * s, latest: works, want: works}, {after: 20 * s, latest: crashes, want: crashes},
		},
		"a node is excluded": {{latest: works, want: works}, {after: s, latest: excludedNode(), want: excludedNode()}},
		"a node is excluded soon after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: excludedNode(), want: excludedNode()}),
		"a node is excluded while a pod is replaced": {
			{latest: works, want: works}, {after: s, latest: starts, want: works, wait: 4 * s}, {after: 2 * s, latest: excludedNode(), want: excludedNode()},
		},
		"a node is excluded no longer": {{latest: excludedNode(), want: excludedNode()}, {after: s, latest: starts, want: starts}},
		"an operand beside the ladder is replaced": {
			{latest: works, want: works}, {after: 10 * s, latest: besideStarts, want: works, wait: 4 * s},
			{after: 12 * s, latest: besideStarts, want: works, wait: 2 * s}, {after: 14 * s, latest: besideStarts, want: besideStarts},
		},
		"an operand beside the ladder is back within four seconds": {
			{latest: works, want: works}, {after: 10 * s, latest: besideStarts, want: works, wait: 4 * s}, {after: 12 * s, latest: works, want: works},
			{after: 15 * s, latest: besideStarts, want: works, wait: 4 * s},
		},
		"an operand beside the ladder fails": {{latest: works, want: works}, {after: s, latest: besideFails, want: besideFails}},
		"an operand beside the ladder fails after it was replaced": {
			{latest: works, want: works}, {after: s, latest: besideStarts, want: works, wait: 4 * s}, {after: 2 * s, latest: besideFails, want: besideFails},
		},
		"an operand beside the ladder that never was ready fails": {
			{latest: besideStarts, want: besideStarts}, {after: s, latest: besideFails, want: besideFails},
		},
		"an operand beside the ladder is no longer expected": {{latest: works, want: works}, {after: s, latest: withoutExporter, want: withoutExporter}},
		"an operand beside the ladder is new":                {{latest: withoutExporter, want: withoutExporter}, {after: s, latest: besideStarts, want: besideStarts}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			report := assess.Report{}
			for _, step := range steps {
				latest := step.latest
				latest.At = begin.Add(step.after)
				var wait time.Duration
				report, wait = report.Next(latest, assess.DefaultDwell())
				g.Expect(report.NodeVerdict).To(Equal(step.want.NodeVerdict), "after %s", step.after)
				g.Expect(report.Operands).To(Equal(step.want.Operands), "after %s", step.after)
				g.Expect(report.Excluded).To(Equal(step.want.Excluded), "after %s", step.after)
				g.Expect(wait).To(Equal(step.wait), "after %s", step.after)
			}
		})
	}
}

// The times of another Dwell hold.
func TestNextWithOtherTimes(t *testing.T) {
	g := NewWithT(t)
	dwell := assess.Dwell{Replace: time.Minute, Flap: time.Hour, Window: 24 * time.Hour}
	at := func(latest assess.Assessment, after time.Duration) assess.Assessment {
		latest.At = begin.Add(after)
		return latest
	}
	report, _ := assess.Report{}.Next(at(works, 0), dwell)
	held, wait := report.Next(at(starts, time.Second), dwell)
	g.Expect(held.Ready()).To(BeTrue())
	g.Expect(wait).To(Equal(time.Minute))
	report, _ = report.Next(at(crashes, time.Second), dwell)
	report, _ = report.Next(at(works, time.Minute), dwell)
	_, wait = report.Next(at(crashes, time.Hour), dwell)
	g.Expect(wait).To(Equal(time.Hour))
}

// Next changes neither the report that it follows nor the assessment.
func TestNextIsPure(t *testing.T) {
	g := NewWithT(t)
	latest := works
	latest.At = begin
	report, _ := assess.Report{}.Next(latest, assess.DefaultDwell())
	down := starts
	down.At = begin.Add(time.Minute)
	once, wait := report.Next(down, assess.DefaultDwell())
	again, same := report.Next(down, assess.DefaultDwell())
	g.Expect(again).To(Equal(once))
	g.Expect(same).To(Equal(wait))
	g.Expect(report.Assessment).To(Equal(latest))
}

func TestReasons(t *testing.T) {
	tests := map[string]struct{ passes, fails bool }{
		v1.ReasonStarting:     {passes: true},
		v1.ReasonNodeNotReady: {passes: true},
		v1.ReasonExcluded:     {},
		v1.ReasonNotSelected:  {},
		"OperandPaused":       {},
		"CrashLoopBackOff":    {fails: true},
		"NodeUnreachable":     {fails: true},
	}
	for reason, want := range tests {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(assess.IsTransient(reason)).To(Equal(want.passes))
			g.Expect(assess.IsFailure(reason)).To(Equal(want.fails))
		})
	}
}
