package main

import (
	"fmt"
	"slices"
	"strings"
)

// compared returns the figures of alternating runs: medians, which are compared with goals, and all values.
func compared(how setting, nodes int, runs map[runKind][]sample) outcome {
	r := comparedRuns{runs: runs}
	ready := func(s sample) float64 { return s.ready.Seconds() }
	goals := comparedGoals(how, nodes)
	if runs[otherOperated] != nil {
		goals.cpu = r.median(otherOperated, cpuSeconds)
	}
	out := outcome{Figures: r.ratios(goals, ready)}
	out.Figures = append(out.Figures,
		r.figure("from the policy until all pods are Ready and its status says ready", ready, none, hundredths),
		r.figure("of that, until all pods are Ready", func(s sample) float64 { return s.pods.Seconds() }, none, hundredths),
		r.own("until the condition GPUReady of each node is True",
			func(s sample) float64 { return s.operator.conditions.Seconds() }, none, hundredths),
		medians("F1: its DaemonSets alone, on nodes that already have their labels, until all pods are Ready",
			valuesOf(runs[presetFloor], ready), none, hundredths))
	if runs[labellingFloor] != nil {
		out.Figures = append(out.Figures, medians("F2: the same, on nodes that a plain loop labels meanwhile",
			valuesOf(runs[labellingFloor], ready), none, hundredths))
	}
	out.Figures = append(out.Figures,
		r.figure("pods that the DaemonSets want", func(s sample) float64 { return float64(s.wanted) }, none, count),
		r.figure("CPU of the operator from its start to ready", cpuSeconds, goals.cpu, hundredths),
		r.figure("peak memory of the operator to ready (RSS)",
			func(s sample) float64 { return inMegabytes(s.operator.rss) }, goals.memory, megabytes),
		r.figure("of that, heap and stacks (anonymous, peak)",
			func(s sample) float64 { return inMegabytes(s.operator.anonymous) }, goals.anonymous, megabytes),
		r.figure("API writes to ready",
			func(s sample) float64 { return float64(writesOf(s.operator.calls)) }, goals.writes, count),
		r.figure("requests refused as conflicts (409) to ready",
			func(s sample) float64 { return float64(len(s.operator.calls.Conflicts())) }, none, count),
		r.figure("requests refused for another reason (4xx) to ready", refused, none, count))
	figures, tallies := r.late()
	out.Figures, out.Tallies = append(out.Figures, figures...), tallies
	return out
}

func cpuSeconds(s sample) float64 { return s.operator.cpu.Seconds() }

// refused counts requests with an error of the client, such as reads of what does not exist, without conflicts.
func refused(s sample) float64 {
	calls := s.operator.calls
	return float64(len(calls.Refused()) - len(calls.Conflicts()))
}

// comparedRuns are the runs of one comparison.
type comparedRuns struct{ runs map[runKind][]sample }

func (r comparedRuns) median(kind runKind, of func(sample) float64) float64 {
	return median(valuesOf(r.runs[kind], of))
}

// ratios returns the operator's time relative to each of the others.
func (r comparedRuns) ratios(goals comparedLimits, ready func(sample) float64) []figure {
	var ratios []figure
	for _, against := range []struct {
		kind  runKind
		what  string
		limit float64
	}{
		{otherOperated, "ready with the operator, against the other one", otherRatioLimit},
		{presetFloor, "ready with the operator, against F1", goals.toPreset},
		{labellingFloor, "ready with the operator, against F2", goals.toLabelling},
	} {
		if r.runs[against.kind] != nil {
			ratio := r.median(operated, ready) / r.median(against.kind, ready)
			ratios = append(ratios, atMost(against.what, ratio, against.limit, times))
		}
	}
	return ratios
}

// own returns a figure of this operator alone.
func (r comparedRuns) own(what string, of func(sample) float64, limit float64, u unit) figure {
	return medians(what, valuesOf(r.runs[operated], of), limit, u)
}

// figure returns a figure of this operator, beside that of the other one if it was measured.
func (r comparedRuns) figure(what string, of func(sample) float64, limit float64, u unit) figure {
	f := r.own(what, of, limit, u)
	if runs := r.runs[otherOperated]; runs != nil {
		f.Beside = medians(what, valuesOf(runs, of), none, u).Measured
	}
	return f
}

// late returns the writes after ready, of the runs in which they were watched, and this operator's requests.
func (r comparedRuns) late() (figures []figure, tallies []tally) {
	what := fmt.Sprintf("the %.0f s after ready", watchedAfter.Seconds())
	watched := func(kind runKind) *operatorSample {
		i := slices.IndexFunc(r.runs[kind], func(s sample) bool { return s.operator.watched })
		if i < 0 {
			return nil
		}
		return r.runs[kind][i].operator
	}
	ours, beside := watched(operated), watched(otherOperated)
	if ours == nil {
		return nil, nil
	}
	f := plain(other, "API writes in "+what, float64(writesOf(ours.after)), count)
	if beside != nil {
		f.Beside = count.format(float64(writesOf(beside.after)))
	}
	return []figure{f}, []tally{
		tallyOf("installation, from the operator's start to ready", ours.calls), tallyOf(what, ours.after),
	}
}

func valuesOf(samples []sample, of func(sample) float64) []float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, of(s))
	}
	return values
}

// median returns the middle value, or the mean of the two middle ones. There must be a value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// medians returns a figure whose median must not exceed the limit; a negative limit is none. It lists all values, in
// the order of the runs.
func medians(what string, values []float64, limit float64, u unit) figure {
	f := atMost(what, median(values), limit, u)
	var all []string
	for _, value := range values {
		all = append(all, unit{digits: u.digits}.format(value))
	}
	f.Measured += " (" + strings.Join(all, ", ") + ")"
	return f
}
