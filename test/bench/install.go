package main

import (
	"context"
	"fmt"
	"time"
)

// operandCount is how many DaemonSets the sample policy has, at least.
const operandCount = 7

// install measures the way from the policy to ready: the nodes are there and the operator runs before there is a policy.
func install(ctx context.Context, b *bed) (outcome, error) {
	if _, err := b.sim.AddNodes(ctx, b.size); err != nil {
		return outcome{}, err
	}
	var out outcome
	calls, err := b.during(func() (err error) {
		if err := b.startOperator(ctx); err != nil {
			return err
		}
		out, err = b.becomeReady(ctx)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	most := float64(writesPerNode*b.size + writesBeside)
	out.Figures = append(out.Figures, atMost(readyWrites, "API writes to ready", float64(len(calls.Writes())), most, count))
	out.Tallies = []tally{tallyOf("installation, from the operator's start to ready", calls)}
	b.readyMark, err = b.cluster.Mark()
	return out, err
}

// becomeReady creates the policy and measures until all is ready and every node says so.
func (b *bed) becomeReady(ctx context.Context) (outcome, error) {
	before, err := b.operator.scrape(ctx)
	if err != nil {
		return outcome{}, err
	}
	wanted, err := policy()
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	if err := b.client.Create(ctx, wanted); err != nil {
		return outcome{}, fmt.Errorf("create the policy: %w", err)
	}
	if err := b.awaitDaemonSets(ctx, operandCount, b.size); err != nil {
		return outcome{}, err
	}
	daemonSets := time.Since(begin)
	if err := b.awaitReady(ctx, b.size); err != nil {
		return outcome{}, err
	}
	b.ready = time.Now()
	used, err := b.used(ctx, before)
	if err != nil {
		return outcome{}, err
	}
	return outcome{Figures: append([]figure{
		plain(readyTime, "from the policy until its status says ready", b.ready.Sub(begin).Seconds(), seconds),
		plain(other, "from the policy until its DaemonSets are ready", daemonSets.Seconds(), seconds),
	}, used...)}, b.awaitConditions(ctx, b.size)
}

// used tells what the operator has used since its start.
func (b *bed) used(ctx context.Context, before scraped) ([]figure, error) {
	usage, anonymous, err := b.operator.usage()
	if err != nil {
		return nil, err
	}
	now, err := b.operator.scrape(ctx)
	if err != nil {
		return nil, err
	}
	goals := limitsOf(b.size)
	pass, look := now.times[passes].since(before.times[passes]), now.times[looks].since(before.times[looks])
	return []figure{
		atMost(cpuToReady, "CPU of the operator from its start to ready", usage.CPU.Seconds(), goals.cpu, seconds),
		atMost(peakMemory, "peak memory of the operator to ready (RSS)", inMegabytes(usage.PeakRSS), goals.memory, megabytes),
		plain(other, "of that, heap and stacks (anonymous, peak)", inMegabytes(anonymous), megabytes),
		plain(other, "heap in use when ready", inMegabytes(int64(now.heap)), megabytes),
		plain(other, "passes to ready", float64(pass.count), count),
		plain(other, "time of these passes, p50", inMilliseconds(pass.quantile(0.5)), milliseconds),
		plain(other, "time of these passes, p99", inMilliseconds(pass.quantile(0.99)), milliseconds),
		plain(other, "looks at single nodes to ready", float64(look.count), count),
		plain(other, "time of these looks, mean", inMilliseconds(look.mean()), milliseconds),
	}, nil
}
