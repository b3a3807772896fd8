package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// leaseName is the name of the leader election lease.
const leaseName = "53822513.nvidia.com"

func managerRows() []row {
	elect := []string{"--leader-elect=true"}
	return []row{
		{id: "T1", what: "two operators simultaneously, without leader election", sample: 1, points: fixed(
			both(install), both(specChange), both(scale), both(disable), both(remove),
		)},
		{id: "T2", what: "the leader is frozen while another takes over, and then resumes", sample: 1, points: fixed(
			point{
				name: "G", workload: specChange, options: options{operators: 2, args: elect, exits: true, after: noStaleWrites},
				faults: []Fault{{When: When{Moment: Ready}, What: Freeze, For: 22 * time.Second}}},
			point{name: "S", workload: scale, options: options{operators: 2, args: elect, exits: true, after: noStaleWrites},
				faults: []Fault{{When: When{Moment: Ready}, What: Freeze, For: 22 * time.Second}}},
		)},
		{
			id: "T3", what: "the lease is renewed slowly, deleted, or held by a process that no longer exists", sample: 1,
			points: fixed(
				point{
					name: "G/slow", workload: specChange, options: options{args: elect, exits: true, blind: true},
					faults: []Fault{
						{When: When{Moment: Ready}, For: 12 * time.Second, What: API{
							{Match: fault.Match{Resources: []string{"leases"}}, Action: fault.Action{Delay: 12 * time.Second}},
						}},
					}},
				point{
					name: "G/deleted", workload: specChange, options: options{args: elect, exits: true}, faults: strikes(deleteLease),
				},
				point{
					name: "I/held", workload: install, options: options{args: elect},
					faults: []Fault{{When: When{Moment: Start}, What: Actor{Does: holdLease}}},
				},
			)},
		{id: "T4", what: "the times that the operator stores on a node are invalid", sample: 1, points: badTimes()},
		{id: "T5", what: "operators of two releases simultaneously", sample: 1, points: fixed(
			// Either may lead, so that the final images and versions are those of one or the other.
			point{name: "G", workload: specChange, options: options{operators: 2, args: elect, differs: true, after: oneWrites},
				faults: []Fault{{When: When{Moment: Start}, What: Actor{Does: setOtherRelease}}}},
			point{name: "rest", workload: rest, options: options{operators: 2, args: elect},
				faults: []Fault{{When: When{Moment: Start}, What: Actor{Does: followOtherRelease}},
					{When: When{Moment: Ready}, What: Terminate}}},
		)},
	}
}

// both: the operators are unaware of each other, so that they may write the same twice.
func both(w *workload) point {
	return point{name: w.id, workload: w, options: options{operators: 2}}
}

// noStaleWrites: the first operator writes nothing after it was frozen, unless it leads again.
func noStaleWrites(_ context.Context, r *run) error {
	thawed := r.faults[0].ended
	first := r.operators[0]
	first.lock.Lock()
	starts := first.starts
	first.lock.Unlock()
	if starts > 1 {
		// A new process may have been elected since; its predecessor exited.
		return nil
	}
	for _, write := range first.proxy.Writes() {
		if write.Begin.After(thawed) {
			return fmt.Errorf("the frozen operator writes: %s", write.Request)
		}
	}
	return nil
}

// oneWrites: of several operators with leader election, only the leader writes.
func oneWrites(_ context.Context, r *run) error {
	if first, second := r.operators[0].proxy.Writes(), r.operators[1].proxy.Writes(); len(first) > 0 && len(second) > 0 {
		return fmt.Errorf("both operators write: %s, and %s", first[len(first)-1].Request, second[len(second)-1].Request)
	}
	return nil
}

func lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
}

func deleteLease(ctx context.Context, r *run) error { return r.quiet.Delete(ctx, lease()) }

// holdLease creates the lease of an operator whose machine no longer exists, in place of one that an earlier run on
// this cluster has left without a holder.
func holdLease(ctx context.Context, r *run) error {
	if err := client.IgnoreNotFound(r.quiet.Delete(ctx, lease())); err != nil {
		return err
	}
	held := lease()
	held.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(5)), AcquireTime: new(metav1.NowMicro()),
		RenewTime: new(metav1.NowMicro()),
	}
	return r.quiet.Create(ctx, held)
}

// badTimes sets annotations that the operator reads back.
func badTimes() func(context.Context, *campaign) ([]point, error) {
	var points []point
	times := map[string]string{
		"future": time.Now().Add(24 * time.Hour).UTC().
			Format(time.RFC3339), "epoch": "1970-01-01T00:00:00Z", "text": "yesterday", "empty": "",
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		value := times[name]
		for _, key := range []string{labels.DiscoveryLostSince, labels.DiscoveryMissingSince} {
			points = append(points, point{
				name: "rest/" + name + "/" + strings.TrimPrefix(key, "nvidia.com/gpu-operator."), workload: rest,
				faults: []Fault{
					{When: When{Moment: Ready}, What: Actor{Does: func(ctx context.Context, r *run) error {
						return r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}},
							fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
					}}},
					{
						When: When{Moment: Ready, After: time.Second}, What: Actor{Does: hideDiscovery, Back: showDiscovery},
						For: 2 * time.Second,
					},
					{When: When{Moment: Ready, After: 2 * time.Second}, What: Kill},
				},
			})
		}
	}
	return fixed(points...)
}

// setOtherRelease sets another release, of another registry, for the second operator: if both lead, each replaces the
// helper image of the other.
func setOtherRelease(_ context.Context, r *run) error {
	r.operators[1].options.Env = []string{"OPERATOR_IMAGE=example.com/gpu-operator:next"}
	return nil
}

// followOtherRelease does so, and starts it once the first one leads.
func followOtherRelease(ctx context.Context, r *run) error {
	begin, release := time.Now(), r.operators[1].hold()
	go func() {
		defer release()
		r.fail(r.awaitWithin(ctx, eventually, "the first operator to lead", func() error {
			held := lease()
			if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil {
				return err
			}
			if held.Spec.RenewTime == nil || held.Spec.RenewTime.Time.Before(begin) {
				return errors.New("the lease is an older one")
			}
			return nil
		}))
	}()
	return setOtherRelease(ctx, r)
}
