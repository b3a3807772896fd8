package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// runKind is one of the types of runs that alternate.
type runKind string

const (
	// presetFloor, F1: the operator's DaemonSets on nodes with all labels, without an operator.
	presetFloor runKind = "F1"
	// labellingFloor, F2: the same, on nodes that a plain loop labels meanwhile.
	labellingFloor runKind = "F2"
	// operated is the operator.
	operated runKind = "ours"
	// otherOperated is another operator.
	otherOperated runKind = "other"
)

// alternation returns the repeated order of the runs, so that other load on the machine affects all types alike.
func alternation(other bool) []runKind {
	if other {
		return []runKind{presetFloor, operated, otherOperated}
	}
	return []runKind{presetFloor, labellingFloor, operated}
}

const (
	// watchedAfter is how long the operator's writes are counted after it is ready.
	watchedAfter = time.Minute
	// steadyFor is how long everything must stay ready for the end of a run to count.
	steadyFor = 5 * time.Second
	// restWindow is how long the control plane must be at rest before a run begins: it uses at most restCores, plus
	// restCoresPerNode for the lease of each node. After restLimit the run begins anyway.
	restWindow       = 2 * time.Second
	restLimit        = 30 * time.Second
	restCores        = 0.25
	restCoresPerNode = 0.0005
)

// sample is the result of one run.
type sample struct {
	// ready is the time until ready, and pods the time until all pods were Ready.
	ready, pods time.Duration
	// wanted is how many pods the DaemonSets wanted.
	wanted int
	// operator is the operator's part; nil for a floor.
	operator *operatorSample
}

// operatorSample is the operator's resource usage from its start until ready, and its requests.
type operatorSample struct {
	cpu time.Duration
	// conditions is the time until the condition GPUReady of each node was True; 0 for another operator.
	conditions time.Duration
	// rss and anonymous are peaks, in bytes.
	rss, anonymous int64
	calls          cluster.Calls
	// after are the requests of the minute after ready, if watched.
	after   cluster.Calls
	watched bool
}

// compare measures floors and operator alternately. Each run has its own control plane: garbage, tombstones and the
// deletion of thousands of pods of the last run would distort the next one, and removing them takes longer than a
// start.
func compare(ctx context.Context, m *measurement) (outcome, error) {
	runs := map[runKind][]sample{}
	repeats := m.repeatsAt(m.kept.Nodes)
	for i := range repeats {
		for _, kind := range alternation(m.other.program != "") {
			var s sample
			install := installOwn
			if kind == otherOperated {
				install = installOther
			}
			err := m.onControlPlaneWith(ctx, install, func(ctx context.Context, e *env) (err error) {
				s, err = e.measure(ctx, kind, i == repeats-1)
				return err
			})
			if err != nil {
				return outcome{}, fmt.Errorf("run %d of %s: %w", i+1, kind, err)
			}
			runs[kind] = append(runs[kind], s)
			fmt.Fprintf(m.progress, "%d nodes, run %d of %d, %s: ready after %.1f s\n", m.kept.Nodes, i+1, repeats, kind,
				s.ready.Seconds())
		}
	}
	return compared(m.setting(), m.kept.Nodes, runs), nil
}

// measure does one run. Nodes, watches and the operator exist and are at rest before it begins.
func (e *env) measure(ctx context.Context, kind runKind, after bool) (sample, error) {
	work, err := e.addFloorNodes(ctx, kind == presetFloor)
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
	switch kind {
	case operated:
		s, err := e.measureOperator(ctx, contestant{policy: e.policy, account: account, start: e.startOperator}, after)
		return s, errors.Join(err, e.sameDaemonSets(ctx, names))
	case otherOperated:
		return e.measureOperator(ctx, contestant{policy: e.other.policy, account: otherAccount, start: e.startOther}, after)
	}
	w := newWatcher(e.size, names)
	if err := w.start(ctx, e.cluster.SimulatorConfig); err != nil {
		return sample{}, err
	}
	for _, object := range others {
		if err := e.create(ctx, object); err != nil {
			return sample{}, err
		}
	}
	if err := e.awaitRest(ctx); err != nil {
		return sample{}, err
	}
	begin := time.Now()
	group, grouped := errgroup.WithContext(ctx)
	group.Go(func() error { return e.labelAll(grouped, work) })
	for _, object := range daemonSets {
		group.Go(func() error { return e.create(grouped, object) })
	}
	if err := group.Wait(); err != nil {
		return sample{}, err
	}
	s, err := e.awaitWatched(ctx, w, begin)
	return s, errors.Join(err, e.steady(ctx, w))
}

// splitCalls splits requests into those that had completed at a time and the later ones.
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

// writesOf counts writes, including Events but not renewals of Leases.
func writesOf(calls cluster.Calls) int { return len(calls.Writes()) + len(calls.Events()) }

// awaitWatched waits until the watcher has observed that everything is ready, and returns how long it took.
func (e *env) awaitWatched(ctx context.Context, w *watcher, begin time.Time) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	var ended <-chan struct{}
	if e.operator != nil {
		ended = e.operator.process.Done()
	}
	select {
	case <-w.ready:
		pods, all := w.moments()
		wanted := 0
		for _, count := range w.wantedPods() {
			wanted += int(count)
		}
		return sample{ready: all.Sub(begin), pods: pods.Sub(begin), wanted: wanted}, nil
	case <-ended:
		return sample{}, fmt.Errorf("the operator has exited, see its log %s: %w", e.operator.process.LogFile,
			e.operator.process.Wait())
	case <-ctx.Done():
		return sample{}, fmt.Errorf("wait until everything is ready: %w; last seen: %s", context.Cause(ctx), w.state())
	}
}

// awaitRest waits until the child processes of this program are idle, for at most restLimit: on a slow machine many
// nodes alone cause more load.
func (e *env) awaitRest(ctx context.Context) error {
	before, err := cluster.ChildrenCPU()
	if err != nil {
		return err
	}
	begin, since := time.Now(), time.Now()
	if err := pause(ctx, restWindow); err != nil {
		return err
	}
	return e.await(ctx, "the control plane is at rest", restWindow, func(context.Context) (bool, string, error) {
		used, err := cluster.ChildrenCPU()
		if err != nil {
			return false, "", err
		}
		cores := (used - before).Seconds() / time.Since(since).Seconds()
		before, since = used, time.Now()
		rests := cores <= restCores+restCoresPerNode*float64(e.size) || time.Since(begin) > restLimit
		return rests, fmt.Sprintf("%.2f cores in use", cores), nil
	})
}

// sameDaemonSets fails if the operator created other DaemonSets than the floor, which would then not be comparable.
func (e *env) sameDaemonSets(ctx context.Context, want []string) error {
	list := &appsv1.DaemonSetList{}
	if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	var got []string
	for i := range list.Items {
		got = append(got, list.Items[i].Name)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("the operator has other DaemonSets than the floor: %s instead of %s", strings.Join(got, ", "),
			strings.Join(want, ", "))
	}
	return nil
}
