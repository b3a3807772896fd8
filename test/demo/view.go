package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// view watches the cluster independently of the operator.
type view struct {
	cache     cache.Cache
	catalogue operand.Catalogue
	// changed has a token if something has changed since it was last received.
	changed chan struct{}

	lock sync.Mutex
	// nodeReady and policyReady are when Ready was first observed: for each node by its condition, and for the policy
	// since it was last not ready.
	nodeReady   map[string]time.Time
	policyReady time.Time
}

// newView returns once its caches are synced. They are updated until ctx ends.
func newView(ctx context.Context, cfg *rest.Config, catalogue operand.Catalogue) (*view, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	own := map[string]cache.Config{cluster.OperatorNamespace: {
		LabelSelector: k8slabels.SelectorFromSet(k8slabels.Set{labels.ManagedBy: labels.ManagedByValue}),
	}}
	c, err := cache.New(cfg, cache.Options{
		Scheme:           scheme,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: cachefilter.TrimNode},
			&corev1.Pod{}:       {Namespaces: own, Transform: cachefilter.NewPodTrimmer().Pod},
			&appsv1.DaemonSet{}: {Namespaces: own},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	v := &view{cache: c, catalogue: catalogue, changed: make(chan struct{}, 1), nodeReady: map[string]time.Time{}}
	// Its error is that a watch could not start; WaitForCacheSync below then fails too.
	go func() { _ = c.Start(ctx) }()
	if err := v.listen(ctx); err != nil {
		return nil, fmt.Errorf("watch the cluster: %w", err)
	}
	if !c.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch the cluster: %w", context.Cause(ctx))
	}
	return v, nil
}

func (v *view) listen(ctx context.Context) error {
	handle := func(object any) {
		switch o := object.(type) {
		case *corev1.Node:
			v.noteNode(o)
		case *v1.ClusterPolicy:
			v.notePolicy(o)
		}
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
	if err := v.cache.IndexField(ctx, &corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode); err != nil {
		return err
	}
	for _, kind := range []client.Object{&corev1.Node{}, &corev1.Pod{}, &appsv1.DaemonSet{}, &v1.ClusterPolicy{}} {
		informer, err := v.cache.GetInformer(ctx, kind)
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    handle,
			UpdateFunc: func(_, object any) { handle(object) },
			DeleteFunc: handle,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *view) noteNode(node *corev1.Node) {
	v.lock.Lock()
	defer v.lock.Unlock()
	_, seen := v.nodeReady[node.Name]
	if condition := assess.GPUReadyCondition(node); !seen && isTrue(condition) {
		v.nodeReady[node.Name] = time.Now()
	}
}

func (v *view) notePolicy(policy *v1.ClusterPolicy) {
	v.lock.Lock()
	defer v.lock.Unlock()
	switch ready := isReady(policy); {
	case !ready:
		v.policyReady = time.Time{}
	case v.policyReady.IsZero():
		v.policyReady = time.Now()
	}
}

// isReady reports whether the operator reports the policy as ready for its current spec.
func isReady(policy *v1.ClusterPolicy) bool {
	return policy.Status.State == v1.StateReady && policy.Status.ObservedGeneration == policy.Generation
}

func isTrue(condition *corev1.NodeCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// latest returns a new frame if something has changed since the last one.
func (v *view) latest(ctx context.Context, before frame) (frame, error) {
	select {
	case <-v.changed:
		return v.frame(ctx)
	default:
		return before, nil
	}
}

// frame assesses every GPU node as the operator does.
func (v *view) frame(ctx context.Context) (frame, error) {
	policy, _, err := observe.Policies(ctx, v.cache)
	if err != nil || policy == nil {
		return frame{}, err
	}
	daemonSets, err := observe.DaemonSets(ctx, v.cache, cluster.OperatorNamespace)
	if err != nil {
		return frame{}, err
	}
	nodes := &corev1.NodeList{}
	if err := v.cache.List(ctx, nodes); err != nil {
		return frame{}, err
	}
	f := frame{policy: policy}
	decisions := plan.Decide(v.catalogue,
		operand.Input{Spec: effective.Of(policy.Spec), Namespace: cluster.OperatorNamespace})
	for i := range nodes.Items {
		node := &nodes.Items[i]
		facts := observe.Facts(node)
		if !facts.Managed() {
			continue
		}
		pods, err := observe.PodsOnNode(ctx, v.cache, cluster.OperatorNamespace, node.Name)
		if err != nil {
			return frame{}, err
		}
		condition := assess.GPUReadyCondition(node)
		found := assess.Node(assess.Input{
			NodePlan: decisions.ForNode(facts), Node: node, Pods: pods.Operands, Stack: assess.Stack{
				DaemonSets: daemonSets,
			}, Previous: assess.ReadySinceOf(condition), Now: time.Now(),
		})
		f.rows = append(f.rows, row{name: node.Name, verdict: found.NodeVerdict, condition: condition})
	}
	f.sort()
	return f, nil
}

// times returns how long after begin each node was ready, and all of them and the policy.
func (v *view) times(begin time.Time) (nodes []time.Duration, all time.Duration) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if !v.policyReady.IsZero() {
		all = v.policyReady.Sub(begin)
	}
	for _, at := range v.nodeReady {
		nodes = append(nodes, at.Sub(begin))
		all = max(all, at.Sub(begin))
	}
	return nodes, all
}
