package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// fewestNodes is the minimum for the phases, which break five of them.
const fewestNodes = 10

// phase is a part of a run with its own figures.
type phase struct {
	name string
	// alone: it does not share its control plane with other phases.
	alone bool
	run   func(context.Context, *env) (outcome, error)
	// series replaces run for a phase that starts a control plane for each of its runs.
	series func(context.Context, *measurement) (outcome, error)
}

// installation is the phase that all others depend on, except those that run alone.
const installation = "install"

// comparison is the phase with alternating runs. It is the only one when kwok simulates the pods, and with the
// realistic stages only runs on request.
const comparison = "compare"

// latency is the phase with a driver that takes long.
const latency = "latency"

// soaking is the phase that takes the longest.
const soaking = "soak"

// onRequest are the phases that only run if they are named.
var onRequest = []string{comparison, soaking}

func isOnRequest(name string) bool { return slices.Contains(onRequest, name) }

// placedPhases are those that need no more of a control plane than etcd, the API server and a placer.
var placedPhases = []string{installation, "idle", "pass", "pod", "label", "join", "joins", "restart", soaking}

// phases returns the phases in the order in which they run.
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
		{name: latency, alone: true, series: measureLatency},
		{name: soaking, alone: true, series: soak},
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

// run measures all sizes, and returns the number of missed goals.
func run(ctx context.Context, o options, progress io.Writer) (missed int, err error) {
	from := provenance{load: load(), commit: cmp.Or(resultfile.Commit(".", product...), "unknown")}
	if _, err := cluster.EnsureBinaries(ctx, "", progress); err != nil {
		return 0, err
	}
	binary, err := cluster.BuildOperator(ctx, progress)
	if err != nil {
		return 0, err
	}
	for _, size := range o.nodes {
		m := &measurement{
			options: o, binary: binary, progress: progress, kept: readKept(o.cache, o.setting(), size), from: from,
		}
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
	binary   string
	progress io.Writer
	kept     kept
	// from is before this program did any work.
	from provenance
}

// run runs the selected phases and stores the figures of each when it ends.
func (m *measurement) run(ctx context.Context) error {
	together := slices.DeleteFunc(phases(),
		func(p phase) bool { return p.alone || p.name != installation && !slices.Contains(m.only, p.name) })
	needsOperator := slices.ContainsFunc(together, func(p phase) bool { return slices.Contains(m.only, p.name) })
	if needsOperator {
		if err := m.inEnv(ctx, together); err != nil {
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
	fmt.Fprintf(m.progress, "\n%s\n", m.kept.table())
	if m.docs == "" {
		return nil
	}
	return m.kept.writeTo(m.docs)
}

// runAlone runs a phase that does not share its control plane.
func (m *measurement) runAlone(ctx context.Context, p phase) error {
	if p.series == nil {
		return m.inEnv(ctx, []phase{p})
	}
	begin := time.Now()
	out, err := p.series(ctx, m)
	if err != nil {
		return fmt.Errorf("phase %s: %w", p.name, err)
	}
	return m.note(p, time.Since(begin), out)
}

// inEnv runs phases sequentially on a shared control plane.
func (m *measurement) inEnv(ctx context.Context, all []phase) error {
	return m.onControlPlane(ctx, func(ctx context.Context, e *env) error {
		for _, p := range all {
			begin := time.Now()
			out, err := p.run(ctx, e)
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

// note prints the figures of a phase, and stores them if the phase was requested.
func (m *measurement) note(p phase, took time.Duration, out outcome) error {
	fmt.Fprintf(m.progress, "\n%s, %s, in %.0f s:\n", m.kept.title(m.kept.Nodes), p.name, took.Seconds())
	out.print(m.progress)
	if !slices.Contains(m.only, p.name) || p.name == soaking && m.soak > 0 {
		return nil
	}
	return m.kept.keep(m.cache, p.name, m.from, out)
}

// onControlPlane starts a control plane without nodes, and stops it when the function returns.
func (m *measurement) onControlPlane(ctx context.Context, do func(context.Context, *env) error) error {
	return m.onControlPlaneWith(ctx, installOwn, do)
}

// onControlPlaneWith does the same with the objects of an operator.
func (m *measurement) onControlPlaneWith(
	ctx context.Context, install installer, do func(context.Context, *env) error,
) (err error) {
	// End the simulator before the API server.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := startEnv(ctx, m.options, m.binary, m.kept.Nodes, install)
	defer func() {
		cancel()
		err = errors.Join(err, e.stop())
	}()
	if err != nil {
		return err
	}
	if err := do(ctx, e); err != nil {
		return fmt.Errorf("%w%s", err, e.logTail())
	}
	return nil
}

// logTail returns the end of the operator's log, which is removed with the cluster.
func (e *env) logTail() string {
	const most = 4000
	if e.operator == nil {
		return ""
	}
	log, err := os.ReadFile(e.operator.process.LogFile)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nthe end of the operator's log:\n%s", log[max(0, len(log)-most):])
}
