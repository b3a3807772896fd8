package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const (
	// formatWide is the text with all columns.
	formatWide = "wide"
	// formatHTML is a page for a browser.
	formatHTML = "html"
)

var (
	// tableFormats are the formats of commands that print a table.
	tableFormats = append(slices.Clone(formats), formatWide)
	// statusFormats are the formats of status.
	statusFormats = append(slices.Clone(tableFormats), formatHTML)
)

// errNotReady makes the plugin exit with exitNotReady. It is not printed.
var errNotReady = errors.New("the policy is not ready")

// statusOptions are the flags of status.
type statusOptions struct {
	output              string
	watch, detailedExit bool
	// names and selector choose nodes, notReady those of them that are not ready. noHeaders: only the rows.
	names               []string
	selector            string
	notReady, noHeaders bool
	// sortBy is the key of a nodeOrder; empty for those that are not ready first.
	sortBy     string
	connection connection
}

func statusCommand() *cobra.Command {
	o := statusOptions{}
	command := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Show how far each node with GPUs is, and what is usable and free of its GPUs",
		Long: `Show the state of the policy and of each node with GPUs: whether its GPUs can be used, the stage that it has
not reached yet and why, how many of its GPUs are usable, and how many of the devices that it offers no pod requests.

Nodes that are not ready come first. FREE counts what pods can still request: GPUs, or where they are shared or
partitioned, shares or MIG devices with the name of their resource. Where a DRA driver alone offers the GPUs, it is
"by claims": these are not read. SINCE is how long the node has been ready, or not ready. Columns that are empty for
all nodes are left out, and on a terminal those for which it is too narrow. -o wide has all, and the messages.

Of more than 30 nodes the table has the number in each state, and then those that are not ready. -o wide, names,
--not-ready and --sort-by list each node. With names or a selector the counts are those of the nodes that these choose.

-o html prints one page for a browser that needs no other file and no network; kubectl gpu ui shows the same one live.

It needs the right to list Nodes and ClusterPolicies, with --watch also to watch them. Without the right to list Pods in
all namespaces FREE is unknown.

Exit codes: 0 success, 1 failure, 2 wrong usage, and with --detailed-exitcode 3 if there is no policy, or it is not
ready.`,
		Example: `  kubectl gpu status
  kubectl gpu status gpu-00002
  kubectl gpu status --not-ready
  kubectl gpu status --sort-by free
  kubectl gpu status -l nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 -o wide
  kubectl gpu status --watch
  kubectl gpu status -o json
  kubectl gpu status -o html > status.html
  kubectl gpu status --detailed-exitcode`,
		ValidArgsFunction: completing(&o.connection, nodeNames),
		RunE: func(cmd *cobra.Command, names []string) error {
			o.names = names
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, wide, json, yaml or html")
	flags.BoolVarP(&o.watch, "watch", "w", false, "show changes until interrupted: on a terminal the whole table, "+
		"otherwise the lines that change, with Gone for a node that is gone")
	flags.BoolVar(&o.detailedExit, "detailed-exitcode", false,
		fmt.Sprintf("exit with %d if there is no policy, or it is not ready", exitNotReady))
	flags.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels, as of kubectl get")
	flags.BoolVar(&o.notReady, "not-ready", false, "list only nodes that are not ready")
	flags.StringVar(&o.sortBy, "sort-by", "", "name, product, reason, usable, free or since: list all nodes in this "+
		"order, with more devices and later changes first (default: those that are not ready first)")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "print only the rows of the nodes")
	o.connection.addFlags(flags)
	completeFlag(command, "output", fixed(statusFormats...))
	completeFlag(command, "sort-by", fixed(nodeSortKeys()...))
	return command
}

// check fails if flags contradict each other, or have no such value.
func (o statusOptions) check() error {
	if err := oneOf("output", o.output, statusFormats); err != nil {
		return err
	}
	if o.watch && (o.detailedExit || o.output != formatText && o.output != formatWide) {
		return errors.New("--watch goes with the formats text and wide only, and without --detailed-exitcode")
	}
	if o.watch && (o.notReady || o.noHeaders || o.sortBy != "") {
		return errors.New("--watch goes without --not-ready, --no-headers and --sort-by")
	}
	if len(o.names) > 0 && o.selector != "" {
		return errors.New("give names or --selector, not both")
	}
	return checkSort(o.sortBy)
}

func (o statusOptions) run(cmd *cobra.Command) error {
	asked, err := o.connection.open()
	if err != nil {
		return failure{err}
	}
	live := newLiveCluster(asked)
	live.names = o.names
	live.ofNodes = gpuNodesLabelled(o.selector)
	if err := live.read(cmd.Context()); err != nil {
		if o.detailedExit && errors.Is(err, errNotServed) {
			return coded{failure{err}, exitNotReady}
		}
		return failure{err}
	}
	if o.watch {
		return failure{o.follow(cmd, live)}
	}
	found := live.overview()
	if err := missingNodes(o.names, found.Nodes); err != nil {
		return failure{err}
	}
	if o.notReady && o.output != formatHTML { // A page counts all.
		found.Nodes = overview.Unready(found.Nodes)
	}
	sortNodes(found.Nodes, o.sortBy)
	if err := o.print(cmd.OutOrStdout(), live, found, time.Now()); err != nil {
		return failure{err}
	}
	if unknown := live.freeUnknown(); unknown != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "kubectl gpu: %v\n%s", unknown, bindingText(cmd, unknown))
	}
	return o.verdict(cmd.ErrOrStderr(), live.undecodable(), found.Policy)
}

// missingNodes returns an error that names the nodes which are not among those that were found.
func missingNodes(names []string, found []overview.Node) error {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(found, func(n overview.Node) bool { return n.Name == name })
	})
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("no node %s has the label %s=%s: see kubectl get nodes --show-labels", named(missing),
		labels.GPUPresent, labels.True)
}

// verdict prints which policies cannot be decoded, and returns the error of the command. That of an ignored policy is
// none: nodes do not depend on it.
func (o statusOptions) verdict(stderr io.Writer, undecodable map[string]error, active *overview.Policy) error {
	fmt.Fprint(stderr, undecodableText(undecodable))
	switch {
	case o.detailedExit && (active == nil || active.Ready != "True"):
		return errNotReady
	case active != nil && undecodable[active.Name] != nil:
		return failure{fmt.Errorf("ClusterPolicy %s is active and cannot be decoded: correct it", active.Name)}
	}
	return nil
}

// follow prints the cluster each time it has changed, until the process is interrupted or the cluster cannot be read.
func (o statusOptions) follow(cmd *cobra.Command, live *liveCluster) error {
	screen := newScreen(cmd.OutOrStdout(), cmd.ErrOrStderr(), o.output == formatWide)
	for {
		ctx, cancel := context.WithCancel(cmd.Context())
		ended := make(chan error, 1)
		go func() { ended <- live.follow(ctx) }()
		err := show(screen, live, ended)
		cancel()
		if err != nil {
			return err
		}
		if err := live.read(cmd.Context()); err != nil {
			return err
		}
	}
}

// show prints the cluster, at most twice a second, until the watches have ended.
func show(screen *screen, live *liveCluster, ended <-chan error) error {
	for {
		if err := screen.show(live.overview(), live.undecodable(), time.Now()); err != nil {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-live.changed:
		}
		time.Sleep(500 * time.Millisecond)
	}
}
