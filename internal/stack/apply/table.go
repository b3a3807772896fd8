package apply

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
)

// keptRounds is after how many rounds and prunes the record of an object that is no longer applied is dropped. A pass
// makes a few, and not every object is in each.
const keptRounds = 32

// stillWaiting is what follows a call without an answer.
const stillWaiting = "still waiting: if this lasts, check the API server and its admission webhooks"

// table is the state kept between rounds, one record per object. Records may be lost at any time, as in a restart; the
// comment of each field states the cost.
type table struct {
	clock                 clock.PassiveClock
	firstRetry, lastRetry time.Duration

	mu sync.Mutex
	// round counts rounds and prunes.
	round   uint64
	records map[string]*record
}

// record is the state of one object.
type record struct {
	// round is the last one that included the object.
	round uint64
	// call is in flight; nil if none. It ends with the process.
	call *call
	// answer to the last call, while rounds return it instead of another call. Losing it costs one early call.
	answer *answer
	// inSync is the last comparison without a difference. Losing it costs a comparison.
	inSync *comparison
	// writtenVersion is the resource version of the last write, until the cache shows it. Losing it costs one early write.
	writtenVersion string
	// disowned: the operator owns no field of the object. Losing it costs a read.
	disowned bool
}

// answer is the error of a call, which rounds return until its back-off is over. One that arrives late is kept until a
// round has returned it, even without a back-off or an error.
type answer struct {
	// attempt is what was tried; other attempts are not held back.
	attempt string
	err     error
	// backoff is 0 if there is none; it ends at retryAt and starts when a round has returned the error (reported).
	backoff  time.Duration
	retryAt  time.Time
	reported bool
}

// answerTo returns the answer to the attempt, or nil. It may be called on a nil record.
func (r *record) answerTo(attempt string) *answer {
	if r == nil || r.answer == nil || r.answer.attempt != attempt {
		return nil
	}
	return r.answer
}

func newTable(clk clock.PassiveClock, firstRetry, lastRetry time.Duration) *table {
	return &table{clock: clk, firstRetry: firstRetry, lastRetry: lastRetry, records: map[string]*record{}}
}

// sweep starts a round and drops the records of objects that are no longer applied and have no call in flight.
func (t *table) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	for key, r := range t.records {
		if r.call == nil && t.round-r.round >= keptRounds {
			delete(t.records, key)
		}
	}
}

// keepRecord returns the record of the object, creating it if necessary, and keeps it for some more rounds. The caller
// holds the lock.
func (t *table) keepRecord(key string) *record {
	r, exists := t.records[key]
	if !exists {
		r = &record{}
		t.records[key] = r
	}
	r.round = t.round
	return r
}

// recallDisowned reports whether the operator owns no field of the object, and keeps that in memory.
func (t *table) recallDisowned(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keepRecord(key).disowned
}

func (t *table) setDisowned(key string, released bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keepRecord(key).disowned = released
}

// enqueue returns the object's call in flight, or a new one, and reports whether it is new.
func (t *table) enqueue(key, description string) (*call, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keepRecord(key)
	if r.call != nil {
		return r.call, false
	}
	r.call = &call{key: key, description: description, done: make(chan struct{})}
	return r.call, true
}

// markStarted records that the call has acquired a slot.
func (t *table) markStarted(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.started = t.clock.Now()
}

// startAttempt records that the call makes the attempt, and returns the failure that it retries, if any.
func (t *table) startAttempt(c *call, attempt string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.records[c.key].answerTo(attempt); f != nil {
		c.retried = f.err
	}
	return c.retried
}

// finish records the outcome of the call, and reports whether its round has returned without it.
func (t *table) finish(c *call, o outcome) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keepRecord(c.key)
	r.call = nil
	switch {
	case o.deleted:
		delete(t.records, c.key)
	case errors.Is(o.Err, errNotStarted):
		// There is no result to record.
	case o.recorded:
		t.startBackoff(r, c)
	case o.Err == nil && !o.Wrote:
		r.inSync, r.writtenVersion = o.inSync, ""
		t.recordAnswer(r, c, o)
	case o.Err != nil:
		t.recordAnswer(r, c, o)
	case o.version != "":
		r.answer = nil
	}
	if o.version != "" {
		r.writtenVersion = o.version
	}
	c.result = o.Result
	close(c.done)
	return c.late
}

// recordAnswer records an answer, with a back-off if the call failed.
func (t *table) recordAnswer(r *record, c *call, o outcome) {
	next := &answer{attempt: o.attempt, err: o.Err}
	if o.failed {
		next.backoff = t.firstRetry
		if last := r.answerTo(o.attempt); last != nil && last.backoff > 0 {
			next.backoff = min(2*last.backoff, t.lastRetry)
		}
	}
	r.answer = next
	t.startBackoff(r, c)
}

// startBackoff starts the back-off of an answer that the round of the call returns, or drops an answer without
// back-off.
func (t *table) startBackoff(r *record, c *call) {
	last := r.answer
	if last == nil || last.reported || c.late {
		return
	}
	last.reported, last.retryAt = true, t.clock.Now().Add(last.backoff)
	if last.backoff == 0 {
		r.answer = nil
	}
}

// isLate reports whether an earlier round has returned without the result of the call.
func (t *table) isLate(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.late
}

// takeResult returns the result of the call or, if it is still in flight, the error to report. It marks that call as
// late, and also returns whether it was not before.
func (t *table) takeResult(c *call) (result Result, newlyLate bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-c.done:
		return c.result, false
	default:
	}
	newlyLate, c.late = !c.late, true
	switch {
	case c.retried != nil:
		return Result{Err: c.retried}, newlyLate
	case c.started.IsZero():
		return Result{Err: fmt.Errorf("%s: not sent yet, as earlier calls have had %w; %s",
			c.description, ErrInFlight, stillWaiting)}, newlyLate
	}
	return Result{
		Err: fmt.Errorf("%s: %w for %s; %s",
			c.description, ErrInFlight, t.clock.Since(c.started).Round(time.Second), stillWaiting),
	}, newlyLate
}

// lastError returns the recorded error of the attempt, or nil.
func (t *table) lastError(rendered client.Object, attempt string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.records[key(rendered)].answerTo(attempt); f != nil {
		return f.err
	}
	return nil
}

// recordedAnswer returns the answer to the attempt that is to be returned instead of another call, or nil.
func (t *table) recordedAnswer(rendered client.Object, attempt string) *answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.records[key(rendered)].answerTo(attempt)
	if last == nil || (last.reported && !t.clock.Now().Before(last.retryAt)) {
		return nil
	}
	return new(*last)
}

// retryAfter returns when the next call in back-off is due, or 0 if there is none.
func (t *table) retryAfter() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, soonest := t.clock.Now(), time.Duration(0)
	for _, r := range t.records {
		if r.answer == nil || !r.answer.reported || r.call != nil {
			continue
		}
		wait := r.answer.retryAt.Sub(now)
		switch {
		case wait < -t.lastRetry:
			continue // No round has retried it: the object is no longer applied.
		case wait <= 0:
			wait = t.firstRetry // It became due after its round.
		}
		if soonest == 0 || wait < soonest {
			soonest = wait
		}
	}
	return soonest
}

// isStale reports whether the cached object is older than the last write.
func (t *table) isStale(rendered, cached client.Object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.records[key(rendered)]
	return r != nil && freshness.Stale(cached.GetResourceVersion(), r.writtenVersion)
}

// isInSync reports whether the same comparison has already found no difference.
func (t *table) isInSync(seen *comparison) bool {
	t.mu.Lock()
	var last *comparison
	if r := t.records[key(seen.rendered)]; r != nil {
		last = r.inSync
	}
	t.mu.Unlock()
	return last != nil && last.rendered == seen.rendered && reflect.DeepEqual(last, seen)
}

// comparison identifies a rendered object and the state of a live one that were compared. An unchanged one is compared
// once per version of the live object.
type comparison struct {
	owner    types.UID
	rendered client.Object

	uid types.UID
	// generation counts changes of the spec. resourceVersion replaces it for kinds without a generation.
	generation          int64
	resourceVersion     string
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	terminating         bool
}

func comparisonOf(owner types.UID, rendered, live client.Object) *comparison {
	object := &comparison{
		owner: owner, rendered: rendered, uid: live.GetUID(), generation: live.GetGeneration(),
		labels: live.GetLabels(), annotations: live.GetAnnotations(), owners: live.GetOwnerReferences(),
		terminating: live.GetDeletionTimestamp() != nil,
	}
	if object.generation == 0 {
		object.resourceVersion = live.GetResourceVersion()
	}
	return object
}
