package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// policies are the ClusterPolicies.
var policies = v1.GroupVersion.WithResource("clusterpolicies")

var (
	// gpuNodes selects the nodes with GPUs.
	gpuNodes = metav1.ListOptions{LabelSelector: labels.GPUPresent + "=" + labels.True}
	// tenants selects the pods that may have GPUs: those on a node that have not ended and are not of an operand.
	tenants = metav1.ListOptions{
		LabelSelector: labels.ManagedBy + "!=" + labels.ManagedByValue,
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
	}
)

// gpuNodesLabelled selects the nodes with GPUs that have other labels, too; any for "".
func gpuNodesLabelled(selector string) metav1.ListOptions {
	options := gpuNodes
	if selector != "" {
		options.LabelSelector += "," + selector
	}
	return options
}

// liveCluster is what an overview is computed from, as it changes.
type liveCluster struct {
	asked *session
	// ofNodes selects the nodes, and names those among them; none for all.
	ofNodes metav1.ListOptions
	names   []string
	// changed has an element if something has changed since it was taken.
	changed chan struct{}
	// versions of the lists.
	versions struct{ policies, nodes, pods string }
	// podsUnknown is why the pods cannot be listed; nil if they can.
	podsUnknown error

	mu       sync.Mutex
	policies map[types.UID]*v1.ClusterPolicy
	nodes    map[types.UID]*corev1.Node
	usage    *overview.Usage
}

func newLiveCluster(asked *session) *liveCluster {
	return &liveCluster{asked: asked, ofNodes: gpuNodes, changed: make(chan struct{}, 1)}
}

// read lists all objects. Pods that cannot be listed are no error.
func (c *liveCluster) read(ctx context.Context) error {
	return c.readSome(ctx, c.ofNodes, &tenants)
}

// readSome lists all policies, and the nodes and pods with these options. For nil it lists no pods, so that what is
// free is unknown.
func (c *liveCluster) readSome(ctx context.Context, ofNodes metav1.ListOptions, ofPods *metav1.ListOptions) error {
	next := newLiveCluster(c.asked)
	next.policies, next.nodes = map[types.UID]*v1.ClusterPolicy{}, map[types.UID]*corev1.Node{}
	versions, core := &next.versions, c.asked.core
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		versions.policies, err = listPolicies(groupCtx, c.asked, added(next.setPolicy))
		return err
	})
	group.Go(func() (err error) {
		versions.nodes, err = list(groupCtx, core.Nodes().List, ofNodes, added(next.setNode))
		return err
	})
	if ofPods != nil {
		next.usage = &overview.Usage{}
		group.Go(func() error {
			versions.pods, next.podsUnknown = list(groupCtx, core.Pods("").List, *ofPods, added(next.setPod))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if next.podsUnknown != nil {
		next.usage = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions, c.podsUnknown = next.versions, next.podsUnknown
	c.policies, c.nodes, c.usage = next.policies, next.nodes, next.usage
	return nil
}

// follow takes up changes until a watch ends; then all must be read again.
func (c *liveCluster) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	start := func(follow func() error) {
		group.Go(func() error {
			defer cancel()
			if err := follow(); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	core := c.asked.core
	start(func() error {
		all := c.asked.objects.Resource(policies)
		return watch(ctx, all.Watch, metav1.ListOptions{}, c.versions.policies, c.setRawPolicy)
	})
	start(func() error { return watch(ctx, core.Nodes().Watch, c.ofNodes, c.versions.nodes, c.setNode) })
	if c.podsUnknown == nil {
		start(func() error { return watch(ctx, core.Pods("").Watch, tenants, c.versions.pods, c.setPod) })
	}
	return group.Wait()
}

// setRawPolicy takes up a policy of a watch. What is no policy at all is left out.
func (c *liveCluster) setRawPolicy(deleted bool, object *unstructured.Unstructured) {
	if policy, err := decodePolicy(object); err == nil {
		c.setPolicy(deleted, policy)
	}
}

func (c *liveCluster) setPolicy(deleted bool, policy *v1.ClusterPolicy) {
	policy.ManagedFields = nil
	c.change(func() { set(c.policies, policy.UID, policy, deleted) })
}

func (c *liveCluster) setNode(deleted bool, node *corev1.Node) {
	node.ManagedFields, node.Status.Images = nil, nil
	c.change(func() { set(c.nodes, node.UID, node, deleted) })
}

func (c *liveCluster) setPod(deleted bool, pod *corev1.Pod) {
	c.change(func() {
		if deleted {
			c.usage.Delete(pod.UID)
		} else {
			c.usage.Set(pod)
		}
	})
}

// added returns the function that adds an object.
func added[T any](change func(deleted bool, object *T)) func(*T) {
	return func(object *T) { change(false, object) }
}

func set[T any](all map[types.UID]T, uid types.UID, object T, deleted bool) {
	if deleted {
		delete(all, uid)
	} else {
		all[uid] = object
	}
}

func (c *liveCluster) change(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// overview returns the overview of the cluster as it is now.
func (c *liveCluster) overview() overview.Overview {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := slices.DeleteFunc(slices.Collect(maps.Values(c.nodes)), func(node *corev1.Node) bool {
		return len(c.names) > 0 && !slices.Contains(c.names, node.Name)
	})
	return overview.Of(overview.Cluster{
		Policy: activeOf(slices.Collect(maps.Values(c.policies))), Nodes: nodes, Usage: c.usage,
	})
}

// freeUnknown returns why it is unknown what is free; nil if it is known.
func (c *liveCluster) freeUnknown() error {
	if c.podsUnknown == nil {
		return nil
	}
	return fmt.Errorf("what is free is unknown: %w", c.podsUnknown)
}

// activeOf returns the policy that the operator acts on: the active one, or else the one whose stack it removes; nil
// for none.
func activeOf(all []*v1.ClusterPolicy) *v1.ClusterPolicy {
	if active := observe.Active(all); active != nil {
		return active
	}
	deleted := make([]v1.ClusterPolicy, 0, len(all))
	for _, policy := range all {
		deleted = append(deleted, *policy)
	}
	return observe.Removed(deleted)
}

// errNotServed: the cluster has no ClusterPolicies at all.
var errNotServed = errors.New("the cluster does not serve ClusterPolicies: install the operator, or choose " +
	"another context")

// listPolicies hands each policy to each, and returns the resource version of the list.
func listPolicies(ctx context.Context, asked *session, each func(*v1.ClusterPolicy)) (string, error) {
	var broken error
	version, err := list(ctx, asked.objects.Resource(policies).List, metav1.ListOptions{},
		func(object *unstructured.Unstructured) {
			policy, err := decodePolicy(object)
			if err != nil {
				broken = errors.Join(broken, err)
				return
			}
			each(policy)
		})
	if apierrors.IsNotFound(err) {
		return "", errNotServed
	}
	return version, errors.Join(err, broken)
}
