package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// manyJoin is how many nodes join at once.
	manyJoin = 100
	// parallel is how many requests this program makes at a time.
	parallel = 16
)

// podLost measures what a pod costs that is deleted: one that little depends on, and the driver.
func podLost(ctx context.Context, b *bed) (outcome, error) {
	out := outcome{}
	for _, lost := range []struct{ app, node string }{
		{pluginApp, firstNode},
		// The simulator does not play what evicts the other operands when a driver is replaced, so that what is proven
		// there is out of date from then on: no other phase uses this node.
		{driverApp, nodeName(b.size - 1)},
	} {
		calls, err := b.during(func() error {
			if err := b.deletePod(ctx, lost.app, lost.node); err != nil {
				return err
			}
			if err := b.awaitPod(ctx, lost.app, lost.node); err != nil {
				return err
			}
			return b.readyAndSettled(ctx, b.size)
		})
		if err != nil {
			return outcome{}, err
		}
		what := "a pod of " + lost.app + " is deleted"
		out.Figures = append(out.Figures, atMost(podLoss, "API writes when "+what, float64(len(calls.Writes())), podWrites, count))
		out.Tallies = append(out.Tallies, tallyOf(what, calls))
	}
	return out, nil
}

// labelled measures a label that means nothing to the operator, and one that takes an operand off a node for a while.
func labelled(ctx context.Context, b *bed) (outcome, error) {
	unrelated, err := b.during(func() error {
		return b.labelAndSettle(ctx, "bench.example.com/label", "1")
	})
	if err != nil {
		return outcome{}, err
	}
	off := labels.DeployPrefix + "dcgm-exporter"
	optOut, err := b.during(func() error {
		if err := b.labelAndSettle(ctx, off, labels.False); err != nil {
			return err
		}
		return b.labelAndSettle(ctx, off, labels.True)
	})
	return outcome{
		Figures: []figure{atMost(other, "API writes when a label of a node changes that means nothing", float64(len(unrelated.Writes())), 0, count)},
		Tallies: []tally{
			tallyOf("a label of a node changes that means nothing", unrelated),
			tallyOf("a label takes dcgm-exporter off a node and lets it back", optOut),
		},
	}, err
}

// labelAndSettle labels the first node and waits until all has been told.
func (b *bed) labelAndSettle(ctx context.Context, key, value string) error {
	if err := b.labelNode(ctx, firstNode, map[string]any{key: value}); err != nil {
		return err
	}
	return b.settle(ctx)
}

// labelNode sets labels of a node; a nil removes one.
func (b *bed) labelNode(ctx context.Context, name string, values map[string]any) error {
	return b.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, map[string]any{"metadata": map[string]any{"labels": values}})
}

// join measures one node that joins, and its removal.
func join(ctx context.Context, b *bed) (outcome, error) {
	var added, handled time.Time
	name := ""
	calls, err := b.during(func() (err error) {
		if name, err = b.sim.AddNode(ctx, simulator.NodeSpec{}); err != nil {
			return err
		}
		added = time.Now()
		return b.readyAndSettled(ctx, b.size+1)
	})
	if err != nil {
		return outcome{}, err
	}
	for _, call := range calls.Writes().Of("nodes") {
		if call.Name == name && handled.IsZero() {
			handled = call.Time
		}
	}
	removal, err := b.during(func() error { return b.removeNodes(ctx, []string{name}) })
	return outcome{
		Figures: []figure{
			joinWrites(calls),
			atMost(other, "from its labels until a node that joins is labelled", max(0, handled.Sub(added).Seconds()), joinSeconds, hundredths),
		},
		Tallies: []tally{tallyOf("one node joins", calls), tallyOf("that node is removed", removal)},
	}, err
}

// joinWrites judges each kind of write that a node may cost that joins.
func joinWrites(calls cluster.Calls) figure {
	var inLabels, inConditions, inStatus, beside int
	for _, call := range calls.Writes() {
		switch {
		case call.Resource == "nodes" && call.Subresource == "":
			inLabels++
		case call.Resource == "nodes":
			inConditions++
		case call.Resource == "clusterpolicies":
			inStatus++
		default:
			beside++
		}
	}
	return figure{
		Name: nodeJoin, What: "API writes when one node joins",
		Goal:     fmt.Sprintf("at most %d labels, %d conditions, %d policy status", joinLabels, joinConditions, joinStatus),
		Met:      inLabels <= joinLabels && inConditions <= joinConditions && inStatus <= joinStatus && beside == 0,
		Measured: fmt.Sprintf("%d: %d, %d, %d", len(calls.Writes()), inLabels, inConditions, inStatus),
	}
}

// joins measures many nodes that join at once.
func joins(ctx context.Context, b *bed) (outcome, error) {
	var names []string
	begin := time.Now()
	took := time.Duration(0)
	calls, err := b.during(func() (err error) {
		if names, err = b.sim.AddNodes(ctx, manyJoin); err != nil {
			return err
		}
		if err := b.awaitReady(ctx, b.size+manyJoin); err != nil {
			return err
		}
		took = time.Since(begin)
		return b.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	what := fmt.Sprintf("%d nodes join at once", manyJoin)
	removal, err := b.during(func() error { return b.removeNodes(ctx, names) })
	return outcome{
		Figures: []figure{
			atMost(other, "API writes when "+what, float64(len(calls.Writes())), writesPerNode*manyJoin+joinBeside, count),
			plain(other, "until all is ready when "+what, took.Seconds(), seconds),
		},
		Tallies: []tally{tallyOf(what, calls), tallyOf(fmt.Sprintf("%d nodes are removed", manyJoin), removal)},
	}, err
}

// removeNodes deletes nodes that have joined.
func (b *bed) removeNodes(ctx context.Context, names []string) error {
	err := inParallel(ctx, parallel, names, func(ctx context.Context, name string) error {
		if err := b.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("delete node %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.readyAndSettled(ctx, b.size)
}

// inParallel does something to many nodes, so many at a time.
func inParallel(ctx context.Context, workers int, names []string, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, name := range names {
		group.Go(func() error { return do(ctx, name) })
	}
	return group.Wait()
}
