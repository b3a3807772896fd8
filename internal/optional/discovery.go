package optional

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/notify"
)

const (
	// answerWithin is how long EnsureWatch waits for the first answer, counted from the first call: later calls do not wait.
	answerWithin = 2 * time.Second
	// deadline of one discovery. A RESTMapper takes no context.
	deadline = 5 * time.Second
	// firstRetry and lastRetry bound the back-off of discovery while the kind is not served or discovery fails.
	firstRetry, lastRetry = 100 * time.Millisecond, 10 * time.Second
)

var errNoAnswer = errors.New("the API server has not answered yet")

// State is what is known of a kind.
type State int

const (
	// Unknown: discovery has failed so far, or was not answered yet.
	Unknown State = iota
	// Absent: the API server does not serve the kind.
	Absent
	// Served: the API server serves the kind.
	Served
)

// discovery looks for a kind while it is requested, until the API server serves it.
type discovery struct {
	kind    schema.GroupVersionKind
	mapper  meta.RESTMapper
	clock   clock.Clock
	changed notify.Signal
	// wake has an element when a request has begun or ended.
	wake chan struct{}

	// mutex guards what follows.
	mutex sync.Mutex
	// request is the number of the present request, or of the last one.
	request   int
	requested bool
	// since is when the present request began, and answered is closed after its first attempt.
	since    time.Time
	answered chan struct{}
	// late: a caller has not waited for the first attempt.
	late  bool
	state State
}

func newDiscovery(
	kind schema.GroupVersionKind, mapper meta.RESTMapper, clk clock.Clock, changed notify.Signal,
) *discovery {
	return &discovery{kind: kind, mapper: mapper, clock: clk, changed: changed, wake: make(chan struct{}, 1)}
}

// begin requests the kind, unless it is requested already.
func (d *discovery) begin() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.requested {
		return
	}
	d.request++
	d.requested, d.since, d.answered = true, d.clock.Now(), make(chan struct{})
	d.late, d.state = false, Unknown
	d.wakeUp()
}

// end drops the request.
func (d *discovery) end() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.requested {
		d.requested, d.state = false, Unknown
		d.wakeUp()
	}
}

func (d *discovery) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// find requests the kind and returns its state. It waits a moment for the first attempt.
func (d *discovery) find(ctx context.Context) State {
	d.begin()
	d.mutex.Lock()
	answered, left := d.answered, d.since.Add(answerWithin).Sub(d.clock.Now())
	d.mutex.Unlock()
	if left > 0 {
		waiting, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		select {
		case <-answered:
		case <-waiting.Done():
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	select {
	case <-answered:
	default:
		d.late = true
	}
	return d.state
}

// run makes the attempts until the context ends.
func (d *discovery) run(ctx context.Context) {
	attempts := attempts{discovery: d}
	var retry <-chan time.Time
	request, wait := 0, firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry:
		case <-d.wake:
		}
		retry = nil
		present, state := d.present()
		if present == 0 || present == request && state == Served {
			continue
		}
		if present != request {
			request, wait = present, firstRetry
		}
		if state = attempts.next(ctx); state != Served {
			// Before the answer is published, as a test may move its clock from then on.
			retry, wait = d.clock.After(wait), min(2*wait, lastRetry)
		}
		d.publish(request, state)
	}
}

// present returns the number of the present request, 0 for none, and the state that was published for it.
func (d *discovery) present() (int, State) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.requested {
		return 0, Unknown
	}
	return d.request, d.state
}

// publish answers a request, and notifies of what its first callers have not seen.
func (d *discovery) publish(request int, state State) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.requested || request != d.request {
		return
	}
	stateChanged := d.state != state
	d.state = state
	select {
	case <-d.answered:
	default:
		stateChanged = stateChanged && d.late
		close(d.answered)
	}
	if stateChanged {
		d.changed.Notify()
	}
}

// attempts are those of a discovery, one at a time.
type attempts struct {
	*discovery
	// pending has the answer to a call that has outlasted its deadline; nil for none.
	pending chan error
	// failed: the last attempt did, which is logged once.
	failed bool
}

// next makes an attempt.
func (a *attempts) next(ctx context.Context) State {
	err := a.answer(ctx)
	isAbsent := meta.IsNoMatchError(err)
	failed := err != nil && !isAbsent && ctx.Err() == nil
	if failed && !a.failed {
		log.FromContext(ctx).Error(err, "Discovery of an optional kind fails and is retried", "kind", a.kind.Kind)
	}
	a.failed = failed
	switch {
	case isAbsent:
		return Absent
	case err != nil:
		return Unknown
	}
	return Served
}

// answer is that of the API server. A call that has no answer by its deadline goes on, and the next attempt waits for
// the same call: calls that hang do not pile up.
func (a *attempts) answer(ctx context.Context) error {
	if a.pending == nil {
		a.pending = make(chan error, 1)
		go func(answer chan<- error) {
			_, err := a.mapper.RESTMapping(a.kind.GroupKind(), a.kind.Version)
			answer <- err
		}(a.pending)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	select {
	case err := <-a.pending:
		a.pending = nil
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}
