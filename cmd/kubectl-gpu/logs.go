package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// logsOptions are the flags of logs.
type logsOptions struct {
	container, operatorNamespace string
	follow, previous             bool
	// current: the flag previous is given as false.
	current bool
	// tail is how many of the last lines are printed; negative for all.
	tail       int64
	connection connection
}

func logsCommand() *cobra.Command {
	o := logsOptions{}
	command := &cobra.Command{
		Use:   "logs NODE [OPERAND]",
		Short: "Print the log that shows why an operand on a node is not ready",
		Long: `Print the log of an operand on a node. OPERAND is its name, such as driver or device-plugin; without one it is
each operand whose pod is not ready.

The container is the one that has failed or is not ready, also an init container, and the log the one from before its
last restart if it has failed and was restarted. --container and --previous choose others.

It needs the right to list ClusterPolicies, to list Pods in the operator's namespace and to get pods/log there.`,
		Example: `  kubectl gpu logs gpu-00002
  kubectl gpu logs gpu-00002 driver --tail 20
  kubectl gpu logs gpu-00002 device-plugin --follow`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completing(&o.connection, nodeOrOperand),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.current = cmd.Flags().Changed("previous") && !o.previous
			if o.follow && o.previous {
				return errors.New("--follow and --previous cannot be used together: give one")
			}
			node, operand := args[0], ""
			if len(args) > 1 {
				operand = args[1]
			}
			if err := o.run(cmd.Context(), cmd.OutOrStdout(), node, operand); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.container, "container", "c", "",
		"container of the pod (default: the one that has failed or is not ready, or else the first)")
	flags.BoolVarP(&o.follow, "follow", "f", false, "print what is logged from now on, too, until interrupted")
	flags.BoolVarP(&o.previous, "previous", "p", false, "print the log from before the last restart of the container "+
		"(default: if it has failed)")
	flags.Int64Var(&o.tail, "tail", -1, "how many of the last lines are printed; -1 for all")
	flags.StringVar(&o.operatorNamespace, "operator-namespace", "", operatorNamespaceUsage)
	o.connection.addFlags(flags)
	completeFlag(command, "operator-namespace", completing(&o.connection, namespaceNames))
	return command
}

// nodeOrOperand completes the node, or else one of its operands.
func nodeOrOperand(ctx context.Context, cmd *cobra.Command, asked *session) ([]string, error) {
	node := cmd.Flags().Arg(0)
	if node == "" {
		return nodeNames(ctx, cmd, asked)
	}
	pods, err := logsOptions{}.pods(ctx, asked, node)
	return operandsOf(pods), err
}

func (o logsOptions) run(ctx context.Context, out io.Writer, node, operand string) error {
	asked, err := o.connection.open()
	if err != nil {
		return err
	}
	pods, err := o.pods(ctx, asked, node)
	if err != nil {
		return err
	}
	chosen, err := choose(pods, node, operand)
	if err != nil {
		return err
	}
	if o.follow && len(chosen) > 1 {
		return fmt.Errorf("pods of several operands are not ready: give one of %s with --follow",
			strings.Join(operandsOf(chosen), ", "))
	}
	var without []error
	for i := range chosen {
		log, err := o.logOf(&chosen[i])
		if err != nil {
			without = append(without, err)
			continue
		}
		if len(chosen) > 1 {
			fmt.Fprintf(out, "==> %s <==\n", log.Command())
		}
		if err := o.print(ctx, out, asked, log); err != nil {
			return err
		}
	}
	return withoutLogs(out, without, len(chosen))
}

// withoutLogs prints which of the pods have no log, or returns that none has.
func withoutLogs(out io.Writer, without []error, pods int) error {
	if len(without) == pods {
		return errors.Join(without...)
	}
	for _, err := range without {
		fmt.Fprintf(out, "==> %s <==\n", err)
	}
	return nil
}

// pods returns the pods of the operator on a node.
func (o logsOptions) pods(ctx context.Context, asked *session, node string) ([]corev1.Pod, error) {
	namespace := o.operatorNamespace
	if namespace == "" {
		policy, err := activePolicyOf(ctx, asked)
		if err != nil {
			return nil, err
		}
		namespace = namespaceOf(policy)
	}
	pods, err := stackOn(ctx, asked, namespace, node)
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods, err
}

// stackOn returns the pods of the operator in its namespace on a node, and those that the scheduler has not placed
// there yet.
func stackOn(ctx context.Context, asked *session, namespace, node string) (pods []corev1.Pod, err error) {
	for _, on := range []string{node, ""} {
		options := withField(metav1.ListOptions{LabelSelector: labels.ManagedBy + "=" + labels.ManagedByValue},
			"spec.nodeName", on)
		_, err = list(ctx, asked.core.Pods(namespace).List, options, func(pod *corev1.Pod) {
			if observe.PodNode(pod) == node {
				pods = append(pods, *pod)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// operandsOf returns the operands of pods, sorted.
func operandsOf(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Labels[labels.Operand])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// choose returns the pods of an operand, or for none those that are not ready.
func choose(pods []corev1.Pod, node, operand string) ([]corev1.Pod, error) {
	if len(pods) == 0 {
		return nil, fmt.Errorf("node %s has no pod of the operator: see kubectl gpu explain %s", node, node)
	}
	chosen := slices.Clone(pods)
	chosen = slices.DeleteFunc(chosen, func(pod corev1.Pod) bool {
		if operand == "" {
			return readiness.PodIsReady(&pod)
		}
		return pod.Labels[labels.Operand] != operand
	})
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case operand == "":
		return nil, fmt.Errorf("all pods of the operator on node %s are ready: give an operand, one of %s", node,
			strings.Join(operandsOf(pods), ", "))
	}
	return nil, fmt.Errorf("node %s has no pod of operand %s: give one of %s", node, operand,
		strings.Join(operandsOf(pods), ", "))
}

// logOf returns the log of a pod that the flags choose.
func (o logsOptions) logOf(pod *corev1.Pod) (*explain.Log, error) {
	log := explain.LogOf(pod)
	switch {
	case o.container != "":
		log = &explain.Log{Namespace: pod.Namespace, Pod: pod.Name, Container: o.container}
	case log == nil:
		return nil, fmt.Errorf("no container of pod %s has run yet: see kubectl -n %s describe pod %[1]s", pod.Name,
			pod.Namespace)
	}
	log.Previous = o.previous || log.Previous && !o.current && !o.follow
	return log, nil
}

// print prints a log.
func (o logsOptions) print(ctx context.Context, out io.Writer, asked *session, log *explain.Log) error {
	options := corev1.PodLogOptions{Container: log.Container, Previous: log.Previous, Follow: o.follow}
	if o.tail >= 0 {
		options.TailLines = &o.tail
	}
	stream, err := asked.core.Pods(log.Namespace).GetLogs(log.Pod, &options).Stream(ctx)
	if err != nil {
		return said(err)
	}
	defer stream.Close()
	if _, err := io.Copy(out, stream); err != nil {
		return fmt.Errorf("printing the log of pod %s: %w", log.Pod, err)
	}
	return nil
}

// loggedLines is how many of the last lines of a log an explanation has, and loggedBytes how long they may be.
const (
	loggedLines = 5
	loggedBytes = 4 << 10
)

// readLogs reads the last lines of the logs of findings. Who may not read them gets the findings all the same.
func readLogs(ctx context.Context, asked *session, findings []explain.Finding) {
	for i := range findings {
		log := findings[i].Log
		if log == nil {
			continue
		}
		read := &strings.Builder{}
		if (logsOptions{tail: loggedLines}).print(ctx, read, asked, log) == nil && read.Len() > 0 {
			log.Lines = strings.Split(text.TruncateBegin(strings.TrimRight(read.String(), "\n"), loggedBytes), "\n")
			for j, line := range log.Lines { // Codes in a log must not reach the user's terminal.
				log.Lines[j] = readiness.Printable(line)
			}
		}
	}
}
