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

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// labelWorkers is how many nodes the plain loop labels concurrently.
const labelWorkers = 8

// floor measures the operator's objects without the operator: on nodes that already have all labels, and on nodes
// that a plain loop labels meanwhile, each on its own control plane.
func floor(ctx context.Context, m *measurement) (outcome, error) {
	var out outcome
	for _, kind := range []struct {
		name   name
		what   string
		preset bool
	}{
		{floorTime, "the same without the operator: its objects, on nodes that already have their labels, until the " +
			"DaemonSets are ready", true},
		{labellingFloorTime, "the same, on nodes that a plain loop labels meanwhile", false},
	} {
		err := m.onControlPlane(ctx, func(ctx context.Context, e *env) error {
			work, err := e.addFloorNodes(ctx, kind.preset)
			if err != nil {
				return err
			}
			took, err := e.untilReady(ctx, work)
			out.Figures = append(out.Figures, plain(kind.name, kind.what, took.Seconds(), seconds))
			return err
		})
		if err != nil {
			return outcome{}, err
		}
	}
	return out, nil
}

// bare measures the same number of DaemonSets, each with one container without dependencies.
func bare(ctx context.Context, e *env) (outcome, error) {
	if _, err := e.sim.AddNodes(ctx, e.size); err != nil {
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
	took, err := e.untilReady(ctx, work)
	return outcome{Figures: []figure{
		plain(other, fmt.Sprintf("%d bare DaemonSets", operandCount), took.Seconds(), seconds),
	}}, err
}

// floorWork is the work of an operator for existing nodes.
type floorWork struct {
	// objects are in the order in which the operator applies them.
	objects []client.Object
	// unlabelled are the nodes without the operator's labels.
	unlabelled []string
	labels     map[string]string
}

// untilReady does the work and returns the time until all DaemonSets were ready.
func (e *env) untilReady(ctx context.Context, work floorWork) (time.Duration, error) {
	begin := time.Now()
	group, grouped := errgroup.WithContext(ctx)
	group.Go(func() error { return e.labelAll(grouped, work) })
	group.Go(func() error {
		for _, object := range work.objects {
			if err := e.create(grouped, object); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return 0, err
	}
	err := e.awaitDaemonSets(ctx, operandCount, e.size)
	return time.Since(begin), err
}

// labelAll writes the operator's labels on each node, in one patch.
func (e *env) labelAll(ctx context.Context, work floorWork) error {
	values := map[string]any{}
	for key, value := range work.labels {
		values[key] = value
	}
	return inParallel(ctx, labelWorkers, work.unlabelled, func(ctx context.Context, node string) error {
		return e.labelNode(ctx, node, values)
	})
}

// addFloorNodes creates nodes, with the operator's labels if preset, and returns the remaining work.
func (e *env) addFloorNodes(ctx context.Context, preset bool) (floorWork, error) {
	spec := e.stages.node()
	name, err := e.sim.AddNode(ctx, spec)
	if err != nil {
		return floorWork{}, err
	}
	// All others are identical to the first one.
	work, err := e.floorWork(ctx, name)
	if err != nil {
		return floorWork{}, err
	}
	work.unlabelled = []string{name}
	if preset {
		if err := e.labelAll(ctx, work); err != nil {
			return floorWork{}, err
		}
		all := maps.Clone(work.labels)
		maps.Copy(all, spec.Labels)
		spec.Labels, work.unlabelled = all, nil
	}
	names, err := e.sim.AddNodesOf(ctx, e.size-1, spec)
	if !preset {
		work.unlabelled = append(work.unlabelled, names...)
	}
	return work, err
}

// floorWork returns the operator's work if all nodes are identical to this one.
func (e *env) floorWork(ctx context.Context, name string) (floorWork, error) {
	wanted, err := e.wanted()
	if err != nil {
		return floorWork{}, err
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return floorWork{}, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := e.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return floorWork{}, fmt.Errorf("read node %s: %w", name, err)
	}
	decisions := plan.Decide(catalogue,
		operand.Input{Spec: effective.Of(wanted.Spec), Namespace: namespace, OperatorImage: image.Own()})
	facts, preset := observe.Facts(node), map[string]string{}
	for key, value := range decisions.NodeLabels(facts, node.Labels, plan.ReadyPods{Injector: true}) {
		if value != nil {
			preset[key] = *value
		}
	}
	maps.Copy(node.Labels, preset)
	objects, err := rendered(plan.Compute(decisions, nil, []nodeinfo.Facts{observe.Facts(node)}), wanted.Name)
	return floorWork{objects: objects, labels: preset}, err
}

// rendered returns the objects of a plan, in the order in which they are applied.
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
			// There is no policy to own them.
			intent.SetOwnerReferences(nil)
			objects = append(objects, intent)
		}
	}
	return objects, nil
}
