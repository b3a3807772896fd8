package main

import (
	"context"
	"fmt"
	"time"
)

// operandCount is the minimum number of DaemonSets of the sample policy.
const operandCount = 7

// install measures from the creation of the policy until ready: the nodes exist and the operator runs before.
func install(ctx context.Context, e *env) (outcome, error) {
	if _, err := e.sim.AddNodes(ctx, e.size); err != nil {
		return outcome{}, err
	}
	var out outcome
	calls, err := e.during(func() (err error) {
		if err := e.startOperator(ctx); err != nil {
			return err
		}
		out, err = e.becomeReady(ctx)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	most := float64(writesPerNode*e.size + writesBeside)
	out.Figures = append(out.Figures,
		atMost("API writes to ready", float64(len(calls.Writes())), most, count))
	out.Figures = append(out.Figures, reads(calls)...)
	out.Tallies = []tally{tallyOf("installation, from the operator's start to ready", calls)}
	e.readyMark, err = e.cluster.Mark()
	return out, err
}

// becomeReady creates the policy and measures until everything is ready and every node's condition is True.
func (e *env) becomeReady(ctx context.Context) (outcome, error) {
	before, err := e.operator.scrape(ctx)
	if err != nil {
		return outcome{}, err
	}
	wanted, err := e.wanted()
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	if err := e.client.Create(ctx, wanted); err != nil {
		return outcome{}, fmt.Errorf("create the policy: %w", err)
	}
	if err := e.awaitDaemonSets(ctx, operandCount, e.size); err != nil {
		return outcome{}, err
	}
	daemonSets := time.Since(begin)
	if err := e.awaitReady(ctx, e.size); err != nil {
		return outcome{}, err
	}
	e.ready = time.Now()
	used, err := e.used(ctx, before)
	if err != nil {
		return outcome{}, err
	}
	return outcome{Figures: append([]figure{
		plain(readyTime, "from the policy until its status is ready", e.ready.Sub(begin).Seconds(), seconds),
		plain(other, "from the policy until its DaemonSets are ready", daemonSets.Seconds(), seconds),
	}, used...)}, e.awaitConditions(ctx, e.size)
}

// used returns figures of the operator's resource usage since its start.
func (e *env) used(ctx context.Context, before scraped) ([]figure, error) {
	usage, anonymous, err := e.operator.usage()
	if err != nil {
		return nil, err
	}
	now, err := e.operator.scrape(ctx)
	if err != nil {
		return nil, err
	}
	goals := limitsOf(e.size)
	pass, look := now.times[passes].since(before.times[passes]), now.times[reconciles].since(before.times[reconciles])
	return []figure{
		atMost("CPU of the operator from its start to ready", usage.CPU.Seconds(), goals.cpu, seconds),
		atMost("peak memory of the operator to ready (RSS)", inMegabytes(usage.PeakRSS), goals.memory, megabytes),
		plain(other, "of that, heap and stacks (anonymous, peak)", inMegabytes(anonymous), megabytes),
		plain(other, "heap in use when ready", inMegabytes(int64(now.heap)), megabytes),
		plain(other, "passes to ready", float64(pass.count), count),
		atMost("time of these passes, mean", inMilliseconds(pass.mean()), goals.passToReady, milliseconds),
		plain(other, "time of these passes, p50", inMilliseconds(pass.quantile(0.5)), milliseconds),
		plain(other, "time of these passes, p99", inMilliseconds(pass.quantile(0.99)), milliseconds),
		plain(other, "reconciles of single nodes to ready", float64(look.count), count),
		plain(other, "time of these reconciles, mean", inMilliseconds(look.mean()), milliseconds),
	}, nil
}
