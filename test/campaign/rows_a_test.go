package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

func crashRows() []row {
	return []row{
		{id: "A1", what: "SIGKILL at each write of I and G: before it, with its response lost, after it", sample: 2,
			always: true,
			points: func(ctx context.Context, c *campaign) ([]point, error) {
				installing, err := atEachWrite(ctx, c, install, Start, allPhases)
				if err != nil {
					return nil, err
				}
				changing, err := atEachWrite(ctx, c, specChange, Ready, allPhases)
				return append(installing, changing...), err
			}},
		{id: "A2", what: "a second SIGKILL at the 1st to 3rd write after the restart", sample: 1, always: true,
			points: doubleCrashes},
		{id: "A3", what: "SIGKILL every 2 s for 20 s", sample: 1, points: fixed(
			point{
				name: "I", workload: install,
				faults: []Fault{{When: When{Moment: Start}, What: Again(2 * time.Second), For: 20 * time.Second}},
			},
			point{
				name: "S", workload: scale,
				faults: []Fault{{When: When{Moment: Ready}, What: Again(2 * time.Second), For: 20 * time.Second}},
			},
		)},
		{id: "A4", what: "SIGTERM during the writes: it exits in time, and the next one completes the work", sample: 1,
			points: func(ctx context.Context, c *campaign) ([]point, error) { return terminations(ctx, c) }},
		{
			id: "A5", what: "k DaemonSets are applied, then every write of one fails for 20 s", sample: 1,
			points: partialApplies(),
		},
		{id: "A6", what: "the response to each type of write is lost", sample: 1, points: lostAnswers},
		{id: "A7", what: "SIGKILL at each write of the teardown: the cluster is as before the policy", sample: 1,
			always: true,
			points: func(ctx context.Context, c *campaign) ([]point, error) {
				points, err := atEachWrite(ctx, c, remove, Ready, allPhases)
				for i := range points {
					points[i].restores = true
				}
				return points, err
			}},
		// The status has the version of the release, and the pods keep their helper.
		{id: "A8", what: "the operator of another release takes over: no pod is deleted", sample: 1, points: fixed(
			point{
				name: "G", workload: rest, faults: []Fault{{When: When{Moment: Ready}, What: release}},
				options: options{differs: true, after: noNewGeneration},
			},
			point{
				name: "S", workload: scale, faults: []Fault{{When: When{Moment: Ready}, What: release}},
				options: options{differs: true},
			},
		)},
	}
}

var allPhases = []fault.Phase{fault.Before, fault.After, fault.Done}

// mostRepeated limits the points of one type of write: the number of status writes depends on the time.
const mostRepeated = 3

// ordered returns the distinct requests, sorted by name.
func ordered(requests map[fault.Request]int) []fault.Request {
	return slices.SortedFunc(maps.Keys(requests),
		func(a, b fault.Request) int { return strings.Compare(a.String(), b.String()) })
}

// atEachWrite returns the points of a crash at each type of write of a workload from a moment on.
func atEachWrite(ctx context.Context, c *campaign, w *workload, from Moment, phases []fault.Phase) ([]point, error) {
	writes, err := c.writesOf(ctx, w, from)
	if err != nil {
		return nil, err
	}
	var points []point
	for _, request := range ordered(writes) {
		for nth := range min(writes[request], mostRepeated) {
			for _, phase := range phases {
				at := When{Moment: from, Write: &AtWrite{Match: fault.Exactly(request), Nth: int64(nth + 1), Phase: phase}}
				points = append(points, point{
					name:     fmt.Sprintf("%s/%s_%s_%d", w.id, phase, nameOf(request), nth+1),
					workload: w, faults: []Fault{{When: at, What: Kill}},
				})
			}
		}
	}
	return points, nil
}

// doubleCrashes counts all writes, independently of where the first process was killed.
func doubleCrashes(ctx context.Context, c *campaign) ([]point, error) {
	writes, err := c.writesOf(ctx, install, Start)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, count := range writes {
		total += count
	}
	const step = 4
	var points []point
	for first := 1; first < total; first += step {
		for second := 1; second <= 3; second++ {
			crash := func(nth int) Fault {
				return Fault{
					When: When{Moment: Start, Write: &AtWrite{Match: anyWrite, Nth: int64(nth), Phase: fault.After}}, What: Kill,
				}
			}
			points = append(points, point{
				name: fmt.Sprintf("I/%d+%d", first, second), workload: install, faults: []Fault{
					crash(first), crash(first + second),
				},
			})
		}
	}
	return points, nil
}

var anyWrite = fault.Match{Verbs: fault.Writes()}

func terminations(ctx context.Context, c *campaign) ([]point, error) {
	points, err := atEachWrite(ctx, c, specChange, Start, []fault.Phase{fault.Before})
	for i := range points {
		points[i].faults[0].What = Terminate
	}
	return points, err
}

func partialApplies() func(context.Context, *campaign) ([]point, error) {
	var points []point
	// The number of DaemonSets of the sample policy.
	for k := range int64(7) {
		rule := fault.Rule{
			Match: fault.Match{Verbs: fault.Writes(), Resources: []string{"daemonsets"}}, From: k + 1,
			Action: fault.Action{Status: http.StatusInternalServerError},
		}
		points = append(points, point{
			name: fmt.Sprintf("I/%d", k), workload: install,
			faults:  []Fault{{When: When{Moment: Start}, What: API{rule}, For: 20 * time.Second}},
			options: options{during: reportsFailedCalls},
		})
	}
	return fixed(points...)
}

// reportsFailedCalls waits until the status reports an operand whose objects cannot be written.
func reportsFailedCalls(ctx context.Context, r *run) error {
	return r.awaitWithin(ctx, truthTime, "the status to report the failing operand", func() error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		for _, operand := range policy.Status.Operands {
			if operand.State == v1.OperandError || operand.State == v1.OperandInvalid {
				return nil
			}
		}
		return errors.New("no operand has the state Error or Invalid")
	})
}

// truthTime is how soon the status must report a failure.
const truthTime = 20 * time.Second

func lostAnswers(ctx context.Context, c *campaign) ([]point, error) {
	var points []point
	for _, w := range []*workload{install, disable, remove} {
		writes, err := c.writesOf(ctx, w, Start)
		if err != nil {
			return nil, err
		}
		for _, request := range ordered(writes) {
			rule := fault.Rule{Match: fault.Exactly(request), Phase: fault.After, Count: 1, Action: fault.Action{Drop: true}}
			points = append(points, point{
				name: w.id + "/" + nameOf(request), workload: w,
				faults: []Fault{{When: When{Moment: Start}, What: API{rule}, For: storm}},
			})
		}
	}
	return points, nil
}

// release restarts the operator as another release, with another helper image, and waits until that is ready: on a
// busy machine the run might end before.
var release = Actor{Does: func(ctx context.Context, r *run) error {
	o := r.operators[0]
	o.lock.Lock()
	o.options.Env = []string{"OPERATOR_IMAGE=" + nextRelease()}
	starts := o.starts
	o.lock.Unlock()
	return errors.Join(o.terminate(), o.awaitStart(ctx, starts))
}}

// nextRelease is the image of another release, in the same registry: a helper image of another one is not kept.
func nextRelease() string {
	own := image.Own()
	return own[:strings.LastIndex(own, ":")] + ":next"
}

// noNewGeneration fails for a DaemonSet that was changed after its creation.
func noNewGeneration(ctx context.Context, r *run) error {
	list := &appsv1.DaemonSetList{}
	if err := r.quiet.List(ctx, list, client.InNamespace(namespace), client.HasLabels{labels.Operand}); err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].Generation > 1 {
			return fmt.Errorf("DaemonSet %s is changed by the new release", list.Items[i].Name)
		}
	}
	return nil
}
