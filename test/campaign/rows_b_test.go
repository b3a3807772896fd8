package campaign

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

func watchRows() []row {
	return []row{
		{
			id: "B1", what: "the watches of one kind stall for 5 s and 20 s, also while passes run", sample: 1,
			points: onEachKind(changing, func(kind string) []point {
				all := []point{
					held(kind, specChange, 5*time.Second), held(kind, specChange, 20*time.Second),
					held(kind, scale, 5*time.Second), held(kind, scale, 20*time.Second), held(kind, disable, 20*time.Second),
				}
				if kind != "clusterpolicies" {
					all = append(all, heldWithPasses(kind))
				}
				return all
			})},
		{id: "B2", what: "a restart with the state before the change, for 8 s", sample: 1, points: fixed(
			timeTravel(specChange), timeTravel(scale), timeTravel(disable), timeTravel(remove),
		)},
		{id: "B3", what: "an event and the one that reverts it are never delivered", sample: 1, points: hiddenEvents()},
		{id: "B4", what: "no bookmarks; or only the one that ends the initial list is missing", sample: 1, points: fixed(
			streamed("bookmarks", install, Start, fault.Stream{NoBookmarks: true}, 8*time.Second, options{exits: true}),
			streamed("initial-end", install, Start, fault.Stream{NoInitialEnd: true}, 8*time.Second, options{exits: true}),
		)},
		{
			id: "B5", what: "every watch fails with 410, is cut each second, or delivers nothing, for 10 s", sample: 1,
			points: brokenWatches(),
		},
		leftOut("B6", "etcd is compacted while the operator is disconnected",
			"for a client it is the 410 of B5; nothing here compacts etcd"),
		{id: "B7", what: "events are delivered twice, or late, by kind", sample: 1, points: onEachKind(watched,
			func(kind string) []point {
				return []point{
					ofKind("twice", kind, fault.Stream{Twice: true}), ofKind("late", kind,
						fault.Stream{Delay: 300 * time.Millisecond}),
				}
			})},
		leftOut("B8", "reads that wait for own writes, enabled and disabled",
			"the operator has no such switch: package freshness always waits for its own writes"),
		{id: "B9", what: "an object is re-created by name while its watch stalls", sample: 1, points: fixed(
			replaced(rest, "node", "nodes", replaceNode, options{counts: true, mayGo: everything}),
			replaced(rest, "daemonset", "daemonsets", deleteNamed(daemonSetNamed(pluginName)),
				options{counts: true, mayGo: ofOperand("device-plugin")}),
			replaced(mig, "configmap", "configmaps", deleteNamed(migMapObject()), options{counts: true}),
		)},
	}
}

// changing are the resources of which a workload causes events.
var changing = []string{"nodes", "pods", "daemonsets", "clusterpolicies"}

// onEachKind returns points for each of some resources.
func onEachKind(kinds []string, of func(kind string) []point) func(context.Context, *campaign) ([]point, error) {
	var points []point
	for _, kind := range kinds {
		points = append(points, of(kind)...)
	}
	return fixed(points...)
}

func watches(kinds ...string) fault.Match {
	return fault.Match{Verbs: []string{fault.Watch}, Resources: kinds}
}

// held returns a cache that is frozen from right before the change.
func held(kind string, w *workload, d time.Duration) point {
	return point{
		name: fmt.Sprintf("%s/%s/%.0fs", w.id, kind, d.Seconds()), workload: w,
		faults: []Fault{
			{When: When{Moment: Ready}, What: API{{Match: watches(kind), Stream: fault.Stream{Hold: true}}}, For: d},
		},
		options: options{blind: true},
	}
}

// heldWithPasses returns a cache that is frozen while a pass is triggered each second.
func heldWithPasses(kind string) point {
	p := held(kind, specChange, 20*time.Second)
	p.name = fmt.Sprintf("%s/%s/passes", specChange.id, kind)
	p.faults = append(p.faults,
		Fault{When: When{Moment: Changed}, What: Repeated{time.Second, touchPolicy}, For: 12 * time.Second})
	return p
}

// touchPolicy changes a deadline that affects no object, and reverts it.
func touchPolicy(ctx context.Context, r *run) error {
	for _, deadlines := range []*v1.DeadlinesSpec{{Other: "14m"}, nil} {
		if err := respec(ctx, r, func(spec *v1.ClusterPolicySpec) { spec.Deadlines = deadlines }); err != nil {
			return err
		}
	}
	return nil
}

// timeTravel: writes by an old view must not permanently undo the change.
func timeTravel(w *workload) point {
	return point{
		name: w.id, workload: w,
		faults: []Fault{{When: When{Moment: Changed}, What: Past(Ready), For: 8 * time.Second}},
		// The first process observed the change, the second undid it and the third redid it.
		options: options{blind: true, exits: true, counts: true, mayGo: everything},
	}
}

func everything(string, string) bool { return true }

func ofOperand(name string) func(operand, node string) bool {
	return func(operand, _ string) bool { return operand == name }
}

// streamed returns a fault of all watches from a moment on.
func streamed(name string, w *workload, moment Moment, stream fault.Stream, d time.Duration, o options) point {
	cut := fault.Rule{Match: watches(watched...), Stream: fault.Stream{Cut: time.Second}}
	return point{
		name: w.id + "/" + name, workload: w, options: o,
		faults: []Fault{
			{When: When{Moment: moment}, What: API{{Match: watches(watched...), Stream: stream}}, For: d},
			// The held events would never be delivered: restart the watches.
			{When: When{Moment: moment, After: d}, What: API{cut}, For: 1500 * time.Millisecond},
		},
	}
}

func brokenWatches() func(context.Context, *campaign) ([]point, error) {
	const long = 10 * time.Second
	var points []point
	for _, w := range []*workload{install, specChange, scale} {
		moment := Ready
		if w.change == nil {
			moment = Start
		}
		o := options{exits: true, blind: true, after: relistsAreBounded}
		points = append(points,
			streamed("gone", w, moment, fault.Stream{Gone: true, Cut: time.Second}, long, o),
			streamed("cut", w, moment, fault.Stream{Cut: time.Second}, long, o),
			streamed("silent", w, moment, fault.Stream{Silence: true}, long, o),
		)
	}
	return fixed(points...)
}

// relistsAreBounded: each kind is listed at most a few times a second, however its watch fails.
func relistsAreBounded(_ context.Context, r *run) error {
	const most = 60
	for request, count := range r.operators[0].proxy.Reads() {
		if request.Verb != fault.Get && count > most {
			return fmt.Errorf("%d requests to %s in about 30 s", count, request)
		}
	}
	return nil
}

func ofKind(name, kind string, stream fault.Stream) point {
	return point{
		name: "G/" + kind + "/" + name, workload: specChange,
		faults: []Fault{
			{When: When{Moment: Start}, What: API{{Match: watches(kind), Stream: stream}}, For: 15 * time.Second},
		},
		options: options{blind: true},
	}
}

// hiddenEvents: the watch of a kind delivers nothing while an object is changed and reverted.
func hiddenEvents() func(context.Context, *campaign) ([]point, error) {
	pairs := []struct {
		name, kind string
		there      Actor
	}{
		{
			"label", "nodes",
			Actor{Does: labelNode(labels.DiscoveryPCIPresent, "false"), Back: labelNode(labels.DiscoveryPCIPresent, "true")},
		},
		{"cordon", "nodes", Actor{Does: cordonNode(true), Back: cordonNode(false)}},
		{"note", "nodes", Actor{Does: labelNode(invariantLabel, "1"), Back: labelNode(invariantLabel, "")}},
		{"daemonset", "daemonsets", Actor{Does: labelDaemonSet("changed"), Back: labelDaemonSet("")}},
	}
	var points []point
	for _, pair := range pairs {
		points = append(points, point{
			name: "rest/" + pair.name, workload: rest,
			faults: []Fault{
				{
					When: When{Moment: Ready}, What: API{{Match: watches(pair.kind), Stream: fault.Stream{Silence: true}}},
					For: 3 * time.Second,
				},
				{When: When{Moment: Ready}, What: pair.there, For: time.Second},
			},
			options: options{blind: true},
		})
	}
	return fixed(points...)
}

// replaced returns an object that is re-created while the operator observes the old one.
func replaced(w *workload, name, kind string, replace func(context.Context, *run) error, o options) point {
	o.blind = true
	return point{
		name: w.id + "/" + name, workload: w, options: o,
		faults: []Fault{
			{
				When: When{Moment: Ready}, What: API{{Match: watches(kind), Stream: fault.Stream{Hold: true}}},
				For: 4 * time.Second,
			},
			{When: When{Moment: Ready}, What: Actor{Does: replace}},
		},
	}
}

// replaceNode deletes a node with its pods, and re-creates it.
func replaceNode(ctx context.Context, r *run) error {
	if err := r.removeNode(ctx, 0); err != nil {
		return err
	}
	return r.addNode(ctx, r.workload, 0)
}

// labelNode sets a label of the first node; the empty value removes it.
func labelNode(key, value string) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}
		return edit[client.Object](ctx, r.quiet, node, func(object client.Object) {
			all := object.GetLabels()
			if value == "" {
				delete(all, key)
			} else {
				all[key] = value
			}
			object.SetLabels(all)
		})
	}
}

func cordonNode(cordon bool) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		return edit(ctx, r.quiet, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}},
			func(node *corev1.Node) { node.Spec.Unschedulable = cordon })
	}
}
