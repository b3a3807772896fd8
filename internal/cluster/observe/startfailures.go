package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

const (
	// firstStartCheck is how long pods must not be ready before Events are listed: a kubelet reports some failures of
	// mounts and sandboxes in each start that succeeds at the next attempt.
	firstStartCheck = 20 * time.Second
	// maxStartInterval limits the interval between two checks, which doubles each time. It is short, because a pod may
	// fail while another one recovers.
	maxStartInterval = 2 * time.Minute
	// staleStart is the age from which Events are ignored. The kubelet retries after two minutes at most.
	staleStart = 5 * time.Minute
	// maxStartEvents is the limit of one list.
	maxStartEvents = 500
)

// StartFailures finds out from Events why pods of DaemonSets do not start. Its state may be lost: it is read again
// then.
type StartFailures struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	// mutex guards what follows.
	mutex sync.Mutex
	// called: Refresh has been called.
	called bool
	// generations is the sum of those of the DaemonSets, which only grow.
	generations int64
	// unready are the pods that were not ready at the last call.
	unready shortage
	found   map[types.UID]assess.PodFailure
}

// NewStartFailures returns a StartFailures. live must read from the API server, not from a cache.
func NewStartFailures(live client.Reader, namespace string, clk clock.PassiveClock) *StartFailures {
	return &StartFailures{live: live, namespace: namespace, clock: clk}
}

// Found returns the failures of the last Refresh, by the UID of the pod.
func (f *StartFailures) Found() map[types.UID]assess.PodFailure {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.found
}

// Refresh lists the Events about pods of the namespace, in one call, if pods of DaemonSets have not been ready for some
// seconds. It returns after how long to call it again; zero if all are ready.
func (f *StartFailures) Refresh(ctx context.Context, daemonSets map[string]*appsv1.DaemonSet) (time.Duration, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	now := f.clock.Now()
	first, pods := !f.called, unreadyPods(daemonSets)
	if generations := sumOfGenerations(daemonSets); generations != f.generations {
		// What replaces the pods may fail for another reason.
		f.generations, f.unready.pods = generations, 0
	}
	f.called = true
	if pods == 0 {
		f.unready, f.found = shortage{}, nil
		return 0, nil
	}
	f.unready.update(pods, now)
	if first {
		// The operator has restarted: what it reported before may hold still.
		f.unready.next = now
	}
	var err error
	if !now.Before(f.unready.next) {
		err = f.read(ctx, now)
		f.unready.interval = min(2*f.unready.interval, maxStartInterval)
		f.unready.next = now.Add(f.unready.interval)
	}
	return f.unready.next.Sub(now), err
}

// update records the number of pods that are not ready. If it has grown, the next check is due soon.
func (s *shortage) update(pods int32, now time.Time) {
	if next := now.Add(firstStartCheck); pods > s.pods {
		s.interval = firstStartCheck
		if s.next.IsZero() || next.Before(s.next) {
			s.next = next
		}
	}
	s.pods = pods
}

// unreadyPods counts the pods of DaemonSets that exist, but are not ready.
func unreadyPods(daemonSets map[string]*appsv1.DaemonSet) int32 {
	var pods int32
	for _, ds := range daemonSets {
		if ds.DeletionTimestamp == nil {
			pods += max(ds.Status.CurrentNumberScheduled-ds.Status.NumberReady, 0)
		}
	}
	return pods
}

func sumOfGenerations(daemonSets map[string]*appsv1.DaemonSet) (sum int64) {
	for _, ds := range daemonSets {
		sum += ds.Generation
	}
	return sum
}

// read lists Events and replaces found.
func (f *StartFailures) read(ctx context.Context, now time.Time) error {
	events := &corev1.EventList{}
	err := f.live.List(ctx, events, client.InNamespace(f.namespace), client.Limit(maxStartEvents),
		client.MatchingFields{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning})
	if err != nil {
		return fmt.Errorf("listing Events of pods: %w", err)
	}
	newest := map[types.UID]*corev1.Event{}
	for i := range events.Items {
		event := &events.Items[i]
		uid, last := event.InvolvedObject.UID, assess.LastSeen(event)
		if !assess.IsStartFailure(event) || now.Sub(last) > staleStart ||
			newest[uid] != nil && last.Before(assess.LastSeen(newest[uid])) {
			continue
		}
		newest[uid] = event
	}
	f.found = make(map[types.UID]assess.PodFailure, len(newest))
	for uid, event := range newest {
		f.found[uid] = assess.StartFailure(event)
	}
	return nil
}
