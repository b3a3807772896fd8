package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// cleanupCommand finishes a removal that the operator does not finish.
const cleanupCommand = "kubectl gpu cleanup"

// uninstallCommand deletes all policies and waits until they are gone, and the stack with them. The chart runs it
// before helm uninstall removes the operator.
func uninstallCommand() *cobra.Command {
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete all ClusterPolicies, and wait until the operator has removed the stack",
		Long: `Delete all ClusterPolicies, and wait until the operator has removed the stack.

It needs permission to get, list, watch and delete ClusterPolicies, and the operator must be running. It prints what it
waits for, and exits with 0 once no policy is left, and with 1 after the timeout. The removal then goes on: repeat the
command to wait for its end. Without the operator, ` + cleanupCommand + ` finishes the removal.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until all policies are gone")
	return onCluster(cmd, func(config *rest.Config, _ []string) error {
		return uninstall(cmd.Context(), config, timeout, cmd.OutOrStdout())
	})
}

// uninstallation deletes policies, and knows those that are left.
type uninstallation struct {
	client client.WithWatch
	out    io.Writer
	// left are the policies that exist, by name, and printed what was last printed of each.
	left    map[string]*v1.ClusterPolicy
	printed map[string]string
}

func uninstall(ctx context.Context, config *rest.Config, timeout time.Duration, out io.Writer) error {
	c, err := policyClient(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u := &uninstallation{client: c, out: out, printed: map[string]string{}}
	retry := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Cap: 5 * time.Second, Steps: 10}
	for {
		gone, err := u.await(ctx)
		switch {
		case gone:
			return nil
		case ctx.Err() != nil:
			return u.overdue(timeout, err)
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return err
		}
		// The API server ends watches now and then, and may be unreachable for a moment.
		select {
		case <-ctx.Done():
		case <-time.After(retry.Step()):
		}
	}
}

// await deletes the policies, and returns true once they are gone, or false when the watch has ended.
func (u *uninstallation) await(ctx context.Context) (gone bool, err error) {
	policies := &v1.ClusterPolicyList{}
	err = u.client.List(ctx, policies)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		fmt.Fprintf(u.out, "There is no CustomResourceDefinition %s, and so no ClusterPolicy\n", crd.Name)
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("listing ClusterPolicies: %w", err)
	}
	u.left = map[string]*v1.ClusterPolicy{}
	for i := range policies.Items {
		if err := u.note(ctx, &policies.Items[i]); err != nil {
			return false, err
		}
	}
	if u.isDone() {
		return true, nil
	}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: policies.ResourceVersion}}
	events, err := u.client.Watch(ctx, &v1.ClusterPolicyList{}, since)
	if err != nil {
		return false, fmt.Errorf("watching ClusterPolicies: %w", err)
	}
	_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
		policy, isPolicy := event.Object.(*v1.ClusterPolicy)
		switch {
		case !isPolicy:
			return false, apierrors.FromObject(event.Object)
		case event.Type == watch.Deleted:
			u.forget(policy)
		default:
			if err := u.note(ctx, policy); err != nil {
				return false, err
			}
		}
		return u.isDone(), nil
	})
	return err == nil, err
}

// note takes up a policy as it is now. It deletes a policy that is not terminating, also one that was created
// meanwhile, and prints what a terminating one waits for, if that has changed.
func (u *uninstallation) note(ctx context.Context, policy *v1.ClusterPolicy) error {
	u.left[policy.Name] = policy
	if policy.DeletionTimestamp == nil {
		fmt.Fprintf(u.out, "Deleting ClusterPolicy %s\n", policy.Name)
		err := u.client.Delete(ctx, policy.DeepCopy(), client.Preconditions{UID: &policy.UID})
		// A conflict: there is another policy with the name, whose event follows.
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting ClusterPolicy %s: %w", policy.Name, err)
		}
		return nil
	}
	if about := "ClusterPolicy " + policy.Name + ": " + waitsFor(policy); about != u.printed[policy.Name] {
		u.printed[policy.Name] = about
		fmt.Fprintln(u.out, about)
	}
	return nil
}

func (u *uninstallation) forget(policy *v1.ClusterPolicy) {
	delete(u.left, policy.Name)
	delete(u.printed, policy.Name)
	fmt.Fprintf(u.out, "ClusterPolicy %s is gone\n", policy.Name)
}

func (u *uninstallation) isDone() bool {
	if len(u.left) > 0 {
		return false
	}
	fmt.Fprintln(u.out, "No ClusterPolicy is left")
	return true
}

// waitsFor returns what the removal of a terminating policy waits for, as the operator reports it.
func waitsFor(policy *v1.ClusterPolicy) string {
	if ready := reported(policy); ready != nil {
		return ready.Reason + ": " + ready.Message
	}
	return "waiting for the operator to begin"
}

// reported returns the condition Ready of a policy that is not ready; nil if the operator has not reported that yet.
func reported(policy *v1.ClusterPolicy) *metav1.Condition {
	ready := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return nil
	}
	return ready
}

// overdue returns an error that says what is left, and what to do. cause is the error of the last call.
func (u *uninstallation) overdue(timeout time.Duration, cause error) error {
	if len(u.left) == 0 {
		return fmt.Errorf("the ClusterPolicies are unknown after %s: %w", timeout, cause)
	}
	var lines []string
	begun := true
	for _, name := range slices.Sorted(maps.Keys(u.left)) {
		policy := u.left[name]
		line := fmt.Sprintf("ClusterPolicy %s still exists after %s: %s", name, timeout, waitsFor(policy))
		if others := otherFinalizers(policy); len(others) > 0 {
			line += "; it also has the finalizers of others: " + strings.Join(others, ", ")
		}
		lines = append(lines, line)
		begun = begun && reported(policy) != nil
	}
	remedy := "the operator goes on: repeat the command to wait for the end, or finish without the operator: "
	if !begun {
		remedy = "check that the operator's pod is running, or finish without it: "
	}
	return errors.New(strings.Join(append(lines, remedy+cleanupCommand), "\n  "))
}

func otherFinalizers(policy *v1.ClusterPolicy) []string {
	return slices.DeleteFunc(slices.Clone(policy.Finalizers), func(name string) bool {
		return name == labels.RemovalFinalizer
	})
}
