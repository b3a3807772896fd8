package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/operatorvalidator"
)

// testOptions are the flags of test.
type testOptions struct {
	operatorNamespace string
	// resource that the pod requests; empty for the first that the node offers.
	resource   string
	yes        bool
	timeout    time.Duration
	connection connection
}

func testCommand() *cobra.Command {
	o := testOptions{}
	command := &cobra.Command{
		Use:   "test NODE",
		Short: "Run the CUDA validation on a node now, in a pod that requests one GPU",
		Long: `Run a pod on a node that requests one GPU and computes on it, and print its log. It is the path of a user's
pod: from the scheduler through the device plugin and the container runtime to the driver.

The pod has image, account, RuntimeClass and pull secrets of the node's pod of the validator, and runs in its
namespace. It never takes a GPU from another pod: its PriorityClass is the lowest, and forbids preemption. Any other pod
that needs the GPU takes it back. The command asks before it creates the pod, and deletes it at its end, also on
Ctrl-C.

It needs the right to list ClusterPolicies, to get the Node, and in the operator's namespace to list, get, create and
delete Pods, and to get pods/log.

Exit codes: 0 the computation succeeded, 1 failure, 2 wrong usage, 3 no GPU of the node is free, 130 interrupted.`,
		Example: `  kubectl gpu test gpu-00002
  kubectl gpu test gpu-00002 --yes --timeout 10m
  kubectl gpu test gpu-00002 --resource nvidia.com/mig-1g.10gb`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completing(&o.connection, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < time.Second {
				return errors.New("--timeout: give at least 1s, such as 10m")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err := o.run(ctx, cmd, args[0])
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return coded{failure{fmt.Errorf("interrupted: %w", err)}, exitInterrupted}
			case errors.Is(err, errNoFreeGPU):
				return coded{failure{err}, exitNoFreeGPU}
			}
			return failure{err}
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Minute, "how long the pod may take, with the pull of its image")
	flags.StringVar(&o.resource, "resource", "",
		"resource that the pod requests one device of (default: the first of the node that has a free one)")
	flags.StringVar(&o.operatorNamespace, "operator-namespace", "", operatorNamespaceUsage)
	o.connection.addFlags(flags)
	completeFlag(command, "operator-namespace", completing(&o.connection, namespaceNames))
	return command
}

func (o testOptions) run(ctx context.Context, cmd *cobra.Command, name string) error {
	asked, err := o.connection.open()
	if err != nil {
		return err
	}
	node, err := asked.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return said(err)
	}
	resource, err := o.resourceOf(node, usageOn(ctx, asked, name))
	if err != nil {
		return err
	}
	like, err := o.validatorOn(ctx, asked, name)
	if err != nil {
		return err
	}
	pod, out := testPod(like, name, resource, o.timeout), cmd.OutOrStdout()
	fmt.Fprintf(out, "A pod in namespace %s takes 1 %s of node %s for at most %s, if one is free. No pod is evicted for "+
		"it.\nImage: %s\n", pod.Namespace, resource, name, o.timeout, pod.Spec.Containers[0].Image)
	if !o.yes {
		if err := confirm(cmd.InOrStdin(), out, "Run it?"); err != nil {
			return err
		}
	}
	return o.runPod(ctx, out, &podRun{asked: asked, pod: pod, resource: resource})
}

// runPod creates the pod, waits for its end, prints its log, and deletes it whatever happens.
func (o testOptions) runPod(ctx context.Context, out io.Writer, run *podRun) (err error) {
	if err := run.create(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.remove(ctx)) }()
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	failed := run.await(bounded)
	if run.pod.Status.Phase == corev1.PodSucceeded || run.pod.Status.Phase == corev1.PodFailed {
		run.printLog(ctx, out)
	}
	if failed != nil {
		return failed
	}
	fmt.Fprintf(out, "A pod got 1 %s of node %s and computed on it, in %s.\n", run.resource, run.pod.Spec.NodeName,
		time.Since(began).Round(time.Second))
	return nil
}

// usageOn returns what the pods on a node request; nil if they cannot be listed.
func usageOn(ctx context.Context, asked *session, node string) *overview.Usage {
	usage := &overview.Usage{}
	_, err := list(ctx, asked.core.Pods("").List, withField(tenants, "spec.nodeName", node), usage.Set)
	if err != nil { // The scheduler knows what is free.
		return nil
	}
	return usage
}

// resourceOf returns what the pod requests of the node: the first resource that has a free device, or else the first.
func (o testOptions) resourceOf(node *corev1.Node, usage *overview.Usage) (string, error) {
	var offered []string
	chosen := o.resource
	for _, r := range overview.Resources(node, usage) {
		if r.Allocatable == 0 {
			continue
		}
		offered = append(offered, r.Name)
		if chosen == "" && r.Free != nil && *r.Free > 0 {
			chosen = r.Name
		}
	}
	switch {
	case len(offered) == 0:
		return "", fmt.Errorf("node %s offers no GPU: see kubectl gpu explain %s", node.Name, node.Name)
	case o.resource != "" && !slices.Contains(offered, o.resource):
		return "", fmt.Errorf("node %s does not offer --resource %s: give one of %v", node.Name, o.resource, offered)
	}
	return cmp.Or(chosen, offered[0]), nil
}

// validatorOn returns the pod of the validator on a node.
func (o testOptions) validatorOn(ctx context.Context, asked *session, node string) (*corev1.Pod, error) {
	pods, err := logsOptions{operatorNamespace: o.operatorNamespace}.pods(ctx, asked, node)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].Labels[labels.Operand] == string(operatorvalidator.Name) && len(pods[i].Spec.Containers) > 0 {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("node %s has no pod of the operand %s, whose image the test uses: see kubectl gpu explain %s",
		node, operatorvalidator.Name, node)
}
