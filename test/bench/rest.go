package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// atRest is how long the operator is watched at rest.
	atRest = time.Minute
	// afterReady is how long it is watched after everything is ready, while late counters are written.
	afterReady = 90 * time.Second
	// manyBroken is how many nodes are broken simultaneously.
	manyBroken = 5
	// noOpPasses is how many no-op passes are measured.
	noOpPasses = 20

	plugin    = "device-plugin"
	pluginApp = "nvidia-device-plugin-daemonset"
	driverApp = "nvidia-driver-daemonset"
)

// idle measures the writes after everything is ready, and then at rest.
func idle(ctx context.Context, e *env) (outcome, error) {
	if err := pause(ctx, time.Until(e.ready.Add(afterReady))); err != nil {
		return outcome{}, err
	}
	calls, err := e.callsSince(e.readyMark)
	if err != nil {
		return outcome{}, err
	}
	late := calls.Writes()
	if err := e.settle(ctx); err != nil {
		return outcome{}, err
	}
	quiet, err := e.quietMinute(ctx, "an idle minute")
	if err != nil {
		return outcome{}, err
	}
	first := atMost("API writes in the 90 s after ready", float64(len(late)), 0, count)
	quiet.Figures = append([]figure{first}, quiet.Figures...)
	quiet.Tallies = append([]tally{tallyOf("the 90 s after ready", calls)}, quiet.Tallies...)
	return quiet, nil
}

// quietMinute watches the operator for a minute in which it must neither write nor list.
func (e *env) quietMinute(ctx context.Context, what string) (outcome, error) {
	calls, err := e.during(func() error { return pause(ctx, atRest) })
	return outcome{
		Figures: []figure{
			atMost("API writes in "+what, float64(len(calls.Writes())), 0, count),
			atMost("lists in "+what, float64(len(calls.Lists())), 0, count),
		},
		Tallies: []tally{tallyOf(what, calls)},
	}, err
}

// during returns the operator's requests while a function runs.
func (e *env) during(do func() error) (cluster.Calls, error) {
	mark, err := e.cluster.Mark()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	return e.callsSince(mark)
}

// pause sleeps for a duration.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// broken measures a minute at rest with five broken nodes.
func broken(ctx context.Context, e *env) (outcome, error) {
	if err := e.crash(ctx, manyBroken); err != nil {
		return outcome{}, err
	}
	if err := e.settle(ctx); err != nil {
		return outcome{}, err
	}
	out, err := e.quietMinute(ctx, fmt.Sprintf("an idle minute with %d broken nodes", manyBroken))
	if err != nil {
		return outcome{}, err
	}
	return out, e.recover(ctx, manyBroken)
}

// crash measures the total cost of a node that is broken for a minute, and that of the minute itself.
func crash(ctx context.Context, e *env) (outcome, error) {
	var minute outcome
	calls, err := e.during(func() (err error) {
		if err := e.crash(ctx, 1); err != nil {
			return err
		}
		if err := e.settle(ctx); err != nil {
			return err
		}
		if minute, err = e.quietMinute(ctx, "a minute with one broken node"); err != nil {
			return err
		}
		return e.recover(ctx, 1)
	})
	minute.Tallies = append(minute.Tallies, tallyOf("a node breaks, stays so for a minute and recovers", calls))
	return minute, err
}

// crash makes the device plugin on this number of nodes crash repeatedly.
func (e *env) crash(ctx context.Context, nodes int) error {
	for i := range nodes {
		e.sim.Break(plugin, nodeName(i), simulator.CrashLoop)
		if err := e.deletePod(ctx, pluginApp, nodeName(i)); err != nil {
			return err
		}
	}
	return e.awaitDegraded(ctx, nodes)
}

// recover removes that fault.
func (e *env) recover(ctx context.Context, nodes int) error {
	for i := range nodes {
		e.sim.Heal(plugin, nodeName(i))
	}
	return e.readyAndSettled(ctx, e.size)
}

// firstNode is the node for events on a single node.
var firstNode = nodeName(0)

// nodeName returns the name of a node by its number.
func nodeName(i int) string { return fmt.Sprintf("gpu-%05d", i) }

// noOp measures passes without any change to make, triggered by labels on a DaemonSet.
func noOp(ctx context.Context, e *env) (outcome, error) {
	before, err := e.operator.scrape(ctx)
	if err != nil {
		return outcome{}, err
	}
	list := &appsv1.DaemonSetList{}
	if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return outcome{}, fmt.Errorf("list DaemonSets: %w", err)
	}
	label := func(value string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"bench.example.com/pass":%s}}}`, value)
		err := e.client.Patch(ctx, &list.Items[0], client.RawPatch(types.MergePatchType, []byte(patch)))
		if err != nil {
			return fmt.Errorf("label DaemonSet %s: %w", list.Items[0].Name, err)
		}
		return nil
	}
	calls, err := e.during(func() error {
		for i := range noOpPasses {
			if err := label(fmt.Sprintf(`"%d"`, i)); err != nil {
				return err
			}
			if err := e.awaitPasses(ctx, before.times[passes].count+uint64(i)+1); err != nil {
				return err
			}
		}
		return label("null")
	})
	if err != nil {
		return outcome{}, err
	}
	after, err := e.operator.scrape(ctx)
	pass := after.times[passes].since(before.times[passes])
	return outcome{
		Figures: []figure{
			atMost(fmt.Sprintf("a pass that changes nothing, mean of %d", pass.count), inMilliseconds(pass.mean()),
				limitsOf(e.size).pass, milliseconds),
			atMost("API writes of these passes", float64(len(calls.Writes())), 0, count),
		},
		Tallies: []tally{tallyOf(fmt.Sprintf("%d passes that change nothing", pass.count), calls)},
	}, err
}

// awaitPasses waits until the operator has made this number of passes since its start.
func (e *env) awaitPasses(ctx context.Context, passesMade uint64) error {
	return e.await(ctx, "the operator makes a pass", pollPeriod, func(ctx context.Context) (bool, string, error) {
		now, err := e.operator.scrape(ctx)
		return now.times[passes].count >= passesMade, fmt.Sprint(now.times[passes].count), err
	})
}
