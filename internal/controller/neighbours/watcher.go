package neighbours

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// pageSize is the number of pods that are read at a time: each may have 1.5 MB, the limit of the API server.
const pageSize = 25

// Options configure a Watcher.
type Options struct {
	// Live reads from the API server: the caches have the operands' pods only.
	Live client.Reader
	// Fleet says whether there are GPU nodes, and gets what is found.
	Fleet *fleet.Fleet
	// Namespace is that of the operator.
	Namespace string
	Clock     clock.Clock
	Timing    Timing
}

// Watcher looks for neighbours. A manager must run Start, on the leader.
type Watcher struct {
	Options
	// failed: the last look failed. Only the first of several failures is logged.
	failed bool
	// next is when the next look is due, unless it is earlier because of what was found.
	next time.Time
	// last is what was found in the last look, without what was kept of the one before; nil before the first.
	last neighbour.OnNodes
}

var _ manager.LeaderElectionRunnable = (*Watcher)(nil)

// New returns a Watcher.
func New(options Options) *Watcher { return &Watcher{Options: options} }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *Watcher) NeedLeaderElection() bool { return true }

// Start looks for neighbours until the context ends. It implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	selectors, err := neighbour.Selectors()
	if err != nil {
		return fmt.Errorf("selecting the pods of neighbours: %w", err)
	}
	for ctx.Err() == nil {
		requeue.Sleep(ctx, w.Clock, w.step(ctx, selectors))
	}
	return nil
}

// step looks for neighbours if a look is due, and returns after how long to check that again. After a failure, what was
// found last stays.
func (w *Watcher) step(ctx context.Context, selectors []k8slabels.Selector) time.Duration {
	if !w.Fleet.HasGPUNodes() {
		return w.Timing.Idle
	}
	now := w.Clock.Now()
	if now.Before(w.next) && !w.Fleet.ReportsNeighbours() {
		return w.Timing.FoundInterval
	}
	found, err := w.look(ctx, selectors)
	if err != nil && !w.failed && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "Failed to look for other device plugins and exporters on GPU nodes; retrying")
	}
	w.failed = err != nil
	if err == nil {
		w.Fleet.SetNeighbours(w.keepUpdated(found))
		w.next = now.Add(jittered(w.Timing.Interval))
	}
	return jittered(w.Timing.FoundInterval)
}

// keepUpdated returns what was found in this look, with the DRA drivers of the last one: a driver is gone only after
// two looks without it. A single one may come between two of its pods, as during an update, and the GPUs that only it
// offers would count as offered by nothing for as long as until the next look.
func (w *Watcher) keepUpdated(found neighbour.OnNodes) neighbour.OnNodes {
	kept := maps.Clone(found)
	for node := range kept {
		kept[node] = slices.Clone(kept[node])
	}
	kept.AddMissing(neighbour.DRADriver, w.last)
	w.last = found
	return kept
}

// look returns the neighbours on all nodes.
func (w *Watcher) look(ctx context.Context, selectors []k8slabels.Selector) (neighbour.OnNodes, error) {
	found := neighbour.OnNodes{}
	for _, selector := range selectors {
		if err := w.addListed(ctx, selector, found); err != nil {
			return nil, fmt.Errorf("listing pods with %s: %w", selector, err)
		}
	}
	return found, nil
}

// addListed adds the neighbours among the pods that the selector selects. It names no resource version: with one of 0
// the API server answers with all pods at once, whatever the limit, and a tenant can create many large ones.
func (w *Watcher) addListed(ctx context.Context, selector k8slabels.Selector, found neighbour.OnNodes) error {
	options := &client.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		pods, err := w.page(ctx, options)
		if err != nil {
			return err
		}
		for i := range pods.Items {
			found.Add(&pods.Items[i], w.Namespace)
		}
		if pods.Continue == "" {
			return nil
		}
		options.Continue = pods.Continue
	}
}

// page reads a page of pods.
func (w *Watcher) page(ctx context.Context, options *client.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timing.Deadline)
	defer cancel()
	pods := &corev1.PodList{}
	return pods, w.Live.List(ctx, pods, options)
}

// jittered returns the period with up to a tenth added.
func jittered(period time.Duration) time.Duration {
	return period + time.Duration(rand.Float64()*float64(period)/10) //nolint:gosec // spreads load, nothing secret
}
