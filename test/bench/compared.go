package main

import (
	"fmt"
	"slices"
	"strings"
)

// compared returns the figures of alternating runs: medians, which are compared with goals, and all values.
func compared(how stages, nodes int, runs map[runKind][]sample) outcome {
	ready := func(kind runKind) []float64 {
		return valuesOf(runs[kind], func(s sample) float64 { return s.ready.Seconds() })
	}
	ours, preset, labelling := ready(operated), ready(presetFloor), ready(labellingFloor)
	goals := comparedGoals(how, nodes)
	used := func(of func(*operatorSample) float64) []float64 {
		return valuesOf(runs[operated], func(s sample) float64 { return of(s.operator) })
	}
	out := outcome{Figures: []figure{
		atMost(other, "ready with the operator, against F1", median(ours)/median(preset), goals.toPreset, times),
		atMost(other, "ready with the operator, against F2", median(ours)/median(labelling), goals.toLabelling, times),
		medians(watchedReady, "with the operator: from the policy until all pods are Ready and all conditions True", ours,
			none, hundredths),
		medians(other, "of that, until all pods are Ready",
			valuesOf(runs[operated], func(s sample) float64 { return s.pods.Seconds() }), none, hundredths),
		medians(other, "F1: its DaemonSets alone, on nodes that already have their labels, until all pods are Ready", preset,
			none, hundredths),
		medians(other, "F2: the same, on nodes that a plain loop labels meanwhile", labelling, none, hundredths),
		medians(watchedCPU, "CPU of the operator from its start to ready",
			used(func(o *operatorSample) float64 { return o.cpu.Seconds() }), goals.cpu, hundredths),
		medians(watchedMemory, "peak memory of the operator to ready (RSS)",
			used(func(o *operatorSample) float64 { return inMegabytes(o.rss) }), goals.memory, megabytes),
		medians(other, "of that, heap and stacks (anonymous, peak)",
			used(func(o *operatorSample) float64 { return inMegabytes(o.anonymous) }), goals.anonymous, megabytes),
		medians(watchedWrites, "API writes to ready",
			used(func(o *operatorSample) float64 { return float64(writesOf(o.calls)) }), goals.writes, count),
	}}
	for _, s := range runs[operated] {
		if o := s.operator; o.watched {
			what := fmt.Sprintf("the %.0f s after ready", watchedAfter.Seconds())
			out.Figures = append(out.Figures, plain(watchedLate, "API writes in "+what, float64(writesOf(o.after)), count))
			out.Tallies = append(out.Tallies, tallyOf("installation, from the operator's start to ready", o.calls),
				tallyOf(what, o.after))
		}
	}
	return out
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
func medians(name name, what string, values []float64, limit float64, u unit) figure {
	f := atMost(name, what, median(values), limit, u)
	var all []string
	for _, value := range values {
		all = append(all, unit{digits: u.digits}.format(value))
	}
	f.Measured += " (" + strings.Join(all, ", ") + ")"
	return f
}
