package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// row is a type of fault.
type row struct {
	id, what string
	// left is why the row is not run.
	left string
	// elsewhere lists the tests that cover the row, or the rest of it.
	elsewhere string
	// sample is how many of its points make test runs, if it selects this row.
	sample int
	// always: each sample has this row.
	always bool
	// points returns where and when the fault is injected, which may depend on an undisturbed run.
	points func(context.Context, *campaign) ([]point, error)
}

// point is one run of a row.
type point struct {
	// name is its name in the row, stable across runs of the campaign.
	name     string
	workload *workload
	faults   []Fault
	options
	// play runs instead of the workload, if it is not nil.
	play func(context.Context, *campaign, *env) ([]string, error)
}

// fixed returns points that do not depend on an undisturbed run.
func fixed(points ...point) func(context.Context, *campaign) ([]point, error) {
	return func(context.Context, *campaign) ([]point, error) { return points, nil }
}

// campaign is a run of the campaign against one operator.
type campaign struct {
	binary string
	// envs are idle clusters, and lanes limits the number of clusters.
	lanes chan struct{}
	lock  sync.Mutex
	envs  []*env
	// references are the undisturbed runs.
	references map[string]*reference
}

func newCampaign(binary string, lanes int) *campaign {
	return &campaign{binary: binary, lanes: make(chan struct{}, lanes), references: map[string]*reference{}}
}

// use calls do with an empty env.
func (c *campaign) use(ctx context.Context, do func(*env) (keep bool, err error)) error {
	c.lanes <- struct{}{}
	defer func() { <-c.lanes }()
	e, err := c.take(ctx)
	if err != nil {
		return err
	}
	keep, err := do(e)
	if keep && err == nil {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.envs = append(c.envs, e)
		return nil
	}
	return errors.Join(err, e.close())
}

func (c *campaign) take(ctx context.Context) (*env, error) {
	c.lock.Lock()
	if last := len(c.envs) - 1; last >= 0 {
		b := c.envs[last]
		c.envs = c.envs[:last]
		c.lock.Unlock()
		return b, nil
	}
	c.lock.Unlock()
	// It outlives the first point that uses it.
	return newEnv(context.WithoutCancel(ctx))
}

// close ends all clusters.
func (c *campaign) close() error {
	var all []error
	for _, b := range c.envs {
		all = append(all, b.close())
	}
	return errors.Join(all...)
}

// reference has the results of runs without faults.
type reference struct {
	first, second func() (*result, error)
}

// referenceOf returns the undisturbed runs of a workload, which are done on first use.
func (c *campaign) referenceOf(ctx context.Context, w *workload) *reference {
	c.lock.Lock()
	defer c.lock.Unlock()
	if r := c.references[w.id]; r != nil {
		return r
	}
	// They outlive the first point that uses them.
	ctx = context.WithoutCancel(ctx)
	undisturbed := func() (res *result, err error) {
		err = c.use(ctx, func(e *env) (bool, error) {
			res, err = e.play(ctx, c.binary, w, nil, options{})
			return true, err
		})
		if err == nil && len(res.violations) > 0 {
			err = &disturbedError{w.id, res.violations, res.logs}
		}
		return res, err
	}
	r := &reference{first: sync.OnceValues(undisturbed), second: sync.OnceValues(undisturbed)}
	c.references[w.id] = r
	return r
}

// differences returns the differences of a run's result from undisturbed ones, except those between two undisturbed
// runs.
func (c *campaign) differences(ctx context.Context, p point, res *result) ([]string, error) {
	ref := c.referenceOf(ctx, p.workload)
	first, err := ref.first()
	if err != nil {
		return nil, err
	}
	if len(compare(p, first, first, res)) == 0 {
		return nil, nil
	}
	second, err := ref.second()
	if err != nil {
		return nil, err
	}
	return compare(p, first, second, res), nil
}

func compare(p point, first, second, res *result) []string {
	var found []string
	if !p.differs {
		for _, difference := range history.Differences(first.state, res.state, [2]history.State{first.state, second.state}) {
			found = append(found, "L2 "+difference)
		}
	}
	if p.counts {
		return found
	}
	for name := range keysOf(first.counts, res.counts) {
		if want, got := first.counts[name], res.counts[name]; want != got && want == second.counts[name] {
			found = append(found, fmt.Sprintf("L2 %s: %d times, %d in an undisturbed run", name, got, want))
		}
	}
	slices.Sort(found)
	return found
}

func keysOf(all ...map[string]int) map[string]bool {
	keys := map[string]bool{}
	for _, counts := range all {
		for key := range counts {
			keys[key] = true
		}
	}
	return keys
}

// outcome is the result of a point.
type outcome struct {
	violations []string
	missed     bool
	recovery   float64
	logs       string
}

// run runs a point.
func (c *campaign) run(ctx context.Context, p point) (out outcome, err error) {
	if p.workload != nil && p.play == nil {
		// Before an env is acquired, as this acquires one itself.
		if _, err := c.referenceOf(ctx, p.workload).first(); err != nil {
			return out, err
		}
	}
	var res *result
	err = c.use(ctx, func(e *env) (bool, error) {
		if p.play != nil {
			out.violations, err = p.play(ctx, c, e)
			return err == nil && !p.spoils, err
		}
		res, err = e.play(ctx, c.binary, p.workload, p.faults, p.options)
		return err == nil && !p.spoils && len(res.violations) == 0, err
	})
	if err != nil || res == nil {
		return out, err
	}
	out.violations, out.missed, out.recovery, out.logs = res.violations, res.missed, res.recovery.Seconds(), res.logs
	if len(out.violations) == 0 && !out.missed {
		out.violations, err = c.differences(ctx, p, res)
	}
	return out, err
}

// readsOf returns the distinct reads of an undisturbed run.
func (c *campaign) readsOf(ctx context.Context, w *workload) (map[fault.Request]int, error) {
	res, err := c.referenceOf(ctx, w).first()
	if err != nil {
		return nil, err
	}
	return res.reads, nil
}

// writesOf returns the distinct writes of an undisturbed run from a moment on, with their counts.
func (c *campaign) writesOf(ctx context.Context, w *workload, from Moment) (map[fault.Request]int, error) {
	res, err := c.referenceOf(ctx, w).first()
	if err != nil {
		return nil, err
	}
	counts := map[fault.Request]int{}
	for _, write := range res.writes {
		if from == Start || write.Begin.After(res.changed) {
			counts[write.Request]++
		}
	}
	return counts, nil
}

// sampledRows returns the rows to run: all of them, or a sample.
func sampledRows(t *testing.T) []row {
	t.Helper()
	all := slices.DeleteFunc(rows(), func(r row) bool { return r.points == nil || !isSelected(r) })
	if cluster.FullCampaigns() || *flagPoint != "" || *flagRows >= len(all) {
		return all
	}
	always, others := byTurn(all)
	return append(always, chance.Sample(t, "rows", others, max(0, *flagRows-len(always)), row.name)...)
}

// byTurn splits rows into those that each sample has, and those that have their turn.
func byTurn(all []row) (always, others []row) {
	for _, r := range all {
		if r.always {
			always = append(always, r)
			continue
		}
		others = append(others, r)
	}
	return always, others
}

func (r row) name() string { return r.id }

// chosen returns the points to run: those selected by the flag, all of them, or a sample; and those that take the place
// of points of a sample whose faults have no target.
func chosen(t *testing.T, r row, points []point) ([]point, *spare) {
	t.Helper()
	switch {
	case *flagPoint != "":
		return slices.DeleteFunc(slices.Clone(points),
			func(p point) bool { return !strings.HasPrefix(r.id+"/"+p.name, *flagPoint) }), &spare{}
	case cluster.FullCampaigns():
		return points, &spare{}
	}
	all := chance.Shuffled(t, "points of "+r.id, points)
	return all[:min(r.sample, len(all))], &spare{points: all[min(r.sample, len(all)):]}
}

// spare are further points of a row.
type spare struct {
	lock   sync.Mutex
	points []point
}

// next takes one.
func (s *spare) next() (p point, is bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.points) == 0 {
		return p, false
	}
	p, s.points = s.points[0], s.points[1:]
	return p, true
}

// commit returns that of the source, empty if unknown.
var commit = sync.OnceValue(func() string { return resultfile.Commit(repo) })

// program returns the operator under test.
func program(ctx context.Context) (string, error) {
	if *flagOperator != "" {
		return *flagOperator, nil
	}
	return cluster.BuildFastOperator(ctx, os.Stderr)
}
