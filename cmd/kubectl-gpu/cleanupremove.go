package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// nodeWorkers is how many nodes are written at a time.
const nodeWorkers = 8

// remove carries out a plan once. The finalizer stays on the policies until all else has succeeded, so that a failed
// cleanup can be repeated, or finished by the operator.
func (o *cleanupOptions) remove(ctx context.Context, out io.Writer, plan *cleanup.Plan) error {
	for i := range plan.Policies {
		if err := o.deletePolicy(ctx, out, &plan.Policies[i]); err != nil {
			return err
		}
	}
	for _, group := range plan.DaemonSets {
		if err := o.deleteOperands(ctx, out, group); err != nil {
			return err
		}
	}
	if err := o.deleteObjects(ctx, out, plan.Others, deletion{}); err != nil {
		return err
	}
	if err := o.releaseNodes(ctx, out, plan.Nodes); err != nil {
		return err
	}
	for i := range plan.Namespaces {
		if err := o.resetNamespace(ctx, out, &plan.Namespaces[i]); err != nil {
			return err
		}
	}
	for i := range plan.Policies {
		if err := o.releasePolicy(ctx, out, &plan.Policies[i]); err != nil {
			return err
		}
	}
	return nil
}

func (o *cleanupOptions) deletePolicy(ctx context.Context, out io.Writer, policy *cleanup.Policy) error {
	if policy.Terminating {
		return nil
	}
	if policy.Hold {
		finalizers := append([]string{labels.RemovalFinalizer}, policy.Finalizers...)
		if err := o.setFinalizers(ctx, policy, finalizers, policy.ResourceVersion); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "Deleting ClusterPolicy %s\n", policy.Name)
	return o.asked.remove(ctx, deletion{}, target{resource: crd.Name, name: policy.Name})
}

// releasePolicy takes the finalizer off a policy.
func (o *cleanupOptions) releasePolicy(ctx context.Context, out io.Writer, policy *cleanup.Policy) error {
	if !policy.Held && !policy.Hold {
		return nil
	}
	fmt.Fprintf(out, "Taking the finalizer off ClusterPolicy %s\n", policy.Name)
	// The deletion has changed the version, and others may only remove their finalizers from now on.
	return o.setFinalizers(ctx, policy, policy.Finalizers, "")
}

func (o *cleanupOptions) setFinalizers(
	ctx context.Context, policy *cleanup.Policy, finalizers []string, resourceVersion string,
) error {
	metadata := map[string]any{"finalizers": finalizers}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	of := target{resource: crd.Name, name: policy.Name}
	return o.asked.merge(ctx, of, map[string]any{"metadata": metadata})
}

// deleteOperands deletes DaemonSets, and waits until their pods are gone. With --force it goes on after the timeout,
// and waits no more: pods on a node whose kubelet does not work never end.
func (o *cleanupOptions) deleteOperands(ctx context.Context, out io.Writer, group []cleanup.Object) error {
	if o.impatient {
		return o.deleteObjects(ctx, out, group, deletion{})
	}
	how := deletion{propagation: metav1.DeletePropagationForeground, wait: o.timeout}
	err := o.deleteObjects(ctx, out, group, how)
	if !errors.Is(err, errStillThere) {
		return err
	}
	if !o.force {
		return fmt.Errorf("%w: the pods of the operands do not end: check their nodes and repeat the command, or add "+
			"--force to go on without them", err)
	}
	fmt.Fprintf(out, "Pods of the operands are still there after %s: going on without them\n", o.timeout)
	o.impatient = true
	return nil
}

// deleteObjects deletes objects that have the kinds and namespaces of a plan.
func (o *cleanupOptions) deleteObjects(
	ctx context.Context, out io.Writer, objects []cleanup.Object, how deletion,
) error {
	var all []target
	for _, object := range objects {
		fmt.Fprintf(out, "Deleting %s\n", object)
		all = append(all, target{object.Resource, object.Namespace, object.Name})
	}
	return o.asked.remove(ctx, how, all...)
}

// releaseNodes removes the operator's marks from nodes, several at a time. A failure concerns one node.
func (o *cleanupOptions) releaseNodes(ctx context.Context, out io.Writer, nodes []cleanup.Node) error {
	released, err := inParallel(nodeWorkers, len(nodes), func(i int) error { return o.releaseNode(ctx, &nodes[i]) })
	if len(nodes) > 0 {
		fmt.Fprintf(out, "Released %d of %s\n", released, count(len(nodes), "node"))
	}
	return err
}

// inParallel calls do with 0 to n-1, by some workers, and returns for how many it succeeded, and the errors of the
// others.
func inParallel(workers, n int, do func(int) error) (succeeded int, err error) {
	failures := make([]error, n)
	next := make(chan int)
	var running sync.WaitGroup
	for range min(workers, n) {
		running.Go(func() {
			for i := range next {
				failures[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	running.Wait()
	for _, failure := range failures {
		if failure == nil {
			succeeded++
		}
	}
	return succeeded, errors.Join(failures...)
}

// releaseNode removes the operator's marks from a node. The condition comes last: it shows what is left to do if the
// command is interrupted.
func (o *cleanupOptions) releaseNode(ctx context.Context, node *cleanup.Node) error {
	of := target{resource: "nodes", name: node.Name}
	if content := node.Removal.NodePatch(); content != nil {
		if err := o.asked.merge(ctx, of, content); err != nil {
			return err
		}
	}
	if content := node.Removal.StatusPatch(); content != nil {
		return o.asked.patch(ctx, of, types.StrategicMergePatchType, content, "status")
	}
	return nil
}

// resetNamespace gives the Pod Security labels of a namespace the values that they had before the operator, and removes
// the others: server-side apply of nothing gives up what the operator owns.
func (o *cleanupOptions) resetNamespace(ctx context.Context, out io.Writer, namespace *cleanup.Namespace) error {
	fmt.Fprintf(out, "Resetting the Pod Security labels of namespace %s\n", namespace.Name)
	if len(namespace.Restored) > 0 {
		content := map[string]any{"metadata": map[string]any{"labels": namespace.Restored}}
		if err := o.asked.merge(ctx, target{resource: "namespaces", name: namespace.Name}, content); err != nil {
			return err
		}
	}
	nothing := applycorev1.Namespace(namespace.Name)
	options := metav1.ApplyOptions{FieldManager: labels.FieldOwner, Force: true}
	_, err := o.asked.core.Namespaces().Apply(ctx, nothing, options)
	return said(err)
}
