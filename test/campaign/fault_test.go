package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// Moment is a point in time of a run.
type Moment string

// The moments of a run, in order. A workload without a change has no Ready and Changed.
const (
	// Start is before the operator starts.
	Start Moment = "start"
	// Created is right after the policy was created.
	Created Moment = "created"
	// Ready is when the stack is ready, before the workload changes anything.
	Ready Moment = "ready"
	// Changed is right after the change.
	Changed Moment = "changed"
)

// When is when a fault is injected: at a moment or some time after it, or at a write after that.
type When struct {
	Moment Moment
	After  time.Duration
	Write  *AtWrite
}

// AtWrite is the Nth of the operator's writes that match, from 1, at a phase.
type AtWrite struct {
	Match fault.Match
	Nth   int64
	Phase fault.Phase
}

// Fault is a fault as data. It is reverted after a time, at the latest before the wait for the end of the run.
type Fault struct {
	// Who is the index of the affected operator, if that matters.
	Who  int
	When When
	What What
	// For is how long it lasts; 0 is a single event.
	For time.Duration
}

// What is a type of fault.
type What interface {
	// begin injects the fault, and returns the function that reverts it, which may be nil.
	begin(ctx context.Context, r *run, who *operator) (end func(), err error)
}

// API makes requests fail by rules.
type API []fault.Rule

func (a API) begin(_ context.Context, r *run, who *operator) (func(), error) {
	var ends []func()
	var strikes []func() bool
	for _, rule := range a {
		end, struck := who.proxy.Add(rule)
		ends, strikes = append(ends, end), append(strikes, struck)
	}
	return func() {
		for _, end := range ends {
			end()
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		if slices.ContainsFunc(strikes, func(struck func() bool) bool { return struck() }) {
			r.struck++
		} else {
			r.missed = true
		}
	}, nil
}

// Process is a fault of the operator's process.
type Process string

// Faults of a process.
const (
	Kill      Process = "SIGKILL"
	Terminate Process = "SIGTERM"
	Freeze    Process = "SIGSTOP"
	// Away kills it and prevents its restart while the fault lasts.
	Away Process = "away"
)

func (p Process) begin(_ context.Context, _ *run, who *operator) (func(), error) {
	switch p {
	case Kill:
		who.kill()
	case Terminate:
		return nil, who.terminate()
	case Freeze:
		return who.freeze(), nil
	case Away:
		release := who.hold()
		who.kill()
		return release, nil
	}
	return nil, nil
}

// Again kills the operator periodically.
type Again time.Duration

func (a Again) begin(ctx context.Context, _ *run, who *operator) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(a)):
				who.kill()
			}
		}
	}()
	return cancel, nil
}

// Actor is another client that does something, and reverts it.
type Actor struct {
	Does func(context.Context, *run) error
	Back func(context.Context, *run) error
}

func (a Actor) begin(ctx context.Context, r *run, _ *operator) (func(), error) {
	if err := a.Does(ctx, r); err != nil || a.Back == nil {
		return nil, err
	}
	return func() { r.fail(a.Back(ctx, r)) }, nil
}

// Past restarts the operator with the state of an earlier moment, and hides everything newer.
type Past Moment

func (p Past) begin(_ context.Context, r *run, who *operator) (func(), error) {
	old := fault.Rule{
		Match: fault.Match{Verbs: fault.Reads(), Resources: watched}, Action: fault.Action{Version: r.versions[Moment(p)]},
	}
	held := fault.Rule{
		Match: fault.Match{Verbs: []string{fault.Watch}, Resources: watched}, Stream: fault.Stream{Hold: true},
	}
	removeOld, _ := who.proxy.Add(old)
	removeHeld, _ := who.proxy.Add(held)
	who.kill()
	return func() { removeOld(); removeHeld() }, nil
}

// watched are the resources whose objects the operator reads from its caches.
var watched = []string{"nodes", "pods", "daemonsets", "configmaps", "runtimeclasses", "clusterpolicies"}

// Outage is a fault of the API server.
type Outage string

// Outages of the API server.
const (
	Down   Outage = "down"
	Frozen Outage = "frozen"
)

func (o Outage) begin(ctx context.Context, r *run, _ *operator) (func(), error) {
	if o == Frozen {
		return func() { r.fail(r.cluster.ThawAPIServer()) }, r.cluster.FreezeAPIServer()
	}
	r.cluster.KillAPIServer()
	return func() {
		if err := r.cluster.StartAPIServer(ctx); err != nil {
			r.fail(err)
			return
		}
		// The test is about the operator's retries, not those of the controllers.
		r.fail(r.cluster.RestartClients(ctx))
	}, nil
}

// Controller suspends one of the control plane's other programs, such as kube-scheduler.
type Controller string

func (c Controller) begin(_ context.Context, r *run, _ *operator) (func(), error) {
	thaw, err := r.cluster.FreezeClient(string(c))
	return thaw, err
}

// armed is a scheduled fault of a run.
type armed struct {
	Fault
	struck chan struct{}
	over   chan struct{}
	lock   sync.Mutex
	began  time.Time
	ended  time.Time
}

// arm schedules the faults of a moment.
func (r *run) arm(ctx context.Context, moment Moment) {
	r.noteVersion(ctx, moment)
	for _, a := range r.faults {
		if a.When.Moment != moment {
			continue
		}
		switch {
		case a.When.Write != nil:
			r.armAtWrite(ctx, a)
		case a.When.After > 0:
			go func() {
				select {
				case <-ctx.Done():
				case <-time.After(a.When.After):
					r.strike(ctx, a)
				}
			}()
		default:
			r.strike(ctx, a)
		}
	}
}

// noteVersion records the resourceVersion of the moment.
func (r *run) noteVersion(ctx context.Context, moment Moment) {
	list := &corev1.NodeList{}
	if err := r.quiet.List(ctx, list); err == nil {
		r.versions[moment] = list.ResourceVersion
	}
}

// armAtWrite injects the fault within the operator's request, so that nothing happens in between.
func (r *run) armAtWrite(ctx context.Context, a *armed) {
	at := a.When.Write
	process, isProcess := a.What.(Process)
	// A killed process never gets the response, however fast the proxy is.
	dies := isProcess && (process == Kill || process == Away) && at.Phase != fault.Done
	call := func() { r.strike(ctx, a) }
	if process == Terminate {
		// It exits once its requests have a response, including this one.
		call = func() { go r.strike(ctx, a) }
	}
	_, _ = r.operators[a.Who].proxy.Add(fault.Rule{
		Match: at.Match, Phase: at.Phase, From: at.Nth, Count: 1, Action: fault.Action{Call: call, Drop: dies},
	})
}

func (r *run) strike(ctx context.Context, a *armed) {
	a.lock.Lock()
	a.began = time.Now()
	a.lock.Unlock()
	end, err := a.What.begin(ctx, r, r.operators[a.Who])
	if err != nil {
		r.fail(fmt.Errorf("fault %T: %w", a.What, err))
	}
	if _, isAPI := a.What.(API); !isAPI { // One of the API strikes once a request matches.
		r.lock.Lock()
		r.struck++
		r.lock.Unlock()
	}
	close(a.struck)
	go func() {
		defer close(a.over)
		if a.For > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(a.For):
			}
		}
		if end != nil {
			end()
		}
		a.lock.Lock()
		a.ended = time.Now()
		a.lock.Unlock()
	}()
}

// faultsOver waits until all faults have been injected and reverted, and returns the time of the last one. A fault
// that was never injected is the distinct error errMissed: the run had no such write.
func (r *run) faultsOver(ctx context.Context, limit time.Duration) (time.Time, error) {
	var last time.Time
	deadline := time.After(limit)
	for _, a := range r.faults {
		select {
		case <-a.over:
		case <-deadline:
			return last, errMissed
		case <-ctx.Done():
			return last, ctx.Err()
		}
		if a.ended.After(last) {
			last = a.ended
		}
	}
	return last, nil
}
