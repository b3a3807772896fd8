package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// manyJoin is how many nodes join simultaneously.
	manyJoin = 100
	// parallel is how many concurrent requests this program makes.
	parallel = 16
)

// podLost measures the cost of a deleted pod: one that few others depend on, and the driver.
func podLost(ctx context.Context, e *env) (outcome, error) {
	out := outcome{}
	for _, lost := range []struct{ app, node string }{
		{pluginApp, firstNode},
		// The simulator does not evict the other operands when a driver is replaced, so their validations are stale from
		// then on: no other phase uses this node.
		{driverApp, nodeName(e.size - 1)},
	} {
		calls, err := e.during(func() error {
			if err := e.deletePod(ctx, lost.app, lost.node); err != nil {
				return err
			}
			if err := e.awaitPod(ctx, lost.app, lost.node); err != nil {
				return err
			}
			return e.readyAndSettled(ctx, e.size)
		})
		if err != nil {
			return outcome{}, err
		}
		what := "a pod of " + lost.app + " is deleted"
		out.Figures = append(out.Figures,
			atMost("API writes when "+what, float64(len(calls.Writes())), podWrites, count))
		out.Tallies = append(out.Tallies, tallyOf(what, calls))
	}
	return out, nil
}

// labelled measures a label that the operator ignores, and one that temporarily removes an operand from a node.
func labelled(ctx context.Context, e *env) (outcome, error) {
	unrelated, err := e.during(func() error {
		return e.labelAndSettle(ctx, "bench.example.com/label", "1")
	})
	if err != nil {
		return outcome{}, err
	}
	off := labels.DeployPrefix + "dcgm-exporter"
	optOut, err := e.during(func() error {
		if err := e.labelAndSettle(ctx, off, labels.False); err != nil {
			return err
		}
		return e.labelAndSettle(ctx, off, labels.True)
	})
	return outcome{
		Figures: []figure{atMost("API writes when a label of a node changes that the operator ignores",
			float64(len(unrelated.Writes())), 0, count)},
		Tallies: []tally{
			tallyOf("a label of a node changes that the operator ignores", unrelated),
			tallyOf("a label removes dcgm-exporter from a node and re-admits it", optOut),
		},
	}, err
}

// labelAndSettle labels the first node and waits until the operator is at rest.
func (e *env) labelAndSettle(ctx context.Context, key, value string) error {
	if err := e.labelNode(ctx, firstNode, map[string]any{key: value}); err != nil {
		return err
	}
	return e.settle(ctx)
}

// labelNode sets labels of a node; nil removes a label.
func (e *env) labelNode(ctx context.Context, name string, values map[string]any) error {
	return e.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		map[string]any{"metadata": map[string]any{"labels": values}})
}

// join measures a joining node, and its removal.
func join(ctx context.Context, e *env) (outcome, error) {
	var added, handled time.Time
	name := ""
	calls, err := e.during(func() (err error) {
		if name, err = e.sim.AddNode(ctx, simulator.NodeSpec{}); err != nil {
			return err
		}
		added = time.Now()
		return e.readyAndSettled(ctx, e.size+1)
	})
	if err != nil {
		return outcome{}, err
	}
	for _, call := range calls.Writes().Of("nodes") {
		if call.Name == name && handled.IsZero() {
			handled = call.Time
		}
	}
	removal, err := e.during(func() error { return e.removeNodes(ctx, []string{name}) })
	return outcome{
		Figures: []figure{
			joinWrites(calls),
			atMost("from its labels until a node that joins is labelled", max(0, handled.Sub(added).Seconds()),
				joinSeconds, hundredths),
		},
		Tallies: []tally{tallyOf("one node joins", calls), tallyOf("that node is removed", removal)},
	}, err
}

// joinWrites compares each type of write for a joining node with its goal.
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
		What:     "API writes when one node joins",
		Goal:     fmt.Sprintf("at most %d labels, %d conditions, %d policy status", joinLabels, joinConditions, joinStatus),
		Met:      inLabels <= joinLabels && inConditions <= joinConditions && inStatus <= joinStatus && beside == 0,
		Measured: fmt.Sprintf("%d: %d, %d, %d", len(calls.Writes()), inLabels, inConditions, inStatus),
	}
}

// joins measures many nodes that join simultaneously.
func joins(ctx context.Context, e *env) (outcome, error) {
	var names []string
	begin := time.Now()
	took := time.Duration(0)
	calls, err := e.during(func() (err error) {
		if names, err = e.sim.AddNodes(ctx, manyJoin); err != nil {
			return err
		}
		if err := e.awaitReady(ctx, e.size+manyJoin); err != nil {
			return err
		}
		took = time.Since(begin)
		return e.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	what := fmt.Sprintf("%d nodes join simultaneously", manyJoin)
	removal, err := e.during(func() error { return e.removeNodes(ctx, names) })
	return outcome{
		Figures: []figure{
			atMost("API writes when "+what, float64(len(calls.Writes())), writesPerNode*manyJoin+joinBeside, count),
			plain(other, "until all is ready when "+what, took.Seconds(), seconds),
		},
		Tallies: []tally{tallyOf(what, calls), tallyOf(fmt.Sprintf("%d nodes are removed", manyJoin), removal)},
	}, err
}

// removeNodes deletes nodes that have joined.
func (e *env) removeNodes(ctx context.Context, names []string) error {
	if err := e.deleteNodes(ctx, names); err != nil {
		return err
	}
	return e.readyAndSettled(ctx, e.size)
}

func (e *env) deleteNodes(ctx context.Context, names []string) error {
	return inParallel(ctx, parallel, names, func(ctx context.Context, name string) error {
		if err := e.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("delete node %s: %w", name, err)
		}
		return nil
	})
}

// inParallel calls a function for each node, with limited concurrency.
func inParallel(
	ctx context.Context, workers int, names []string, do func(ctx context.Context, name string) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, name := range names {
		group.Go(func() error { return do(ctx, name) })
	}
	return group.Wait()
}
