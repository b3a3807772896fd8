package otheroperator

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/requeue"
)

// Timing has the intervals of a Watcher; tests shorten them.
type Timing struct {
	// Interval is the time before pods are listed again after a watch of them has failed, and while there are pods that
	// look like NVIDIA's operator, but may not write: they may get the right. FoundInterval is that between two lists
	// while NVIDIA's operator is found.
	Interval, FoundInterval time.Duration
	// Gone is how long no pod must be found before NVIDIA's operator counts as gone: a Deployment replaces its pods.
	Gone time.Duration
	// Quiet is how long a write of NVIDIA's operator counts without a pod.
	Quiet time.Duration
	// Deadline bounds one call.
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
	Live client.Reader
	// Reviews asks the API server what the accounts of pods may do.
	Reviews Reviews
	Clock   clock.Clock
	// Watch watches objects of the API server. Only Start uses it.
	Watch func(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error)
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
	// version is the resource version of the last list, from which pods are watched.
	version string
	// found is the pod that was last found, nil for none, and seen when that was.
	found *running
	seen  time.Time
	// failed: the last list failed. Only the first of several failures is logged.
	failed bool
	// answers are those about the accounts of pods in the last list that look like NVIDIA's operator.
	answers map[account]answer
	writes  writes
}

var _ manager.LeaderElectionRunnable = (*Watcher)(nil)

// New returns a Watcher.
func New(options Options) *Watcher { return &Watcher{Options: options, changed: notify.New()} }

// Events has an event when the result of Track changes because of pods. It has one receiver.
func (w *Watcher) Events() <-chan event.GenericEvent { return w.changed.Events() }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start lists pods, and again after each change of them, until the context ends. It implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	// relisted is when a list has last followed the error of a watch without a delay. An API server may answer each
	// watch with an error.
	var relisted time.Time
	for ctx.Err() == nil {
		err := w.refresh(ctx)
		w.logFailure(ctx, err)
		if err != nil || w.isFound() {
			// Its pods count for some time after their end, which is no event.
			requeue.Sleep(ctx, w.Clock, w.Timing.FoundInterval)
			continue
		}
		switch outcome := w.awaitChange(ctx); {
		case outcome == changed:
		case outcome == expired && w.Clock.Since(relisted) >= w.Timing.Interval:
			relisted = w.Clock.Now()
		default:
			requeue.Sleep(ctx, w.Clock, w.Timing.Interval)
		}
	}
	return nil
}

// outcome is why a watch is over.
type outcome int

const (
	ended   outcome = iota // by the API server or by a call that failed
	changed                // pods are to be listed
	expired                // by an error event: it cannot be resumed, and changes may be missing
)

// awaitChange watches pods until one that may be NVIDIA's operator changes, or the watch must begin with a list again.
// At rest the watch costs nothing: the API server ends it now and then, and it is resumed.
func (w *Watcher) awaitChange(ctx context.Context) outcome {
	w.mu.Lock()
	since := w.version
	var again <-chan time.Time
	if len(w.answers) > 0 {
		again = w.Clock.After(w.Timing.Interval)
	}
	w.mu.Unlock()
	for {
		began := w.Clock.Now()
		pods, err := w.Watch(ctx, &corev1.PodList{}, selector(),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: since, AllowWatchBookmarks: true}})
		if err != nil {
			return ended
		}
		next, over := w.nextEvent(ctx, pods, since, again)
		pods.Stop()
		if over != ended || ctx.Err() != nil || w.Clock.Since(began) < time.Second {
			return over
		}
		since = next
	}
}

// nextEvent waits for the first event that matters, the time of the next list, or the end of the watch. version is that
// from which the watch can be resumed.
func (w *Watcher) nextEvent(
	ctx context.Context, pods watch.Interface, since string, again <-chan time.Time,
) (version string, over outcome) {
	for {
		select {
		case <-ctx.Done():
			return since, ended
		case <-again:
			return since, changed
		case event, open := <-pods.ResultChan():
			pod, isPod := event.Object.(*corev1.Pod)
			switch {
			case !open:
				return since, ended
			case !isPod:
				return since, expired
			case w.matters(event.Type, pod):
				return since, changed
			}
			since = pod.ResourceVersion
		}
	}
}

// matters reports whether a change of the pod may be the begin of NVIDIA's operator. Only while none is found are pods
// watched, so that no deletion is its end.
func (w *Watcher) matters(change watch.EventType, pod *corev1.Pod) bool {
	if change == watch.Bookmark || change == watch.Deleted || w.candidate(pod) == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.answers[accountOf(pod)]
	return !known || !w.isFresh(last)
}

func (w *Watcher) isFound() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found != nil
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

// Track notes what NVIDIA's operator writes, and returns what of it is at work, nil for nothing. daemonSets are those
// of the operator's namespace. It fails only if pods could never be listed.
func (w *Watcher) Track(ctx context.Context, daemonSets map[string]*appsv1.DaemonSet) (*Finding, error) {
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
	found, version, err := w.find(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.found, w.Clock.Now()
	w.listed, w.version = true, version
	switch {
	case found != nil:
		w.found, w.seen = found, now
	case before == nil || now.Sub(w.seen) >= w.Timing.Gone:
		w.found = nil
	}
	w.report(ctx, before)
	return nil
}

// find returns a pod that runs NVIDIA's operator, nil for none. It first looks where the last one was: a list of one
// namespace costs the API server little.
func (w *Watcher) find(ctx context.Context) (found *running, version string, err error) {
	w.mu.Lock()
	last := w.found
	w.mu.Unlock()
	if last != nil {
		if found, version, err = w.list(ctx, last.namespace); err != nil || found != nil {
			return found, version, err
		}
	}
	return w.list(ctx, "")
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
