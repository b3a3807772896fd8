package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func nodeRows() []row {
	return []row{
		{id: "N1", what: "the discovery labels are removed from all nodes, and restored", sample: 1, points: fixed(
			flap(rest, time.Second), flap(rest, 10*time.Second), flap(specChange, 5*time.Second), flap(disable, 5*time.Second),
		)},
		{id: "N2", what: "the labels of one node have another format, or some of them are missing", sample: 1, points: fixed(
			relabelled("prefix",
				map[string]any{labels.DiscoveryPCIPresent: nil, labels.DiscoveryPrefix + "pci-0302_10de_x.present": "true"}),
			relabelled("kernel", map[string]any{labels.DiscoveryKernel: nil}),
			relabelled("system", map[string]any{labels.DiscoveryOSID: nil, labels.DiscoveryOSVersion: nil}),
			relabelled("older", map[string]any{labels.DiscoveryOSVersion: "22.04"}),
		)},
		{id: "N3", what: "the labels of one node are malformed", sample: 1, points: fixed(
			relabelled("empty", map[string]any{labels.DiscoveryKernel: "", labels.DiscoveryOSID: ""}),
			relabelled("long", map[string]any{labels.DiscoveryKernel: strings.Repeat("k", 63)}),
			relabelled("upper", map[string]any{labels.DiscoveryOSID: "UBUNTU_X.Y"}),
			relabelled("contradiction", map[string]any{labels.DiscoveryPCIPresent: "false"}),
			// Not the label of the pool: overwriting it moves the driver, as documented.
			relabelled("forged", map[string]any{labels.GPUPresent: "false"}),
		)},
		{id: "N4", what: "20 nodes join and leave simultaneously; a node flaps Ready", sample: 1, points: fixed(
			point{
				name: "rest/burst", workload: rest, faults: []Fault{{When: When{Moment: Ready}, What: Actor{Does: burst}}},
				options: options{counts: true},
			},
			point{name: "rest/flap", workload: rest, options: options{}, faults: []Fault{
				{When: When{Moment: Ready}, What: Actor{Does: flapReady}},
			}},
		)},
		{
			id: "N5", what: "a user's label that opts a node out of an operand stays through a flap of discovery", sample: 1,
			points: fixed(
				point{name: "rest/deploy", workload: rest, options: options{
					counts: true, differs: true, after: overrideIsKept, mayGo: ofOperand(discovery),
				}, faults: []Fault{
					{When: When{Moment: Ready}, What: Actor{Does: labelNode(labels.DeployPrefix+discovery, labels.False)}},
					{
						When: When{Moment: Ready, After: 2 * time.Second}, What: Actor{Does: hideDiscovery, Back: showDiscovery},
						For: 2 * time.Second,
					},
				}},
			)},
		elsewhere("N6", "a node that offers nothing, shares, or what a label contradicts: its status agrees with itself",
			"TestGPUsThatNothingOffers (internal/node/assess), TestSharesAreNoGPUs (internal/node/readiness)"),
		elsewhere("N7", "the marker of a driver whose kernel module is gone",
			"TestMarkersNeedTheirModule (internal/onnode/marker)"),
	}
}

// flap: it must not delete pods.
func flap(w *workload, d time.Duration) point {
	return point{
		name: fmt.Sprintf("%s/%.0fs", w.id, d.Seconds()), workload: w,
		faults:  []Fault{{When: When{Moment: Ready}, What: Actor{Does: hideDiscovery, Back: showDiscovery}, For: d}},
		options: options{},
	}
}

// discoveryLabels returns those of the nodes here.
func discoveryLabels(node *corev1.Node) map[string]string {
	found := map[string]string{}
	for key, value := range node.Labels {
		if strings.HasPrefix(key, labels.DiscoveryPrefix) {
			found[key] = value
		}
	}
	return found
}

// hiddenKey is an annotation that stores the labels which were removed from a node.
const hiddenKey = "test.example.org/hidden"

func hideDiscovery(ctx context.Context, r *run) error {
	return r.eachNode(ctx, func(node *corev1.Node) {
		hidden := discoveryLabels(node)
		text, err := json.Marshal(hidden)
		if err != nil || len(hidden) == 0 {
			return
		}
		for key := range hidden {
			delete(node.Labels, key)
		}
		node.Annotations[hiddenKey] = string(text)
	})
}

func showDiscovery(ctx context.Context, r *run) error {
	return r.eachNode(ctx, func(node *corev1.Node) {
		hidden := map[string]string{}
		if json.Unmarshal([]byte(node.Annotations[hiddenKey]), &hidden) != nil {
			return
		}
		for key, value := range hidden {
			node.Labels[key] = value
		}
		delete(node.Annotations, hiddenKey)
	})
}

func (r *run) eachNode(ctx context.Context, change func(*corev1.Node)) error {
	list := &corev1.NodeList{}
	if err := r.quiet.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		if err := edit(ctx, r.quiet, &list.Items[i], change); err != nil {
			return err
		}
	}
	return nil
}

// relabelled returns a node whose labels change for some seconds. No other node is written, and no pod deleted.
func relabelled(name string, change map[string]any) point {
	return point{
		name: "rest/" + name, workload: rest,
		faults: []Fault{{When: When{Moment: Ready}, For: 4 * time.Second, What: Actor{
			Does: func(ctx context.Context, r *run) error {
				text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": change}})
				if err != nil {
					return err
				}
				return errors.Join(hideNode(ctx, r),
					r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}, string(text)))
			},
			Back: func(ctx context.Context, r *run) error {
				added := map[string]any{}
				for key := range change {
					added[key] = nil
				}
				text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": added}})
				if err != nil {
					return err
				}
				return errors.Join(r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}, string(text)),
					showDiscovery(ctx, r))
			},
		}}},
		options: options{only: []string{nodeName(0)}, counts: true},
	}
}

// hideNode stores the current labels of node 0, without removing any.
func hideNode(ctx context.Context, r *run) error {
	return edit(ctx, r.quiet, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}, func(node *corev1.Node) {
		// A map of strings can always be encoded.
		text, _ := json.Marshal(discoveryLabels(node))
		node.Annotations[hiddenKey] = string(text)
	})
}

func burst(ctx context.Context, r *run) error {
	const first, last = fewNodes, fewNodes + 20
	for number := first; number < last; number++ {
		if err := r.addNode(ctx, r.workload, number); err != nil {
			return err
		}
	}
	if err := r.awaitWithin(
		ctx, convergeTime, "the burst of nodes to be ready", func() error { return r.isReady(ctx, last) },
	); err != nil {
		return err
	}
	for number := first; number < last; number++ {
		if err := r.removeNode(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// flapReady makes the kubelet of a node report NotReady repeatedly, for a second each.
func flapReady(ctx context.Context, r *run) error {
	for i := range 6 {
		status := corev1.ConditionFalse
		if i%2 == 1 {
			status = corev1.ConditionTrue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Campaign"}]}}`, status)
		if err := r.strategicStatus(ctx, node, patch); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

func overrideIsKept(ctx context.Context, r *run) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}}
	return r.awaitWithin(ctx, eventually, "the user's label", func() error {
		if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		if got := node.Labels[labels.DeployPrefix+discovery]; got != labels.False {
			return fmt.Errorf("S8 the label is %q", got)
		}
		return nil
	})
}
