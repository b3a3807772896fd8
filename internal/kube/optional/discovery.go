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

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
)

const (
	// answerWithin is how long EnsureWatch waits for the first answer, counted from the first call; later calls do not
	// wait.
	answerWithin = 2 * time.Second
	// deadline of one attempt. A RESTMapper accepts no context.
	deadline = 5 * time.Second
	// firstRetry and lastRetry bound the back-off of discovery while the kind is not served or discovery fails.
	firstRetry, lastRetry = 100 * time.Millisecond, 10 * time.Second
)

var errNoAnswer = errors.New("the API server has not answered yet")

// State of the discovery of a kind.
type State int

const (
	// Unknown: discovery has failed or has not completed yet.
	Unknown State = iota
	// Absent: the API server does not serve the kind.
	Absent
	// Served: the API server serves the kind.
	Served
)

// discovery retries the discovery of a kind while it is requested and not served.
type discovery struct {
	kind    schema.GroupVersionKind
	mapper  meta.RESTMapper
	clock   clock.Clock
	changed notify.Signal
	// wake has an element when a request starts.
	wake chan struct{}

	// mutex guards what follows.
	mutex sync.Mutex
	// request is the number of the current or last request.
	request   int
	requested bool
	// since is when the current request started; answered is closed after its first attempt.
	since    time.Time
	answered chan struct{}
	// late: a call has returned before the first attempt ended.
	late  bool
	state State
}

func newDiscovery(
	kind schema.GroupVersionKind, mapper meta.RESTMapper, clk clock.Clock, changed notify.Signal,
) *discovery {
	return &discovery{kind: kind, mapper: mapper, clock: clk, changed: changed, wake: make(chan struct{}, 1)}
}

// begin starts a request, unless there is one.
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

// end ends the request.
func (d *discovery) end() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.requested, d.state = false, Unknown
}

func (d *discovery) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// startAndAwait starts a request if there is none, and returns the state. It waits up to answerWithin for the first
// attempt.
func (d *discovery) startAndAwait(ctx context.Context) State {
	d.begin()
	d.mutex.Lock()
	answered, left := d.answered, d.since.Add(answerWithin).Sub(d.clock.Now())
	d.mutex.Unlock()
	if left > 0 {
		timeout, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		select {
		case <-answered:
		case <-timeout.Done():
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
		current, state := d.current()
		if current == 0 || current == request && state == Served {
			continue
		}
		if current != request {
			request, wait = current, firstRetry
		}
		if state = attempts.attempt(ctx); state != Served {
			// Before publish, because a test may step its clock from then on.
			retry, wait = d.clock.After(wait), min(2*wait, lastRetry)
		}
		d.publish(request, state)
	}
}

// current returns the number of the current request, 0 for none, and its published state.
func (d *discovery) current() (int, State) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.requested {
		return 0, Unknown
	}
	return d.request, d.state
}

// publish stores the state of a request. It notifies of changes that no waiting call returns.
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

// attempts makes the attempts of a discovery, one at a time.
type attempts struct {
	*discovery
	// pending receives the result of a call that has exceeded its deadline; nil for none.
	pending chan error
	// failed: the last attempt failed. Only the first of several failures is logged.
	failed bool
}

// attempt makes one attempt, and logs the first of several failures.
func (a *attempts) attempt(ctx context.Context) State {
	err := a.callMapper(ctx)
	isAbsent := meta.IsNoMatchError(err)
	failed := err != nil && !isAbsent && ctx.Err() == nil
	if failed && !a.failed {
		log.FromContext(ctx).Error(err, "Failed to discover an optional kind; retrying", "kind", a.kind.Kind)
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

// callMapper makes a discovery call, and returns its error. A call that exceeds the deadline is not repeated: the next
// attempt waits for it, so that hanging calls do not accumulate.
func (a *attempts) callMapper(ctx context.Context) error {
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
