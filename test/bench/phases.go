package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// fewestNodes is how many the phases need, to break five and have others left.
const fewestNodes = 10

// phase is a part of a run that has figures of its own.
type phase struct {
	name string
	// alone: it shares a control plane with no other phase.
	alone bool
	run   func(context.Context, *bed) (outcome, error)
	// series replaces run in a phase that starts a control plane for each of its runs.
	series func(context.Context, *measurement) (outcome, error)
}

// installation is the phase that all others build on but those that run alone.
const installation = "install"

// comparison is the phase whose runs alternate. It is the only one with the fast stages, and runs with the realistic
// ones only if it is asked for.
const comparison = "compare"

// phases in the order in which they are run.
func phases() []phase {
	return []phase{
		{name: installation, run: install},
		{name: "idle", run: idle},
		{name: "pass", run: noOp},
		{name: "pod", run: podLost},
		{name: "label", run: labelled},
		{name: "crash", run: crash},
		{name: "broken", run: broken},
		{name: "join", run: join},
		{name: "joins", run: joins},
		{name: "overdue", run: overdue},
		{name: "discovery", run: flap},
		{name: "restart", run: restart},
		{name: "outage", run: outage},
		{name: "floor", alone: true, series: floor},
		{name: "bare", alone: true, run: bare},
		{name: comparison, alone: true, series: compare},
	}
}

func phaseNames() []string {
	var names []string
	for _, p := range phases() {
		names = append(names, p.name)
	}
	return names
}

// run measures all sizes, and returns how many goals were missed.
func run(ctx context.Context, o options, told io.Writer) (missed int, err error) {
	busy := load()
	if _, err := cluster.EnsureBinaries(ctx, "", told); err != nil {
		return 0, err
	}
	binary, err := cluster.BuildOperator(ctx, told)
	if err != nil {
		return 0, err
	}
	for _, size := range o.nodes {
		m := &measurement{options: o, binary: binary, told: told, kept: readKept(o.cache, o.stages, size), busy: busy}
		if err := m.run(ctx); err != nil {
			return missed, fmt.Errorf("%d nodes: %w", size, err)
		}
		missed += m.kept.missed()
	}
	return missed, nil
}

// measurement is the run at one size.
type measurement struct {
	options
	binary string
	told   io.Writer
	kept   kept
	// busy is the load of the machine before this program had any work.
	busy float64
}

// run goes through the phases that are wanted. What each has found is kept when it ends.
func (m *measurement) run(ctx context.Context) error {
	together := slices.DeleteFunc(phases(), func(p phase) bool { return p.alone || p.name != installation && !slices.Contains(m.only, p.name) })
	needsOperator := slices.ContainsFunc(together, func(p phase) bool { return slices.Contains(m.only, p.name) })
	if needsOperator {
		if err := m.onBed(ctx, together); err != nil {
			return err
		}
	}
	for _, p := range phases() {
		if !p.alone || !slices.Contains(m.only, p.name) {
			continue
		}
		if err := m.runAlone(ctx, p); err != nil {
			return err
		}
	}
	fmt.Fprintf(m.told, "\n%s\n", m.kept.table())
	if m.docs == "" {
		return nil
	}
	return m.kept.writeTo(m.docs)
}

// runAlone runs a phase that shares its control plane with no other.
func (m *measurement) runAlone(ctx context.Context, p phase) error {
	if p.series == nil {
		return m.onBed(ctx, []phase{p})
	}
	begin := time.Now()
	out, err := p.series(ctx, m)
	if err != nil {
		return fmt.Errorf("phase %s: %w", p.name, err)
	}
	return m.note(p, time.Since(begin), out)
}

// onBed runs phases one after the other on a control plane of their own.
func (m *measurement) onBed(ctx context.Context, all []phase) error {
	return m.onControlPlane(ctx, func(ctx context.Context, b *bed) error {
		for _, p := range all {
			begin := time.Now()
			out, err := p.run(ctx, b)
			if err != nil {
				return fmt.Errorf("phase %s: %w", p.name, err)
			}
			if err := m.note(p, time.Since(begin), out); err != nil {
				return err
			}
		}
		return nil
	})
}

// note prints the figures of a phase, and keeps those of one that was asked for.
func (m *measurement) note(p phase, took time.Duration, out outcome) error {
	fmt.Fprintf(m.told, "\n%s, %s, in %.0f s:\n", m.stages.title(m.kept.Nodes), p.name, took.Seconds())
	out.tell(m.told)
	if !slices.Contains(m.only, p.name) {
		return nil
	}
	return m.kept.keep(m.cache, p.name, m.busy, out)
}

// onControlPlane starts a control plane without nodes, and stops it afterwards.
func (m *measurement) onControlPlane(ctx context.Context, do func(context.Context, *bed) error) (err error) {
	// Ends the simulator before the API server goes away.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := startBed(ctx, m.options, m.binary, m.kept.Nodes)
	defer func() {
		cancel()
		err = errors.Join(err, b.stop())
	}()
	if err != nil {
		return err
	}
	if err := do(ctx, b); err != nil {
		return fmt.Errorf("%w%s", err, b.logTail())
	}
	return nil
}

// logTail is the end of the operator's log, which goes away with the cluster.
func (b *bed) logTail() string {
	const most = 4000
	if b.operator == nil {
		return ""
	}
	log, err := os.ReadFile(b.operator.process.LogFile)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nthe end of the operator's log:\n%s", log[max(0, len(log)-most):])
}
