package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// partitionable is which part of the nodes has GPUs that support MIG: one in four.
	partitionable = 4
	// labelsSeconds and conditionSeconds limit the 99th percentile of the operator's latencies.
	labelsSeconds, conditionSeconds = 1, 1.5
)

// measureLatency measures an installation whose drivers take long, and how soon the operator reacts on each node.
func measureLatency(ctx context.Context, m *measurement) (out outcome, err error) {
	slow := *m
	slow.driver = m.driverTakes
	err = slow.onControlPlane(ctx, func(ctx context.Context, e *env) error {
		out, err = e.latencies(ctx)
		return err
	})
	return out, err
}

func (e *env) latencies(ctx context.Context) (outcome, error) {
	partitioned := e.size / partitionable
	if _, err := e.sim.AddNodes(ctx, e.size-partitioned); err != nil {
		return outcome{}, err
	}
	spec := simulator.NodeSpec{Model: simulator.ModelA100}
	if _, err := e.sim.AddNodesOf(ctx, partitioned, spec); err != nil {
		return outcome{}, err
	}
	o := newObserver()
	if err := o.start(ctx, e.cluster.SimulatorConfig); err != nil {
		return outcome{}, err
	}
	var figures []figure
	calls, err := e.during(func() (err error) {
		if err := e.startOperator(ctx); err != nil {
			return err
		}
		figures, err = e.observed(ctx, o)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	what := fmt.Sprintf("with drivers of %.0f s and MIG on %d nodes", e.driver.Seconds(), partitioned)
	for i := range figures {
		figures[i].What = what + ": " + figures[i].What
	}
	return outcome{
		Figures: append(figures, reads(calls)...),
		Tallies: []tally{tallyOf("installation "+what, calls)},
	}, nil
}

// observed creates the policy, waits until everything is ready, and returns the figures of what the observer saw.
func (e *env) observed(ctx context.Context, o *observer) ([]figure, error) {
	wanted, err := e.wanted()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := e.create(ctx, wanted); err != nil {
		return nil, err
	}
	if err := e.await(ctx, "the condition of all nodes is True", pollPeriod,
		func(context.Context) (bool, string, error) {
			usable := o.usable()
			return usable == e.size, fmt.Sprintf("%d of %d", usable, e.size), nil
		}); err != nil {
		return nil, err
	}
	if err := e.awaitReady(ctx, e.size); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	usage, _, err := e.operator.usage()
	if err != nil {
		return nil, err
	}
	toLabels, toCondition := o.latencies()
	if len(toLabels) != e.size || len(toCondition) != e.size {
		return nil, fmt.Errorf("only %d and %d of %d nodes were observed from step to step", len(toLabels),
			len(toCondition), e.size)
	}
	return []figure{
		plain(other, "from the policy until its status is ready", took.Seconds(), seconds),
		plain(other, "from a toolkit that is ready to the labels that wait for it, p50", percentile(toLabels, 0.5),
			hundredths),
		atMost("the same, p99", percentile(toLabels, 0.99), labelsSeconds, hundredths),
		plain(other, "from the last pod that is ready to the condition GPUReady, p50", percentile(toCondition, 0.5),
			hundredths),
		atMost("the same, p99", percentile(toCondition, 0.99), conditionSeconds, hundredths),
		plain(other, "CPU of the operator to ready", usage.CPU.Seconds(), seconds),
		atMost("peak memory of the operator to ready (RSS)", inMegabytes(usage.PeakRSS), limitsOf(e.size).memory,
			megabytes),
	}, nil
}

// percentile returns the smallest value that is not exceeded by this part of all values. There must be a value.
func percentile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// reads returns the figures of an installation that are about pods which the operator deletes, and about its watches of
// pods and nodes that the API server closes since they are read too slowly.
func reads(calls cluster.Calls) []figure {
	cut := calls.Cut()
	return []figure{
		atMost("pods that the operator deletes during an installation", float64(len(calls.Deletes("pods"))), 0, count),
		atMost("watches of pods and nodes that the API server closes meanwhile",
			float64(len(cut.Of("pods"))+len(cut.Of("nodes"))), 0, count),
	}
}
