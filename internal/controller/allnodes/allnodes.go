// Package allnodes has what the controllers share whose passes concern all nodes: what starts a pass, when it may read
// the cluster, which nodes it leaves alone, and when the next one is due.
package allnodes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

// Delays of a controller. Tests shorten them.
type Delays struct {
	// Debounce is the delay between an event and the pass. DebouncePerNode is added for each starting node, up to
	// MaxDebounce: they change all the time, and a pass has nothing to do for them.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// Assessment is how long a pass waits until all nodes are assessed by a new Basis. Afterwards only nodes that are not
	// assessed yet have to wait.
	Assessment time.Duration
	// RetryStale is the delay after a conflict, or while the cache does not show the last write to a Node.
	RetryStale time.Duration
	// FirstRetry and LastRetry bound the back-off after a failed call, for one node or for the pass.
	FirstRetry, LastRetry time.Duration
}

// DefaultDelays returns the delays for production.
func DefaultDelays() Delays {
	return Delays{
		Debounce: 200 * time.Millisecond, DebouncePerNode: 2 * time.Millisecond, MaxDebounce: 3 * time.Second,
		Assessment: 10 * time.Second, RetryStale: time.Second, FirstRetry: time.Second, LastRetry: 30 * time.Second,
	}
}

// Debounced enqueues a pass for any event, after the debounce time.
func (d *Delays) Debounced(of *fleet.Fleet) handler.EventHandler {
	return requeue.EnqueueAfter(
		func(client.Object) time.Duration {
			return min(d.Debounce+time.Duration(of.Starting())*d.DebouncePerNode, d.MaxDebounce)
		},
		func(client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "nodes"}}}
		},
	)
}

// Options are those of the controller.
func (d *Delays) Options() controller.Options {
	return controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](d.FirstRetry, d.LastRetry),
	}
}

// Pass is one pass.
type Pass struct {
	*Delays
	Now   time.Time
	Basis *fleet.Basis
	// next is the time until the next pass without an event; 0 for none.
	next time.Duration
}

// Begin begins a pass.
func (d *Delays) Begin(of *fleet.Fleet, now time.Time) Pass {
	return Pass{Delays: d, Now: now, Basis: of.Basis()}
}

// IsDue reports whether the cluster is known well enough to be read. It is not while a node has no entry (hydrated is
// false), before the first pass of the policy, while NVIDIA's operator is at work, and for a while after a new Basis
// until it has assessed all of these nodes.
func (p *Pass) IsDue(hydrated bool, nodes []*fleet.Entry) bool {
	if !hydrated || p.Basis == nil || p.Basis.Decisions == nil && p.Basis.KeepNodes {
		return false
	}
	isUnassessed := func(entry *fleet.Entry) bool { return entry.Managed() && entry.BasisVersion != p.Basis.Version }
	left := p.Assessment - p.Now.Sub(p.Basis.Since)
	if p.Basis.Decisions == nil || left <= 0 || !slices.ContainsFunc(nodes, isUnassessed) {
		return true
	}
	p.RequeueAfter(left)
	return false
}

// Hold reports whether no step may be carried out for a node now: it is not assessed by the current Basis, or what was
// read does not have the last write to it, or a call for it has just failed. entry is nil for a node that the operator
// does not manage. It forgets a write that was read.
func (p *Pass) Hold(node *corev1.Node, entry *fleet.Entry, writes freshness.Writes, backoff time.Duration) bool {
	if entry != nil && p.Basis.Decisions != nil && entry.BasisVersion != p.Basis.Version {
		return true
	}
	held, recheck := writes.Held(node.Name, node.ResourceVersion, p.RetryStale, backoff)
	writes.Forget(node.Name, node.ResourceVersion)
	p.RequeueAfter(recheck)
	return held
}

// RequeueAfter schedules the next pass after this time at the latest; 0 is ignored.
func (p *Pass) RequeueAfter(wait time.Duration) { p.next = requeue.MinDelay(p.next, wait) }

// Result ends the pass. The plan holds until a time; zero for no time.
func (p *Pass) Result(until time.Time) (reconcile.Result, error) {
	if !until.IsZero() {
		p.RequeueAfter(max(until.Sub(p.Now), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: p.next}, nil
}
