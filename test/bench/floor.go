package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// labelWorkers is how many nodes the bare loop labels at a time.
const labelWorkers = 8

// floor measures what the operator's own objects take without it: on nodes that have all labels already, and on nodes
// that get them from a bare loop meanwhile. Each on a control plane of its own.
func floor(ctx context.Context, m *measurement) (outcome, error) {
	var out outcome
	for _, kind := range []struct {
		name   name
		what   string
		preset bool
	}{
		{floorTime, "the same without the operator: its objects, on nodes that have their labels, until the DaemonSets are ready", true},
		{labellingFloorTime, "the same, on nodes that a bare loop labels meanwhile", false},
	} {
		err := m.onControlPlane(ctx, func(ctx context.Context, b *bed) error {
			work, err := b.addFloorNodes(ctx, kind.preset)
			if err != nil {
				return err
			}
			took, err := b.untilReady(ctx, work)
			out.Figures = append(out.Figures, plain(kind.name, kind.what, took.Seconds(), seconds))
			return err
		})
		if err != nil {
			return outcome{}, err
		}
	}
	return out, nil
}

// bare measures as many DaemonSets of one container that needs nothing.
func bare(ctx context.Context, b *bed) (outcome, error) {
	if _, err := b.sim.AddNodes(ctx, b.size); err != nil {
		return outcome{}, err
	}
	var work floorWork
	for i := range operandCount {
		name := fmt.Sprintf("bare-%d", i)
		pods := map[string]string{labels.App: name}
		work.objects = append(work.objects, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: pods},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: pods},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/pause:1"}}},
				},
			},
		})
	}
	took, err := b.untilReady(ctx, work)
	return outcome{Figures: []figure{
		plain(bareTime, fmt.Sprintf("%d bare DaemonSets", operandCount), took.Seconds(), seconds),
	}}, err
}

// floorWork is what an operator is left to do on nodes that are there.
type floorWork struct {
	// objects in the order in which the operator applies them.
	objects []client.Object
	// unlabelled are the nodes without the labels that it writes.
	unlabelled []string
	labels     map[string]string
}

// untilReady does the work and returns how long it took until all DaemonSets were ready.
func (b *bed) untilReady(ctx context.Context, work floorWork) (time.Duration, error) {
	begin := time.Now()
	group, grouped := errgroup.WithContext(ctx)
	group.Go(func() error { return b.labelAll(grouped, work) })
	group.Go(func() error {
		for _, object := range work.objects {
			if err := b.create(grouped, object); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return 0, err
	}
	err := b.awaitDaemonSets(ctx, operandCount, b.size)
	return time.Since(begin), err
}

// labelAll writes what the operator would on each node, by one patch.
func (b *bed) labelAll(ctx context.Context, work floorWork) error {
	values := map[string]any{}
	for key, value := range work.labels {
		values[key] = value
	}
	return inParallel(ctx, labelWorkers, work.unlabelled, func(ctx context.Context, node string) error {
		return b.labelNode(ctx, node, values)
	})
}

// addFloorNodes makes nodes, with the labels that the operator would write if they are preset, and returns what is
// left to do.
func (b *bed) addFloorNodes(ctx context.Context, preset bool) (floorWork, error) {
	spec := b.stages.node()
	name, err := b.sim.AddNode(ctx, spec)
	if err != nil {
		return floorWork{}, err
	}
	// All others are like the first one.
	work, err := b.floorWork(ctx, name)
	if err != nil {
		return floorWork{}, err
	}
	work.unlabelled = []string{name}
	if preset {
		if err := b.labelAll(ctx, work); err != nil {
			return floorWork{}, err
		}
		all := maps.Clone(work.labels)
		maps.Copy(all, spec.Labels)
		spec.Labels, work.unlabelled = all, nil
	}
	names, err := b.sim.AddNodesOf(ctx, b.size-1, spec)
	if !preset {
		work.unlabelled = append(work.unlabelled, names...)
	}
	return work, err
}

// floorWork is what the operator would do where all nodes are like this one.
func (b *bed) floorWork(ctx context.Context, name string) (floorWork, error) {
	wanted, err := policy()
	if err != nil {
		return floorWork{}, err
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return floorWork{}, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return floorWork{}, fmt.Errorf("read node %s: %w", name, err)
	}
	decisions := plan.Decide(catalogue, operand.Input{Spec: effective.Of(wanted.Spec), Namespace: namespace, HelperImage: image.Own()})
	facts, preset := observe.Facts(node), map[string]string{}
	for key, value := range decisions.NodeLabels(facts, node.Labels, plan.Running{Injector: true}) {
		if value != nil {
			preset[key] = *value
		}
	}
	maps.Copy(node.Labels, preset)
	objects, err := rendered(plan.Compute(decisions, nil, []nodeinfo.Facts{observe.Facts(node)}), wanted.Name)
	return floorWork{objects: objects, labels: preset}, err
}

// rendered are the objects of a plan, in the order in which they are applied.
func rendered(p plan.Plan, owner string) ([]client.Object, error) {
	var objects []client.Object
	for _, step := range p.Steps {
		if step.Action != plan.Apply {
			continue
		}
		all, err := render.Step(p, step, render.Owner{Name: owner}, nil)
		if err != nil {
			return nil, err
		}
		for _, object := range all {
			intent, err := apply.Intent(object)
			if err != nil {
				return nil, err
			}
			// There is no policy to belong to.
			intent.SetOwnerReferences(nil)
			objects = append(objects, intent)
		}
	}
	return objects, nil
}
