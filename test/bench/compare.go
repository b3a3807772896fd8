package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// runKind is one of the ways to ready that alternate.
type runKind string

const (
	// presetFloor, F1: the operator's DaemonSets on nodes that have all labels, without an operator.
	presetFloor runKind = "F1"
	// labellingFloor, F2: the same, on nodes that a bare loop labels meanwhile.
	labellingFloor runKind = "F2"
	// operated is the operator.
	operated runKind = "ours"
)

// alternation is the order of the runs, which is repeated: what else the machine does hits all kinds alike.
var alternation = []runKind{presetFloor, labellingFloor, operated}

const (
	// watchedAfter is how long the operator's writes are counted after ready.
	watchedAfter = time.Minute
	// restWindow is how long the control plane must be at rest before a run begins: it uses restCores at most, and
	// restCoresPerNode for the lease of each node. After restLimit the run begins nevertheless.
	restWindow       = 2 * time.Second
	restLimit        = 30 * time.Second
	restCores        = 0.25
	restCoresPerNode = 0.0005
)

// sample is what one run has found.
type sample struct {
	// ready is the time to ready, and pods until all pods were Ready.
	ready, pods time.Duration
	// operator is what the operator did; nil in a floor.
	operator *operatorSample
}

// operatorSample is what the operator used from its start to ready, and its calls.
type operatorSample struct {
	cpu time.Duration
	// rss and anonymous are peaks, in bytes.
	rss, anonymous int64
	calls          cluster.Calls
	// after are the calls of the minute after ready, if watched.
	after   cluster.Calls
	watched bool
}

// compare measures floors and operator in turn. Each run has a control plane of its own: the rest of a run before, its
// garbage, its tombstones and the deletion of thousands of pods, would be in the figures of the next one, and removing
// all of it takes longer than a start.
func compare(ctx context.Context, m *measurement) (outcome, error) {
	runs := map[runKind][]sample{}
	repeats := m.repeatsAt(m.kept.Nodes)
	for i := range repeats {
		for _, kind := range alternation {
			var s sample
			err := m.onControlPlane(ctx, func(ctx context.Context, b *bed) (err error) {
				s, err = b.measure(ctx, kind, i == repeats-1)
				return err
			})
			if err != nil {
				return outcome{}, fmt.Errorf("run %d of %s: %w", i+1, kind, err)
			}
			runs[kind] = append(runs[kind], s)
			fmt.Fprintf(m.told, "%d nodes, run %d of %d, %s: ready after %.1f s\n", m.kept.Nodes, i+1, repeats, kind, s.ready.Seconds())
		}
	}
	return compared(m.stages, m.kept.Nodes, runs), nil
}

// measure makes one run. Nodes, watches and the operator are there and at rest before it begins.
func (b *bed) measure(ctx context.Context, kind runKind, after bool) (sample, error) {
	work, err := b.addFloorNodes(ctx, kind == presetFloor)
	if err != nil {
		return sample{}, err
	}
	var daemonSets, others []client.Object
	var names []string
	for _, object := range work.objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "DaemonSet" {
			daemonSets, names = append(daemonSets, object), append(names, object.GetName())
		} else {
			others = append(others, object)
		}
	}
	w := newWatcher(names, b.size, kind == operated)
	if err := w.start(ctx, b.cluster.SimulatorConfig); err != nil {
		return sample{}, err
	}
	if kind == operated {
		return b.measureOperator(ctx, w, after)
	}
	for _, object := range others {
		if err := b.create(ctx, object); err != nil {
			return sample{}, err
		}
	}
	if err := b.awaitRest(ctx); err != nil {
		return sample{}, err
	}
	begin := time.Now()
	group, grouped := errgroup.WithContext(ctx)
	group.Go(func() error { return b.labelAll(grouped, work) })
	for _, object := range daemonSets {
		group.Go(func() error { return b.create(grouped, object) })
	}
	if err := group.Wait(); err != nil {
		return sample{}, err
	}
	return b.awaitWatched(ctx, w, begin)
}

// measureOperator measures from the creation of the policy on.
func (b *bed) measureOperator(ctx context.Context, w *watcher, after bool) (sample, error) {
	wanted, err := policy()
	if err != nil {
		return sample{}, err
	}
	mark, err := b.cluster.Mark()
	if err != nil {
		return sample{}, err
	}
	if err := b.startOperator(ctx); err != nil {
		return sample{}, err
	}
	if err := b.awaitRest(ctx); err != nil {
		return sample{}, err
	}
	begin := time.Now()
	if err := b.create(ctx, wanted); err != nil {
		return sample{}, err
	}
	s, err := b.awaitWatched(ctx, w, begin)
	if err != nil {
		return sample{}, err
	}
	usage, anonymous, err := b.operator.usage()
	if err != nil {
		return sample{}, err
	}
	o := &operatorSample{cpu: usage.CPU, rss: usage.PeakRSS, anonymous: anonymous, watched: after}
	s.operator = o
	if err := b.sameDaemonSets(ctx, w.daemonSets); err != nil {
		return sample{}, err
	}
	ready := begin.Add(s.ready)
	if after {
		if err := pause(ctx, time.Until(ready.Add(watchedAfter))); err != nil {
			return sample{}, err
		}
	}
	calls, err := b.callsSince(mark)
	o.calls, o.after = splitCalls(calls, ready)
	return s, err
}

// splitCalls parts calls into those that had ended by a moment and the later ones.
func splitCalls(calls cluster.Calls, moment time.Time) (until, after cluster.Calls) {
	for _, call := range calls {
		if call.Time.After(moment) {
			after = append(after, call)
		} else {
			until = append(until, call)
		}
	}
	return until, after
}

// writesOf counts writes, Events included; renewals of Leases are none.
func writesOf(calls cluster.Calls) int { return len(calls.Writes()) + len(calls.Events()) }

// awaitWatched waits until the watcher has seen that all is ready, and returns how long it took.
func (b *bed) awaitWatched(ctx context.Context, w *watcher, begin time.Time) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	var ended <-chan struct{}
	if b.operator != nil {
		ended = b.operator.process.Done()
	}
	select {
	case <-w.ready:
		pods, all := w.moments()
		return sample{ready: all.Sub(begin), pods: pods.Sub(begin)}, nil
	case <-ended:
		return sample{}, fmt.Errorf("the operator has ended, see its log %s: %w", b.operator.process.LogFile, b.operator.process.Wait())
	case <-ctx.Done():
		return sample{}, fmt.Errorf("wait until all is ready: %w; last seen: %s", context.Cause(ctx), w.state())
	}
}

// awaitRest waits until nothing that this program has started is at work, for restLimit at most: on a slow machine the
// upkeep of many nodes alone takes more.
func (b *bed) awaitRest(ctx context.Context) error {
	before, err := cluster.ChildrenCPU()
	if err != nil {
		return err
	}
	begin, since := time.Now(), time.Now()
	if err := pause(ctx, restWindow); err != nil {
		return err
	}
	return b.await(ctx, "the control plane is at rest", restWindow, func(context.Context) (bool, string, error) {
		used, err := cluster.ChildrenCPU()
		if err != nil {
			return false, "", err
		}
		cores := (used - before).Seconds() / time.Since(since).Seconds()
		before, since = used, time.Now()
		rests := cores <= restCores+restCoresPerNode*float64(b.size) || time.Since(begin) > restLimit
		return rests, fmt.Sprintf("%.2f cores in use", cores), nil
	})
}

// sameDaemonSets fails where the operator has made other DaemonSets than the floor, which would then be none.
func (b *bed) sameDaemonSets(ctx context.Context, want []string) error {
	list := &appsv1.DaemonSetList{}
	if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	var got []string
	for i := range list.Items {
		got = append(got, list.Items[i].Name)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("the operator has other DaemonSets than the floor: %s instead of %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	return nil
}
