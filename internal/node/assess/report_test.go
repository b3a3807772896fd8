package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var begin = time.Unix(1_000_000, 0)

// exporter is an auxiliary operand.
const exporter operand.Name = "dcgm-exporter"

// assessed returns the assessment of a node at this stage, with the exporter in this state.
func assessed(state readiness.State, stage v1.Stage, reason string, exporterState readiness.State) assess.Assessment {
	return assess.Assessment{
		NodeVerdict: readiness.NodeVerdict{Stage: stage, Verdict: readiness.Verdict{State: state, Reason: reason}},
		Operands:    map[operand.Name]readiness.Verdict{exporter: {State: exporterState}},
	}
}

var (
	ready            = assessed(readiness.Ready, v1.StageValidated, "", readiness.Ready)
	starting         = assessed(readiness.Progressing, v1.StageDriver, v1.ReasonStarting, readiness.Ready)
	failed           = assessed(readiness.Failed, v1.StageDriver, "CrashLoopBackOff", readiness.Ready)
	noGPUs           = assessed(readiness.Progressing, v1.StageAllocatable, v1.ReasonNotAllocatable, readiness.Ready)
	mismatch         = assessed(readiness.Progressing, v1.StageAllocatable, v1.ReasonMIGConfigMismatch, readiness.Ready)
	notReady         = assessed(readiness.Progressing, v1.StageDiscovered, v1.ReasonNodeNotReady, readiness.Ready)
	exporterStarting = assessed(readiness.Ready, v1.StageValidated, "", readiness.Progressing)
	exporterFailed   = assessed(readiness.Ready, v1.StageValidated, "", readiness.Failed)
)

func excludedNode() assess.Assessment {
	return assess.Assessment{Excluded: true, NodeVerdict: readiness.NodeVerdict{
		Stage: v1.StageDiscovered, Verdict: readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonExcluded},
	}}
}

// step is one assessment, at this time after begin, and the report that is expected then.
type step struct {
	after  time.Duration
	latest assess.Assessment
	// wait is after how long the report must be computed again.
	want assess.Assessment
	wait time.Duration
}

func TestNext(t *testing.T) {
	const s = time.Second
	overdue := assessed(readiness.Failed, v1.StageDriver, v1.ReasonStarting, readiness.Ready)
	overdue.Overdue = true
	withoutExporter := assessed(readiness.Ready, v1.StageValidated, "", readiness.Ready)
	withoutExporter.Operands = nil
	// down is a failure of ten seconds on a node that was ready before.
	down := []step{
		{after: 0, latest: ready, want: ready},
		{after: 10 * s, latest: failed, want: failed},
		{after: 20 * s, latest: ready, want: ready},
	}
	tests := map[string][]step{
		"the first assessment of a ready node":    {{latest: ready, want: ready}},
		"the first assessment of a starting node": {{latest: starting, want: starting}},
		"the first assessment of a failed node":   {{latest: failed, want: failed}},
		"all stages of a starting node": {
			{latest: starting, want: starting},
			{after: s, latest: noGPUs, want: noGPUs},
			{after: 2 * s, latest: failed, want: failed},
			{after: 3 * s, latest: starting, want: starting},
			{after: 4 * s, latest: ready, want: ready},
		},
		"a failure": {{latest: ready, want: ready}, {after: s, latest: failed, want: failed}},
		"a failure by deadline": {
			{latest: ready, want: ready}, {after: s, latest: overdue, want: overdue},
		},
		"no GPU is allocatable anymore": {
			{latest: ready, want: ready},
			{after: s, latest: noGPUs, want: ready, wait: s / 2},
			{after: s + s/2, latest: noGPUs, want: noGPUs},
		},
		"no GPU is allocatable, and then the pod of the plugin is seen to be replaced": {
			{latest: ready, want: ready},
			{after: s, latest: noGPUs, want: ready, wait: s / 2},
			{after: s + s/4, latest: starting, want: ready, wait: 4*s - s/4},
			{after: 3 * s, latest: ready, want: ready},
		},
		"another MIG layout is requested, and the MIG manager has not begun": {
			{latest: ready, want: ready},
			{after: s, latest: mismatch, want: ready, wait: 4 * s},
			{after: 3 * s, latest: mismatch, want: ready, wait: 2 * s},
			{after: 4 * s, latest: ready, want: ready},
		},
		"the MIG layout is not advertised for four seconds": {
			{latest: ready, want: ready},
			{after: s, latest: mismatch, want: ready, wait: 4 * s},
			{after: 5 * s, latest: mismatch, want: mismatch},
		},
		"a pod is replaced for four seconds": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: starting, want: ready, wait: 4 * s},
			{after: 13 * s, latest: starting, want: ready, wait: s},
			{after: 14 * s, latest: starting, want: starting},
			{after: 15 * s, latest: starting, want: starting},
		},
		"a kubelet that is not ready for four seconds": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: notReady, want: ready, wait: 4 * s},
			{after: 14 * s, latest: notReady, want: notReady},
		},
		"a pod is replaced within four seconds": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: starting, want: ready, wait: 4 * s},
			{after: 13 * s, latest: ready, want: ready},
			// The dwell time starts again, and the return is not a recovery.
			{after: 14 * s, latest: starting, want: ready, wait: 4 * s},
			{after: 17 * s, latest: ready, want: ready},
			{after: 18 * s, latest: failed, want: failed},
		},
		"a pod is replaced and then fails": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: starting, want: ready, wait: 4 * s},
			{after: 11 * s, latest: failed, want: failed},
		},
		"a pod is replaced, and then no GPU is allocatable": {
			{latest: ready, want: ready}, {after: 10 * s, latest: starting, want: ready, wait: 4 * s},
			{after: 12 * s, latest: noGPUs, want: ready, wait: 2 * s}, {after: 14 * s, latest: noGPUs, want: noGPUs},
		},
		"several operands are replaced, one after the other": {
			{latest: ready, want: ready}, {after: 10 * s, latest: exporterStarting, want: ready, wait: 4 * s},
			{after: 13 * s, latest: starting, want: ready, wait: s}, {after: 14 * s, latest: starting, want: starting},
		},
		"improvements are reported immediately": {
			{latest: failed, want: failed},
			{after: s, latest: starting, want: starting},
			{after: 2 * s, latest: ready, want: ready},
		},
		"a second failure half a minute after a recovery": append(
			down[:len(down):len(down)],
			step{after: 50 * s, latest: failed, want: ready, wait: 10 * s},
			step{after: 59 * s, latest: failed, want: ready, wait: s},
			step{after: 60 * s, latest: failed, want: failed},
		),
		"a second failure half a minute after a recovery, for nine seconds": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: failed, want: ready, wait: 10 * s}, step{after: 59 * s, latest: ready, want: ready}),
		"no GPU is allocatable half a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: noGPUs, want: ready, wait: 10 * s}, step{after: 60 * s, latest: noGPUs, want: noGPUs}),
		"a pod is replaced half a minute after a recovery": append(
			down[:len(down):len(down)],
			step{after: 50 * s, latest: starting, want: ready, wait: 10 * s},
			step{after: 54 * s, latest: starting, want: ready, wait: 6 * s},
			step{after: 60 * s, latest: starting, want: starting},
		),
		"a second failure a minute after a recovery": append(down[:len(down):len(down)],
			step{after: 80 * s, latest: failed, want: failed}),
		"a second failure 55 seconds after a recovery": append(
			down[:len(down):len(down)],
			step{after: 75 * s, latest: failed, want: ready, wait: 10 * s},
			step{after: 82 * s, latest: failed, want: ready, wait: 3 * s},
			step{after: 85 * s, latest: failed, want: failed},
		),
		"a third failure": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: failed, want: ready, wait: 10 * s}, step{after: 60 * s, latest: failed, want: failed},
			step{after: 100 * s, latest: ready, want: ready}, step{after: 130 * s, latest: failed, want: ready, wait: 10 * s}),
		"the first time ready is not a recovery": {
			{latest: starting, want: starting},
			{after: 10 * s, latest: ready, want: ready},
			{after: 20 * s, latest: failed, want: failed},
		},
		"a node is excluded": {{latest: ready, want: ready}, {after: s, latest: excludedNode(), want: excludedNode()}},
		"a node is excluded soon after a recovery": append(down[:len(down):len(down)],
			step{after: 50 * s, latest: excludedNode(), want: excludedNode()}),
		"a node is excluded while a pod is replaced": {
			{latest: ready, want: ready},
			{after: s, latest: starting, want: ready, wait: 4 * s},
			{after: 2 * s, latest: excludedNode(), want: excludedNode()},
		},
		"a node is no longer excluded": {
			{latest: excludedNode(), want: excludedNode()},
			{after: s, latest: starting, want: starting},
		},
		"an auxiliary operand is replaced": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: exporterStarting, want: ready, wait: 4 * s},
			{after: 12 * s, latest: exporterStarting, want: ready, wait: 2 * s},
			{after: 14 * s, latest: exporterStarting, want: exporterStarting},
		},
		"an auxiliary operand is replaced within four seconds": {
			{latest: ready, want: ready},
			{after: 10 * s, latest: exporterStarting, want: ready, wait: 4 * s},
			{after: 12 * s, latest: ready, want: ready},
			{after: 15 * s, latest: exporterStarting, want: ready, wait: 4 * s},
		},
		"an auxiliary operand fails": {
			{latest: ready, want: ready},
			{after: s, latest: exporterFailed, want: exporterFailed},
		},
		"an auxiliary operand fails after it was replaced": {
			{latest: ready, want: ready},
			{after: s, latest: exporterStarting, want: ready, wait: 4 * s},
			{after: 2 * s, latest: exporterFailed, want: exporterFailed},
		},
		"an auxiliary operand fails without having been ready": {
			{latest: exporterStarting, want: exporterStarting}, {after: s, latest: exporterFailed, want: exporterFailed},
		},
		"an auxiliary operand is no longer expected": {
			{latest: ready, want: ready},
			{after: s, latest: withoutExporter, want: withoutExporter},
		},
		"an auxiliary operand is new": {
			{latest: withoutExporter, want: withoutExporter},
			{after: s, latest: exporterStarting, want: exporterStarting},
		},
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

// Next applies the dwell times that it gets.
func TestNextAppliesTheDwellTimes(t *testing.T) {
	g := NewWithT(t)
	dwell := assess.Dwell{Replace: time.Minute, Loss: 2 * time.Minute, Flap: time.Hour, Window: 24 * time.Hour}
	at := func(latest assess.Assessment, after time.Duration) assess.Assessment {
		latest.At = begin.Add(after)
		return latest
	}
	report, _ := assess.Report{}.Next(at(ready, 0), dwell)
	unchanged, wait := report.Next(at(starting, time.Second), dwell)
	g.Expect(unchanged.Ready()).To(BeTrue())
	g.Expect(wait).To(Equal(time.Minute))
	lost := failed
	lost.Reason = v1.ReasonGPUsUnhealthy
	unchanged, wait = report.Next(at(lost, time.Second), dwell)
	g.Expect(unchanged.Ready()).To(BeTrue())
	g.Expect(wait).To(Equal(2 * time.Minute))
	report, _ = report.Next(at(failed, time.Second), dwell)
	report, _ = report.Next(at(ready, time.Minute), dwell)
	_, wait = report.Next(at(failed, time.Hour), dwell)
	g.Expect(wait).To(Equal(time.Hour))
}

// Next modifies neither the previous report nor the assessment.
func TestNextIsPure(t *testing.T) {
	g := NewWithT(t)
	latest := ready
	latest.At = begin
	report, _ := assess.Report{}.Next(latest, assess.DefaultDwell())
	down := starting
	down.At = begin.Add(time.Minute)
	once, wait := report.Next(down, assess.DefaultDwell())
	again, same := report.Next(down, assess.DefaultDwell())
	g.Expect(again).To(Equal(once))
	g.Expect(same).To(Equal(wait))
	g.Expect(report.Assessment).To(Equal(latest))
}

func TestReasons(t *testing.T) {
	tests := map[string]struct{ transient, failure bool }{
		v1.ReasonStarting:     {transient: true},
		v1.ReasonNodeNotReady: {transient: true},
		v1.ReasonExcluded:     {},
		v1.ReasonNotSelected:  {},
		"OperandPaused":       {},
		"CrashLoopBackOff":    {failure: true},
		"NodeUnreachable":     {failure: true},
	}
	for reason, want := range tests {
		t.Run(reason, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(assess.IsTransient(reason)).To(Equal(want.transient))
			g.Expect(assess.IsFailure(reason)).To(Equal(want.failure))
		})
	}
}
