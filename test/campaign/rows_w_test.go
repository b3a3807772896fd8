package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

func loadRows() []row {
	return []row{
		{id: "W1", what: "at rest nothing is written", sample: 1, points: fixed(
			point{name: "20s", workload: rest, options: options{after: quietFor(20 * time.Second)}},
			point{
				name: "restart", workload: rest, faults: []Fault{{When: When{Moment: Ready}, What: Kill}},
				options: options{after: quietFor(5 * time.Second)},
			},
			point{
				name: "broken-node", workload: rest,
				options: options{differs: true, counts: true, after: brokenNodeIsQuiet, mayGo: ofOperand("driver")},
			},
		)},
		{id: "W2", what: "200 no-op passes", sample: 1, points: fixed(
			point{name: "rest", workload: rest, options: options{differs: true, after: touched}},
		)},
		elsewhere("P1, P2", "scale and memory", "make bench, docs/benchmarks.md"),
		{id: "P3", what: "random faults of all rows, several simultaneously", sample: 1, points: mixtures()},
		{id: "P4", what: "200 changes of pods a second for 5 s", sample: 1, points: fixed(
			point{name: "rest", workload: rest, options: options{differs: true, counts: true},
				faults: []Fault{
					{When: When{Moment: Ready}, What: Repeated{5 * time.Millisecond, stormOfPods}, For: 5 * time.Second},
				}},
		)},
		elsewhere("P5 (L1-L5 of the code)", "races, leaks, fuzzing, mutations",
			"make test-race, make test-mutations, make test-unit (Fuzz tests)"),
	}
}

// quietFor: no write in this time.
func quietFor(d time.Duration) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		before := len(r.writes())
		if err := pauseFor(ctx, d); err != nil {
			return err
		}
		if all := r.writes(); len(all) > before {
			return fmt.Errorf("L3 %d writes in %s at rest, the last ones:\n%s", len(all)-before, d, lastWrites(all))
		}
		return nil
	}
}

// brokenNodeIsQuiet: a crash-looping driver is reported once.
func brokenNodeIsQuiet(ctx context.Context, r *run) error {
	r.sim.Break("driver", nodeName(0), "CrashLoop")
	defer r.sim.Heal("driver", nodeName(0))
	pods := &corev1.PodList{}
	if err := r.quiet.List(
		ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "nvidia-driver-daemonset"},
	); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == nodeName(0) {
			if err := r.quiet.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); err != nil {
				return err
			}
		}
	}
	if err := r.awaitWithin(ctx, truthTime+eventually, "the status to report the node", func() error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		if policy.Status.NodeSummary == nil || policy.Status.NodeSummary.Degraded != 1 {
			return errors.New("no node is degraded")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	return quietFor(8*time.Second)(ctx, r)
}

// touched causes 200 passes by irrelevant labels. Only the status may be written.
func touched(ctx context.Context, r *run) error {
	before := len(r.writes())
	for i := range 200 {
		patch := client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, invariantLabel, i))
		if err := r.quiet.Patch(ctx, daemonSetNamed(pluginName), patch); err != nil {
			return err
		}
		if err := r.quiet.Patch(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}}, patch); err != nil {
			return err
		}
	}
	if err := pauseFor(ctx, idle); err != nil {
		return err
	}
	for _, write := range r.writes()[before:] {
		if write.Resource != "clusterpolicies" {
			return fmt.Errorf("L3 a no-op pass wrote: %s", write.Request)
		}
	}
	return nil
}

// stormOfPods changes a pod in an irrelevant way, another one each time.
func stormOfPods(ctx context.Context, r *run) error {
	pods := &corev1.PodList{}
	if err := r.quiet.List(ctx, pods, client.InNamespace(namespace)); err != nil || len(pods.Items) == 0 {
		return err
	}
	pod := &pods.Items[r.storms.Add(1)%int64(len(pods.Items))]
	return client.IgnoreNotFound(r.patch(ctx, pod,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, invariantLabel, time.Now().UnixNano())))
}

// mixtures returns points with several faults, selected by a seed that is the name of the point.
func mixtures() func(context.Context, *campaign) ([]point, error) {
	const seeds = 40
	var points []point
	for number := range seeds {
		dice := rand.New(rand.NewPCG(uint64(number), 3))
		w := []*workload{install, specChange, scale, disable, remove}[dice.IntN(5)]
		moments := []Moment{Start, Created, Ready, Changed}
		if w.change == nil {
			moments = moments[:2]
		}
		var faults []Fault
		for range 3 {
			f := randomFault(dice)
			f.When = When{Moment: moments[dice.IntN(len(moments))], After: time.Duration(dice.IntN(3000)) * time.Millisecond}
			faults = append(faults, f)
		}
		points = append(points, point{
			name: fmt.Sprintf("%s/%d", w.id, number), workload: w, faults: faults,
			options: options{exits: true, blind: true, counts: true, optional: true, mayGo: ofOperand("device-plugin")},
		})
	}
	return fixed(points...)
}

// randomFault returns a random fault.
func randomFault(dice *rand.Rand) Fault {
	last := time.Duration(1+dice.IntN(5)) * time.Second
	kind := watched[dice.IntN(len(watched))]
	bad := apiErrors[dice.IntN(len(apiErrors))]
	faults := []Fault{
		{What: Kill}, {What: Terminate}, {What: Freeze, For: last}, {What: Away, For: last}, {What: Frozen, For: last},
		{What: API{{Match: watches(kind), Stream: fault.Stream{Hold: true}}}, For: last},
		{What: API{{Match: watches(kind), Stream: fault.Stream{Twice: true, Delay: 100 * time.Millisecond}}}, For: last},
		{What: API{{Match: anyWrite, Phase: bad.phase, Action: bad.Action}}, For: last},
		{What: Repeated{
			time.Second, ifExists(editPlugin(func(ds *appsv1.DaemonSet) { ds.Annotations[labels.Digest] = "forged" })),
		}, For: last},
	}
	return faults[dice.IntN(len(faults))]
}

// ifExists ignores an object that does not exist at the moment.
func ifExists(does func(context.Context, *run) error) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error { return client.IgnoreNotFound(does(ctx, r)) }
}
