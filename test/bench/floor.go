package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// floor measures what the operator's own objects take without it, on nodes that have all labels already.
func floor(ctx context.Context, b *bed) (outcome, error) {
	objects, err := b.presetNodes(ctx)
	if err != nil {
		return outcome{}, err
	}
	took, err := b.untilReady(ctx, objects)
	return outcome{Figures: []figure{
		plain(floorTime, "the same without the operator: its objects, on nodes that have their labels, until the DaemonSets are ready", took.Seconds(), seconds),
	}}, err
}

// bare measures as many DaemonSets of one container that needs nothing.
func bare(ctx context.Context, b *bed) (outcome, error) {
	if _, err := b.sim.AddNodes(ctx, b.size); err != nil {
		return outcome{}, err
	}
	var objects []client.Object
	for i := range operandCount {
		name := fmt.Sprintf("bare-%d", i)
		pods := map[string]string{labels.App: name}
		objects = append(objects, &appsv1.DaemonSet{
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
	took, err := b.untilReady(ctx, objects)
	return outcome{Figures: []figure{
		plain(bareTime, fmt.Sprintf("%d bare DaemonSets", operandCount), took.Seconds(), seconds),
	}}, err
}

// untilReady creates objects and returns how long it took until all DaemonSets were ready.
func (b *bed) untilReady(ctx context.Context, objects []client.Object) (time.Duration, error) {
	begin := time.Now()
	for _, object := range objects {
		if err := b.client.Create(ctx, object); err != nil {
			return 0, fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	err := b.awaitDaemonSets(ctx, operandCount, b.size)
	return time.Since(begin), err
}

// presetNodes makes nodes with the labels that the operator would write, and returns the objects that it would apply.
func (b *bed) presetNodes(ctx context.Context) ([]client.Object, error) {
	wanted, err := policy()
	if err != nil {
		return nil, err
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	decisions := plan.Decide(catalogue, operand.Input{Spec: effective.Of(wanted.Spec), Namespace: namespace, HelperImage: image.Own()})
	node := &corev1.Node{}
	// The first node tells what all are like.
	if node.Name, err = b.sim.AddNode(ctx, simulator.NodeSpec{}); err != nil {
		return nil, err
	}
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return nil, fmt.Errorf("read node %s: %w", node.Name, err)
	}
	facts := observe.Facts(node)
	preset, spec := map[string]any{}, simulator.NodeSpec{Labels: map[string]string{}}
	for key, value := range decisions.NodeLabels(facts, node.Labels, false) {
		if value != nil {
			preset[key], spec.Labels[key] = *value, *value
		}
	}
	if err := b.labelNode(ctx, node.Name, preset); err != nil {
		return nil, err
	}
	if err := b.each(ctx, make([]string, b.size-1), func(ctx context.Context, _ string) error {
		_, err := b.sim.AddNode(ctx, spec)
		return err
	}); err != nil {
		return nil, err
	}
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return nil, fmt.Errorf("read node %s: %w", node.Name, err)
	}
	return rendered(plan.Compute(decisions, nil, []operand.NodeFacts{observe.Facts(node)}), wanted.Name)
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
