package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// errMissed: a fault was never injected, as the run had no such write.
var errMissed = errors.New("a fault was never injected: the run made no such request")

// Times of a run, for the operator with the faster timing: how long nothing must be written to be at rest, and the
// timeout of waits, in addition to the time of the faults.
const (
	idle         = 4 * time.Second
	convergeTime = 90 * time.Second
)

// options are the specifics of the runs of a row.
type options struct {
	// operators is the number of operators; 0 means one. args are their further flags.
	operators int
	args      []string
	// exits: the operator may exit by itself, as when the API server is down.
	exits bool
	// blind: the operator observes a wrong state while the faults last.
	blind bool
	// rights: the row removes permissions.
	rights bool
	// spoils: the cluster cannot be reused afterwards.
	spoils bool
	// newDrivers: an edit or another client makes nodes start their drivers again.
	newDrivers bool
	// mayGo permits further deletions of pods.
	mayGo func(operand, node string) bool
	// counts: objects may be created and deleted more often than in an undisturbed run.
	counts bool
	// differs: the final state is not that of the undisturbed run; the row checks it.
	differs bool
	// optional: the run counts even if a fault had no target.
	optional bool
	// seedsGo: objects of users are deleted with their namespace.
	seedsGo bool
	// patience extends the timeout for the end, if not only the operator has to recover.
	patience time.Duration
	// restores: in the end the whole cluster is as it was before the operators started.
	restores bool
	// only are the nodes that may be written after the injection of the faults.
	only []string
	// during is checked while the faults last, and after once the cluster is at rest.
	during, after func(context.Context, *run) error
}

// run is one run of a workload with faults.
type run struct {
	*env
	options
	workload  *workload
	operators []*operator
	faults    []*armed
	watcher   *history.Watcher
	mark      cluster.Mark

	// before is a snapshot of the cluster before the operators started, if it has to be so again.
	before map[string]string
	// versions are the resourceVersions of the past moments.
	versions map[Moment]string

	lock   sync.Mutex
	errors []error
	// missed: a fault had no target. struck counts those that had one.
	missed bool
	struck int

	storms atomic.Int64
}

// result is the result of a run.
type result struct {
	violations []string
	state      history.State
	counts     map[string]int
	writes     []fault.Record
	reads      map[fault.Request]int
	// changed is when the workload began its change.
	changed time.Time
	// recovery is the time from the end of the faults until the desired state was reached.
	recovery, took time.Duration
	missed         bool
	logs           string
}

func (r *run) fail(err error) {
	if err == nil {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.errors = append(r.errors, err)
}

// play runs a workload with faults on an empty env, and empties it again. The error is one of the test harness.
func (e *env) play(ctx context.Context, binary string, w *workload, faults []Fault, o options) (*result, error) {
	r := &run{env: e, options: o, workload: w, versions: map[Moment]string{}}
	for _, f := range faults {
		r.faults = append(r.faults, &armed{Fault: f, struck: make(chan struct{}), over: make(chan struct{})})
	}
	begin := time.Now()
	if err := r.prepare(ctx, binary); err != nil {
		return nil, err
	}
	res := &result{}
	err := r.course(ctx, res)
	res.took = time.Since(begin)
	stopped := r.stopOperators()
	r.watcher.Stop()
	if err != nil {
		return nil, err
	}
	res.violations = append(res.violations, stopped...)
	if r.spoils {
		return res, nil
	}
	return res, e.empty(ctx)
}

// prepare creates nodes, watcher and operators.
func (r *run) prepare(ctx context.Context, binary string) error {
	for number := range r.workload.nodes {
		if err := r.addNode(ctx, r.workload, number); err != nil {
			return err
		}
	}
	var err error
	if r.restores {
		if r.before, err = cluster.StableSnapshot(ctx, r.cluster.SimulatorConfig); err != nil {
			return fmt.Errorf("taking a snapshot of the cluster: %w", err)
		}
	}
	if r.watcher, err = history.Start(ctx, r.quiet); err != nil {
		return err
	}
	if r.mark, err = r.cluster.Mark(); err != nil {
		return err
	}
	for i := range max(1, r.options.operators) {
		o, err := r.startOperator(ctx, binary, fmt.Sprintf("operator-%d", i), r.args...)
		if err != nil {
			return err
		}
		r.operators = append(r.operators, o)
	}
	return nil
}

// course runs the steps in order. A step that does not succeed is a violation, and ends the run.
func (r *run) course(ctx context.Context, res *result) error {
	r.arm(ctx, Start)
	for _, o := range r.operators {
		o.run(ctx)
	}
	policy, err := cluster.SamplePolicy()
	if err != nil {
		return err
	}
	if r.workload.policy != nil {
		r.workload.policy(policy)
	}
	if err := r.quiet.Create(ctx, policy); err != nil {
		return fmt.Errorf("create the policy: %w", err)
	}
	r.arm(ctx, Created)
	if violation := r.goOn(ctx, res); violation != "" {
		res.violations = append(res.violations, violation)
	}
	r.conclude(ctx, res)
	return nil
}

// goOn runs to the end, and returns the step that did not succeed.
func (r *run) goOn(ctx context.Context, res *result) string {
	limit := convergeTime + r.faultTime()
	if r.workload.change != nil {
		if violation := r.change(ctx, limit, res); violation != "" {
			return violation
		}
	}
	changed := time.Now()
	if violation := r.check(ctx, r.during); violation != "" {
		return violation
	}
	over, err := r.faultsOver(ctx, limit)
	if errors.Is(err, errMissed) && !r.optional {
		res.missed = true
		return ""
	}
	if over.Before(changed) {
		over = changed
	}
	res.missed = r.hadNoTarget(err)
	if err := r.awaitWithin(
		ctx, convergeTime+r.patience, "the end of workload "+r.workload.id, func() error { return r.workload.ended(ctx, r) },
	); err != nil {
		return "L1 " + err.Error()
	}
	res.recovery = time.Since(over)
	if err := r.settle(ctx); err != nil {
		return "L3 " + err.Error()
	}
	if r.before != nil {
		if err := cluster.AwaitSnapshot(ctx, r.cluster.SimulatorConfig, r.before); err != nil {
			return "L6 " + err.Error()
		}
	}
	return r.check(ctx, r.after)
}

// hadNoTarget reports whether a fault had no target, or for optional ones whether none had. err is that of their end.
func (r *run) hadNoTarget(err error) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	return (r.missed || errors.Is(err, errMissed)) && (!r.optional || r.struck == 0)
}

// check runs a check of the row.
func (r *run) check(ctx context.Context, what func(context.Context, *run) error) string {
	if what == nil {
		return ""
	}
	if err := what(ctx, r); err != nil {
		return "L6 " + err.Error()
	}
	return ""
}

// change makes the workload's change once the stack is ready.
func (r *run) change(ctx context.Context, limit time.Duration, res *result) string {
	if err := r.awaitWithin(
		ctx, limit, "the stack to be ready", func() error { return r.isReady(ctx, r.workload.nodes) },
	); err != nil {
		return "L1 " + err.Error()
	}
	r.arm(ctx, Ready)
	res.changed = time.Now()
	if err := r.workload.change(ctx, r); err != nil {
		return "the workload failed: " + err.Error()
	}
	r.arm(ctx, Changed)
	return ""
}

// faultTime returns how long the faults last at most.
func (r *run) faultTime() time.Duration {
	var longest time.Duration
	for _, a := range r.faults {
		longest = max(longest, a.When.After+a.For)
	}
	return longest
}

func (r *run) awaitWithin(ctx context.Context, limit time.Duration, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return await(ctx, what, try)
}

// isReady returns why the policy does not report all nodes and auxiliary operands as ready.
func (r *run) isReady(ctx context.Context, nodes int) error {
	policy, err := r.policy(ctx)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady)
	if policy.Status.State != v1.StateReady || policy.Status.ObservedGeneration != policy.Generation ||
		policy.Status.NodeSummary == nil {
		return fmt.Errorf("the status is %s of generation %d of %d, %v", policy.Status.State,
			policy.Status.ObservedGeneration, policy.Generation, ready)
	}
	if got, want := policy.Status.NodeSummary.ReadyOfTotal, fmt.Sprintf("%d/%d", nodes, nodes); got != want {
		return fmt.Errorf("%s nodes are ready, of %s", got, want)
	}
	if !meta.IsStatusConditionTrue(policy.Status.Conditions, v1.ConditionAuxiliaryReady) {
		return fmt.Errorf("auxiliary operands are not ready: %v",
			meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionAuxiliaryReady))
	}
	return nil
}

// strategicStatus merges JSON into the status of an object as the API server merges lists.
func (r *run) strategicStatus(ctx context.Context, object client.Object, text string) error {
	return r.quiet.Status().Patch(ctx, object, client.RawPatch(types.StrategicMergePatchType, []byte(text)))
}

// settle waits until the operators have written nothing for a time.
func (r *run) settle(ctx context.Context) error {
	since := time.Now()
	return r.awaitWithin(ctx, convergeTime, "the writes to end", func() error {
		for _, write := range r.writes() {
			if write.Begin.After(since) {
				since = write.Begin
			}
		}
		if quiet := time.Since(since); quiet < idle {
			return fmt.Errorf("the last one was %s ago, the last ones:\n%s", quiet.Round(time.Millisecond),
				lastWrites(r.writes()))
		}
		return nil
	})
}

func lastWrites(writes []fault.Record) string {
	var text []string
	for _, write := range writes[max(0, len(writes)-6):] {
		text = append(text, fmt.Sprintf("  %s %d %s", write.Request, write.Code, tail(string(write.Body), 1)))
	}
	return strings.Join(text, "\n")
}

// writes returns those of all operators, in order.
func (r *run) writes() []fault.Record {
	var all []fault.Record
	for _, o := range r.operators {
		all = append(all, o.proxy.Writes()...)
	}
	slices.SortStableFunc(all, func(a, b fault.Record) int { return a.Begin.Compare(b.Begin) })
	return all
}
