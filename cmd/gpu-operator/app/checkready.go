package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// worstNodes limits how many nodes that are not ready are listed.
const worstNodes = 10

// checkReadyCommand waits until the operator reports that a policy is ready. helm test runs it.
func checkReadyCommand() *cobra.Command {
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use:   "check-ready [NAME]",
		Short: "Wait until a ClusterPolicy is ready, or report what is not",
		Long: `Wait until a ClusterPolicy is ready, or report what is not. NAME defaults to cluster-policy.

It needs permission to list and watch this one ClusterPolicy. It exits with 0 once the operator has observed the
current spec and reports it as ready, and with 1 after the timeout.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return onCluster(cmd, func(config *rest.Config, args []string) error {
		name := "cluster-policy"
		if len(args) > 0 {
			name = args[0]
		}
		return checkReady(cmd.Context(), config, name, timeout, cmd.OutOrStdout())
	})
}

func checkReady(ctx context.Context, config *rest.Config, name string, timeout time.Duration, out io.Writer) error {
	c, err := policyClient(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last *v1.ClusterPolicy
	for {
		events, err := c.Watch(ctx, &v1.ClusterPolicyList{}, client.MatchingFields{"metadata.name": name})
		if err != nil {
			return fmt.Errorf("watching ClusterPolicy %s: %w", name, err)
		}
		_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
			last = nil
			policy, isPolicy := event.Object.(*v1.ClusterPolicy)
			if event.Type == watch.Deleted || !isPolicy {
				return false, nil
			}
			last = policy
			return isReady(policy), nil
		})
		if err == nil {
			fmt.Fprintf(out, "ClusterPolicy %s is ready%s\n", name, nodesOf(last))
			return nil
		}
		// The API server ends watches now and then.
		if !errors.Is(err, watchtools.ErrWatchClosed) || ctx.Err() != nil {
			return notReady(name, timeout, last)
		}
	}
}

// nodesOf returns how many nodes are ready; empty if the policy does not report it.
func nodesOf(policy *v1.ClusterPolicy) string {
	if policy.Status.NodeSummary == nil {
		return ""
	}
	return ", " + policy.Status.NodeSummary.ReadyOfTotal + " GPU nodes"
}

// isReady reports whether the operator has observed the current spec and reports the policy as ready.
func isReady(policy *v1.ClusterPolicy) bool {
	return policy.Status.State == v1.StateReady && policy.Status.ObservedGeneration == policy.Generation
}

// notReady returns an error that lists what is not ready, worst nodes first.
func notReady(name string, waited time.Duration, policy *v1.ClusterPolicy) error {
	if policy == nil {
		return fmt.Errorf("ClusterPolicy %s was not found within %s: apply it", name, waited)
	}
	lines := []string{fmt.Sprintf("ClusterPolicy %s is not ready after %s", name, waited)}
	if policy.Status.ObservedGeneration != policy.Generation {
		lines = append(lines, "the operator has not observed the current spec: check that its pod is running")
	}
	if ready := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady); ready != nil {
		lines = append(lines, ready.Reason+": "+ready.Message)
	}
	for _, node := range policy.Status.Nodes {
		if node.Ready || len(lines) > worstNodes {
			continue
		}
		about := fmt.Sprintf("node %s, stage %s", node.Name, node.Stage)
		if node.Operand != "" {
			about += ", operand " + node.Operand
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", about, node.Reason, node.Message))
	}
	return errors.New(strings.Join(lines, "\n  "))
}
