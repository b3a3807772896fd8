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
	// atRest is how long the operator is watched when it has nothing to do.
	atRest = time.Minute
	// afterReady is how long it is watched from the moment on when all is ready, while late counters are written.
	afterReady = 90 * time.Second
	// manyBroken is how many nodes are broken at a time.
	manyBroken = 5
	// noOpPasses is how many passes that change nothing are measured.
	noOpPasses = 20

	plugin    = "device-plugin"
	pluginApp = "nvidia-device-plugin-daemonset"
	driverApp = "nvidia-driver-daemonset"
)

// idle measures what is written once all is ready, and then at rest.
func idle(ctx context.Context, b *bed) (outcome, error) {
	if err := pause(ctx, time.Until(b.ready.Add(afterReady))); err != nil {
		return outcome{}, err
	}
	calls, err := b.callsSince(b.readyMark)
	if err != nil {
		return outcome{}, err
	}
	late := calls.Writes()
	if err := b.settle(ctx); err != nil {
		return outcome{}, err
	}
	quiet, err := b.quietMinute(ctx, other, "an idle minute")
	if err != nil {
		return outcome{}, err
	}
	first := atMost(after90, "API writes in the 90 s after ready", float64(len(late)), 0, count)
	quiet.Figures = append([]figure{first}, quiet.Figures...)
	quiet.Tallies = append([]tally{tallyOf("the 90 s after ready", calls)}, quiet.Tallies...)
	return quiet, nil
}

// quietMinute watches the operator while it must neither write nor list.
func (b *bed) quietMinute(ctx context.Context, name name, what string) (outcome, error) {
	calls, err := b.during(func() error { return pause(ctx, atRest) })
	return outcome{
		Figures: []figure{
			atMost(name, "API writes in "+what, float64(len(calls.Writes())), 0, count),
			atMost(other, "lists in "+what, float64(len(calls.Lists())), 0, count),
		},
		Tallies: []tally{tallyOf(what, calls)},
	}, err
}

// during returns the operator's calls while something is done.
func (b *bed) during(do func() error) (cluster.Calls, error) {
	mark, err := b.cluster.Mark()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	return b.callsSince(mark)
}

// pause returns when the time is over.
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

// broken measures a minute at rest while five nodes are broken.
func broken(ctx context.Context, b *bed) (outcome, error) {
	if err := b.crash(ctx, manyBroken); err != nil {
		return outcome{}, err
	}
	if err := b.settle(ctx); err != nil {
		return outcome{}, err
	}
	out, err := b.quietMinute(ctx, other, fmt.Sprintf("an idle minute with %d broken nodes", manyBroken))
	if err != nil {
		return outcome{}, err
	}
	return out, b.recover(ctx, manyBroken)
}

// crash measures all that a node costs that is broken for a minute, and the minute itself.
func crash(ctx context.Context, b *bed) (outcome, error) {
	var minute outcome
	calls, err := b.during(func() (err error) {
		if err := b.crash(ctx, 1); err != nil {
			return err
		}
		if err := b.settle(ctx); err != nil {
			return err
		}
		if minute, err = b.quietMinute(ctx, brokenMin, "a minute with one broken node"); err != nil {
			return err
		}
		return b.recover(ctx, 1)
	})
	minute.Tallies = append(minute.Tallies, tallyOf("a node breaks, stays so for a minute and recovers", calls))
	return minute, err
}

// crash has the device plugin of so many nodes crash again and again.
func (b *bed) crash(ctx context.Context, nodes int) error {
	for i := range nodes {
		b.sim.Break(plugin, nodeName(i), simulator.CrashLoop)
		if err := b.deletePod(ctx, pluginApp, nodeName(i)); err != nil {
			return err
		}
	}
	return b.awaitDegraded(ctx, nodes)
}

// recover takes that away.
func (b *bed) recover(ctx context.Context, nodes int) error {
	for i := range nodes {
		b.sim.Heal(plugin, nodeName(i))
	}
	return b.readyAndSettled(ctx, b.size)
}

// firstNode is where a single thing happens.
var firstNode = nodeName(0)

// nodeName is the name of a node of the bed, by its number.
func nodeName(i int) string { return fmt.Sprintf("gpu-%05d", i) }

// noOp measures passes that find nothing to do: somebody labels a DaemonSet.
func noOp(ctx context.Context, b *bed) (outcome, error) {
	before, err := b.operator.scrape(ctx)
	if err != nil {
		return outcome{}, err
	}
	list := &appsv1.DaemonSetList{}
	if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return outcome{}, fmt.Errorf("list DaemonSets: %w", err)
	}
	label := func(value string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"bench.example.com/pass":%s}}}`, value)
		err := b.client.Patch(ctx, &list.Items[0], client.RawPatch(types.MergePatchType, []byte(patch)))
		if err != nil {
			return fmt.Errorf("label DaemonSet %s: %w", list.Items[0].Name, err)
		}
		return nil
	}
	calls, err := b.during(func() error {
		for i := range noOpPasses {
			if err := label(fmt.Sprintf(`"%d"`, i)); err != nil {
				return err
			}
			if err := b.awaitPasses(ctx, before.times[passes].count+uint64(i)+1); err != nil {
				return err
			}
		}
		return label("null")
	})
	if err != nil {
		return outcome{}, err
	}
	after, err := b.operator.scrape(ctx)
	pass := after.times[passes].since(before.times[passes])
	return outcome{
		Figures: []figure{
			atMost(other, fmt.Sprintf("a pass that changes nothing, mean of %d", pass.count), inMilliseconds(pass.mean()), limitsOf(b.size).pass, milliseconds),
			atMost(noOpWrites, "API writes of these passes", float64(len(calls.Writes())), 0, count),
		},
		Tallies: []tally{tallyOf(fmt.Sprintf("%d passes that change nothing", pass.count), calls)},
	}, err
}

// awaitPasses waits until the operator has made so many passes since its start.
func (b *bed) awaitPasses(ctx context.Context, passesMade uint64) error {
	return b.await(ctx, "the operator makes a pass", lookPeriod, func(ctx context.Context) (bool, string, error) {
		now, err := b.operator.scrape(ctx)
		return now.times[passes].count >= passesMade, fmt.Sprint(now.times[passes].count), err
	})
}
