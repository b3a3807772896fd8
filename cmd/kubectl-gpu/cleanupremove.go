package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

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
	if err := o.deleteObjects(ctx, out, plan.Others, "--wait=false"); err != nil {
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
	_, err := o.kubectl.run(ctx, nil, "delete", crd.Name, policy.Name, "--ignore-not-found", "--wait=false")
	return err
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
	return o.kubectl.patch(ctx, map[string]any{"metadata": metadata}, crd.Name, policy.Name, "--type=merge")
}

// patch patches an object that args name, unless it is gone.
func (k kubectl) patch(ctx context.Context, content map[string]any, args ...string) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = k.run(ctx, nil, "patch", append(args, "--patch="+string(text))...)
	if answered(err, "NotFound") {
		return nil
	}
	return err
}

// deleteOperands deletes DaemonSets, and waits until their pods are gone. With --force it goes on after the timeout,
// and waits no more: pods on a node whose kubelet does not work never end.
func (o *cleanupOptions) deleteOperands(ctx context.Context, out io.Writer, group []cleanup.Object) error {
	if o.impatient {
		return o.deleteObjects(ctx, out, group, "--wait=false")
	}
	err := o.deleteObjects(ctx, out, group, "--cascade=foreground", "--timeout="+o.timeout.String())
	if err == nil || !strings.Contains(err.Error(), "timed out waiting") {
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

// deleteObjects deletes objects that have the kinds and namespaces of a plan, in one call for those that agree in both.
func (o *cleanupOptions) deleteObjects(
	ctx context.Context, out io.Writer, objects []cleanup.Object, flags ...string,
) error {
	for begin := 0; begin < len(objects); {
		first, end := objects[begin], begin
		args := []string{first.Resource}
		for end < len(objects) && objects[end].Resource == first.Resource && objects[end].Namespace == first.Namespace {
			fmt.Fprintf(out, "Deleting %s\n", objects[end])
			args = append(args, objects[end].Name)
			end++
		}
		begin = end
		if first.Namespace != "" {
			args = append(args, "--namespace="+first.Namespace)
		}
		if _, err := o.kubectl.run(ctx, nil, "delete", append(append(args, "--ignore-not-found"), flags...)...); err != nil {
			return err
		}
	}
	return nil
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
	if content := node.Removal.NodePatch(); content != nil {
		if err := o.kubectl.patch(ctx, content, "node", node.Name, "--type=merge"); err != nil {
			return err
		}
	}
	if content := node.Removal.StatusPatch(); content != nil {
		return o.kubectl.patch(ctx, content, "node", node.Name, "--subresource=status", "--type=strategic")
	}
	return nil
}

// resetNamespace gives the Pod Security labels of a namespace the values that they had before the operator, and removes
// the others: server-side apply of nothing gives up what the operator owns.
func (o *cleanupOptions) resetNamespace(ctx context.Context, out io.Writer, namespace *cleanup.Namespace) error {
	fmt.Fprintf(out, "Resetting the Pod Security labels of namespace %s\n", namespace.Name)
	if len(namespace.Restored) > 0 {
		content := map[string]any{"metadata": map[string]any{"labels": namespace.Restored}}
		if err := o.kubectl.patch(ctx, content, "namespace", namespace.Name, "--type=merge"); err != nil {
			return err
		}
	}
	nothing, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace.Name},
	})
	if err != nil {
		return fmt.Errorf("encoding a Namespace: %w", err)
	}
	_, err = o.kubectl.run(ctx, nothing, "apply", "--server-side", "--field-manager="+labels.FieldOwner,
		"--force-conflicts", "--filename=-")
	return err
}
