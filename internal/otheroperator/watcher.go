package otheroperator

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterpolicy/gpu-operator/internal/notify"
)

// Timing has the intervals of a Watcher; tests shorten them.
type Timing struct {
	// Interval is the time between two lists of pods, and FoundInterval that while NVIDIA's operator is found.
	Interval, FoundInterval time.Duration
	// Gone is how long no pod must be found before NVIDIA's operator counts as gone: a Deployment replaces its pods.
	Gone time.Duration
	// Quiet is how long a write of NVIDIA's operator counts without a pod.
	Quiet time.Duration
	// Deadline bounds one list.
	Deadline time.Duration
}

// DefaultTiming returns the values for production.
func DefaultTiming() Timing {
	return Timing{
		Interval: 30 * time.Second, FoundInterval: 5 * time.Second, Gone: 10 * time.Second, Quiet: 10 * time.Minute,
		Deadline: 5 * time.Second,
	}
}

// Options configure a Watcher.
type Options struct {
	// Live reads from the API server.
	Live  client.Reader
	Clock clock.Clock
	// Namespace is that of this operator.
	Namespace string
	// OwnVariable is an environment variable that containers of this operator have, and those of NVIDIA's do not.
	OwnVariable string
	Timing      Timing
}

// Finding describes NVIDIA's operator at work.
type Finding struct {
	// Key differs for each one that is found.
	Key string
	// Message is for users, with the remedy.
	Message string
	// RecheckAfter is when the finding ends without an event; 0 for never.
	RecheckAfter time.Duration
}

// Watcher finds NVIDIA's operator. A manager must run Start, on every replica: the logs of those that do not lead
// report it, too. What it remembers may be lost.
type Watcher struct {
	Options
	changed notify.Signal

	// listing serializes lists; mu guards what follows.
	listing sync.Mutex
	mu      sync.Mutex
	listed  bool
	// found is the pod that was last found, nil for none, and seen when that was.
	found *running
	seen  time.Time
	// failed: the last list failed. Only the first of several failures is logged.
	failed bool
	writes writes
}

var _ manager.LeaderElectionRunnable = (*Watcher)(nil)

// New returns a Watcher.
func New(options Options) *Watcher { return &Watcher{Options: options, changed: notify.New()} }

// Events has an event when the result of Check changes because of pods. It has one receiver.
func (w *Watcher) Events() <-chan event.GenericEvent { return w.changed.Events() }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start lists pods until the context ends. It implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	for {
		w.logFailure(ctx, w.refresh(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-w.Clock.After(w.interval()):
		}
	}
}

func (w *Watcher) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found != nil || !w.listed {
		return w.Timing.FoundInterval
	}
	return w.Timing.Interval
}

// logFailure logs the first of several failures. What was found last counts meanwhile.
func (w *Watcher) logFailure(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !w.failed && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "Failed to check whether NVIDIA's operator runs; retrying")
	}
	w.failed = err != nil
}

// Check returns what of NVIDIA's operator is at work, nil for nothing. daemonSets are those of the operator's
// namespace. It fails only if pods could never be listed.
func (w *Watcher) Check(ctx context.Context, daemonSets map[string]*appsv1.DaemonSet) (*Finding, error) {
	if err := w.ensureListed(ctx); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Clock.Now()
	w.writes.note(daemonSets, w.found != nil, now)
	if w.found != nil {
		return &Finding{Key: string(w.found.uid), Message: w.found.message()}, nil
	}
	left := w.Timing.Quiet - now.Sub(w.writes.at)
	if w.writes.last == "" || left <= 0 {
		return nil, nil
	}
	return &Finding{
		Key:     fmt.Sprintf("%s %s", w.writes.last, w.writes.at.UTC().Format(time.RFC3339)),
		Message: w.writes.message(w.Namespace, w.Timing.Quiet), RecheckAfter: left,
	}, nil
}

// ensureListed lists pods if that has never succeeded.
func (w *Watcher) ensureListed(ctx context.Context) error {
	w.mu.Lock()
	listed := w.listed
	w.mu.Unlock()
	if listed {
		return nil
	}
	return w.refresh(ctx)
}

// refresh lists pods and stores what is found.
func (w *Watcher) refresh(ctx context.Context) error {
	w.listing.Lock()
	defer w.listing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.Timing.Deadline)
	defer cancel()
	found, err := w.list(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.found, w.Clock.Now()
	w.listed = true
	switch {
	case found != nil:
		w.found, w.seen = found, now
	case before == nil || now.Sub(w.seen) >= w.Timing.Gone:
		w.found = nil
	}
	w.report(ctx, before)
	return nil
}

// report logs a change of what is found, and notifies.
func (w *Watcher) report(ctx context.Context, before *running) {
	switch {
	case before == nil && w.found == nil, before != nil && w.found != nil && before.uid == w.found.uid:
		return
	case w.found == nil:
		log.FromContext(ctx).Info("NVIDIA's operator is gone", "namespace", before.namespace, "pod", before.pod)
	default:
		log.FromContext(ctx).Info("NVIDIA's operator is running in the cluster, so this one changes nothing",
			"namespace", w.found.namespace, "pod", w.found.pod, "image", w.found.image)
	}
	w.changed.Notify()
}
