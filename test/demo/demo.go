package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// demo is one run.
type demo struct {
	options
	catalogue operand.Catalogue
	// begin is when the command was started.
	begin          time.Time
	stdout, stderr *os.File
}

// run shows everything and returns the result once all processes have exited.
func (d *demo) run(ctx context.Context) (last string, ready bool, err error) {
	policy, err := loadPolicy()
	if err != nil {
		return "", false, err
	}
	built, err := buildAll(ctx, d.stdout)
	if err != nil {
		return "", false, err
	}
	// End the simulator and the watches before the API server.
	ctx, cancel := context.WithCancel(ctx)
	e, err := startEnv(ctx, built, d.options, d.stdout)
	defer func() {
		cancel()
		if err := e.stop(); err != nil {
			fmt.Fprintln(d.stderr, "demo: ending:", err)
		}
	}()
	if err != nil {
		return "", false, err
	}
	if d.tour {
		last, err = d.showTour(ctx, e)
		return last, err == nil, err
	}
	r, err := d.applyAndWatch(ctx, e, policy)
	if err != nil {
		return "", false, err
	}
	d.print(r.lines())
	last = r.lastLine(policy.GetName())
	if d.exit {
		return last, r.ready, nil
	}
	d.print(append([]string{last}, hints(e.cluster.Kubeconfig(), e.metrics, d.real)...))
	return last, r.ready, d.stay(ctx, e)
}

// applyAndWatch applies the policy and shows the nodes until all are ready or the timeout expires.
func (d *demo) applyAndWatch(ctx context.Context, e *env, policy *unstructured.Unstructured) (result, error) {
	v, err := newView(ctx, e.cluster.SimulatorConfig, d.catalogue)
	if err != nil {
		return result{}, err
	}
	fmt.Fprintf(d.stdout, "applying %s\n\n", samplePolicy)
	applied := time.Now()
	if err := e.apply(ctx, policy); err != nil {
		return result{}, err
	}
	r, err := d.follow(ctx, e, v, applied)
	if err != nil {
		return result{}, err
	}
	nodes, all := v.times(applied)
	if !r.ready {
		all = time.Since(applied)
	}
	r.nodes, r.sinceApply, r.sinceStart = nodes, all, applied.Add(all).Sub(d.begin)
	if r.usage, err = e.operator.Usage(); err != nil {
		return result{}, err
	}
	calls, err := e.cluster.Since(e.before)
	if err != nil {
		return result{}, err
	}
	r.calls = calls.By(cluster.ServiceAccountUser(cluster.OperatorNamespace, serviceAccount))
	return r, nil
}

// follow draws the frames.
func (d *demo) follow(ctx context.Context, e *env, v *view, applied time.Time) (result, error) {
	s := newScreen(d.stdout, d.total())
	deadline := time.NewTimer(time.Until(applied.Add(d.timeout)))
	defer deadline.Stop()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	r := result{}
	for over := false; !over && !r.ready; {
		select {
		case <-ctx.Done():
			return r, context.Cause(ctx)
		case <-e.operator.Done():
			return r, e.ended()
		case <-deadline.C:
			over = true
		case <-tick.C:
		}
		var err error
		if r.frame, err = v.latest(ctx, r.frame); err != nil {
			return r, err
		}
		r.ready = r.frame.done(d.total())
		s.show(r.frame, time.Since(applied))
	}
	s.end(r.frame, time.Since(applied))
	return r, nil
}

// stay returns when the user ends the demo or the operator exits, unless the user has removed it.
func (d *demo) stay(ctx context.Context, e *env) error {
	select {
	case <-e.operator.Done():
		if !e.removed(ctx) {
			return e.ended()
		}
		fmt.Fprintln(d.stdout, "The operator has been removed; the cluster keeps running until Ctrl-C.")
		<-ctx.Done()
	case <-ctx.Done():
	}
	fmt.Fprintln(d.stdout, "ending ...")
	return nil
}

func (d *demo) print(lines []string) {
	for _, line := range lines {
		fmt.Fprintln(d.stdout, line)
	}
}
