package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/gpuusage"
)

// maxParallel is how many questions a command asks at a time.
const maxParallel = 32

// sortKeys are the values of --sort-by.
var sortKeys = []string{"name", "utilization", "memory", "power", "temperature"}

// topOptions are the flags of top.
type topOptions struct {
	namespace, selector string
	allNamespaces       bool
	sortBy, output      string
	// operatorNamespace has the exporter; empty for the one in the status of the policy.
	operatorNamespace string
	timeout           time.Duration
	connection        connection
}

func topCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "top",
		Short: "Show utilization, memory, power and temperature of GPUs by node and by pod",
		Args:  cobra.NoArgs,
		Example: `  kubectl gpu top nodes
  kubectl gpu top pods --all-namespaces --sort-by memory`,
		RunE: func(*cobra.Command, []string) error { return errors.New("give nodes or pods") },
	}
	command.AddCommand(topNodes(), topPods())
	return command
}

// topAbout is the part of the help that both commands have.
const topAbout = `

The figures are those that the DCGM exporter of each node reports now, read through the API server. The exporter
measures every 30 seconds by default. A figure that it does not report is a dash: with MIG or sharing, power is that of
the whole GPU, and no pod's.

It needs the right to list ClusterPolicies and Nodes, to list Pods in the operator's namespace and to get pods/proxy
there.

Nodes that a label or the policy keeps the exporter off are named by top nodes, and are no failure.

Exit codes: 0 all exporters have answered, 1 failure, or an exporter has not answered: the others are shown, and
standard error names it; 2 wrong usage.`

func topNodes() *cobra.Command {
	o := topOptions{}
	command := &cobra.Command{
		Use:     "nodes [NODE...]",
		Aliases: []string{"node", "no"},
		Short:   "Show how much of the GPUs of each node is used",
		Long: `Show how much of the GPUs of each node is used: the mean of their utilization, their memory, the sum of their
power and the temperature of the hottest. -o wide has a line for each GPU, or MIG device.` + topAbout,
		Example: `  kubectl gpu top nodes
  kubectl gpu top nodes --sort-by utilization
  kubectl gpu top nodes -l nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 -o wide
  kubectl gpu top nodes gpu-00000 -o json`,
		ValidArgsFunction: completing(&o.connection, nodeNames),
		RunE:              o.command(o.nodes),
	}
	o.addFlags(command)
	return command
}

func topPods() *cobra.Command {
	o := topOptions{}
	command := &cobra.Command{
		Use:     "pods [POD...]",
		Aliases: []string{"pod", "po"},
		Short:   "Show how much of its GPUs each pod uses",
		Long: `Show how much of its GPUs each pod uses: the mean of their utilization, their memory, the sum of their power
and the temperature of the hottest. Pods without a GPU are not shown. -o wide has a line for each GPU of a pod.` +
			topAbout + `

With a selector it also needs the right to list Pods in the namespaces that are shown.`,
		Example: `  kubectl gpu top pods --namespace team-a
  kubectl gpu top pods --all-namespaces --sort-by memory
  kubectl gpu top pods -A -l app=training -o wide`,
		ValidArgsFunction: completing(&o.connection, podNames),
		RunE:              o.command(o.pods),
	}
	o.addFlags(command)
	flags := command.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pods (default: that of the context)")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
	return command
}

func (o *topOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, as of kubectl get")
	flags.StringVar(&o.sortBy, "sort-by", sortKeys[0],
		"order: name, or the highest first of utilization, memory, power or "+
			"temperature")
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, wide, json or yaml")
	flags.StringVar(&o.operatorNamespace, "operator-namespace", "", operatorNamespaceUsage)
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for the answer of an exporter")
	o.connection.addFlags(flags)
	completeFlag(command, "output", fixed(tableFormats...))
	completeFlag(command, "sort-by", fixed(sortKeys...))
	completeFlag(command, "operator-namespace", completing(&o.connection, namespaceNames))
}

// command checks the flags and runs a command.
func (o *topOptions) command(
	run func(cmd *cobra.Command, asked *session, names []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, names []string) error {
		if err := oneOf("output", o.output, tableFormats); err != nil {
			return err
		}
		if err := oneOf("sort-by", o.sortBy, sortKeys); err != nil {
			return err
		}
		if o.timeout <= 0 {
			return errors.New("--timeout: give a positive duration, such as 10s")
		}
		if len(names) > 0 && (o.selector != "" || o.allNamespaces) {
			return errors.New("give names, or --selector and --all-namespaces, not both")
		}
		asked, err := o.connection.open()
		if err == nil {
			err = run(cmd, asked, names)
		}
		if err != nil {
			return failure{err}
		}
		return nil
	}
}

// usedNodes is what top nodes prints as JSON. Fields are only added to it.
type usedNodes struct {
	Nodes []gpuusage.Node `json:"nodes"`
	// Errors are those of the nodes whose exporter has not answered.
	Errors []noAnswer `json:"errors,omitempty"`
	// WithoutExporter are the nodes that are not to run an exporter, and why.
	WithoutExporter []noAnswer `json:"withoutExporter,omitempty"`
}

// usedPods is what top pods prints as JSON. Fields are only added to it.
type usedPods struct {
	Pods   []gpuusage.Pod `json:"pods"`
	Errors []noAnswer     `json:"errors,omitempty"`
}

func (o *topOptions) nodes(cmd *cobra.Command, asked *session, names []string) error {
	reading, err := o.read(cmd, asked, o.selector, func(node string) bool {
		return len(names) == 0 || slices.Contains(names, node)
	})
	if err != nil {
		return err
	}
	found := usedNodes{
		Nodes: gpuusage.Nodes(reading.devices), Errors: reading.errors, WithoutExporter: reading.without,
	}
	slices.SortStableFunc(found.Nodes, func(a, b gpuusage.Node) int { return o.compare(a.Usage, b.Usage) })
	text := nodesTable(found.Nodes, o.output == formatWide) + withoutText(found.WithoutExporter)
	if err := o.print(cmd, found, text); err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		isNode := func(e noAnswer) bool { return e.Node == name }
		return slices.ContainsFunc(found.Nodes, func(n gpuusage.Node) bool { return n.Name == name }) ||
			slices.ContainsFunc(found.Errors, isNode) || slices.ContainsFunc(found.WithoutExporter, isNode)
	})
	if len(missing) > 0 {
		return fmt.Errorf("no exporter reports GPUs of %s: see kubectl gpu status", named(missing))
	}
	return reading.failure()
}

func (o *topOptions) pods(cmd *cobra.Command, asked *session, names []string) error {
	selected, err := o.podFilter(cmd.Context(), asked, names)
	if err != nil {
		return err
	}
	reading, err := o.read(cmd, asked, "", nil)
	if err != nil {
		return err
	}
	found := usedPods{Pods: gpuusage.Pods(reading.devices), Errors: reading.errors}
	found.Pods = slices.DeleteFunc(found.Pods, func(p gpuusage.Pod) bool { return !selected(p.Namespace, p.Name) })
	slices.SortStableFunc(found.Pods, func(a, b gpuusage.Pod) int { return o.compare(a.Usage, b.Usage) })
	if err := o.print(cmd, found, podsTable(found.Pods, o.output == formatWide)); err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(found.Pods, func(p gpuusage.Pod) bool { return p.Name == name })
	})
	if err := reading.failure(); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("no exporter reports a GPU of pod %s: see kubectl gpu explain pod/%s", named(missing), missing[0])
	}
	return nil
}

// podFilter returns which pods are shown.
func (o *topOptions) podFilter(
	ctx context.Context, asked *session, names []string,
) (func(namespace, name string) bool, error) {
	o.namespace = cmp.Or(o.namespace, asked.namespace)
	var selected map[string]bool
	if o.selector != "" {
		var err error
		if selected, err = o.selectedPods(ctx, asked); err != nil {
			return nil, err
		}
	}
	return func(namespace, name string) bool {
		return (o.allNamespaces || namespace == o.namespace) && (len(names) == 0 || slices.Contains(names, name)) &&
			(selected == nil || selected[namespace+"/"+name])
	}, nil
}

// compare orders usages by the flag, the highest first, and what is unknown last.
func (o *topOptions) compare(a, b gpuusage.Usage) int {
	return cmp.Compare(o.key(b), o.key(a))
}

func (o *topOptions) key(u gpuusage.Usage) float64 {
	known := map[string]*float64{
		"utilization": u.UtilizationPercent, "power": u.PowerWatts, "temperature": u.TemperatureCelsius,
	}[o.sortBy]
	switch {
	case o.sortBy == "memory" && u.MemoryUsedBytes != nil:
		return float64(*u.MemoryUsedBytes)
	case known != nil:
		return *known
	}
	return -1
}
