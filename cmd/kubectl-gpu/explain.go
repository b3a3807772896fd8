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

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	namespace, output string
	connection        connection
}

func explainCommand() *cobra.Command {
	o := explainOptions{}
	command := &cobra.Command{
		Use:   "explain NODE|node/NAME|pod/NAME",
		Short: "Show why the GPUs of a node cannot be used, or why a pod does not get its GPU, and the next step",
		Long: `Show why the GPUs of a node cannot be used, or why a pod does not get its GPU, and what to do next.

Of a node it shows the stages that the node has reached, what the operator reports with its usual cause and remedy,
the commands to run with the last lines of the log that shows the cause, and the pods of the operator there. Of a pod it
shows what keeps it from its GPU: the resource that it requests, a taint, its selector, cordoned or full nodes, the
kubelet, or the state of its node. A name without node/ or pod/ is that of a node, or else of a pod. If a Job or another
controller has no pod, give its name as pod/NAME: what refuses its pods, such as a quota, is shown.

It needs the right to list Nodes, ClusterPolicies and Pods, and Events in the namespace of the pod. Without the right to
get pods/log in the operator's namespace there is no log. ResourceClaims and DeviceClasses that it cannot list count as
claims for GPUs.`,
		Example: `  kubectl gpu explain node-a
  kubectl gpu explain pod/training-0 --namespace team-a
  kubectl gpu explain node/node-a -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completing(&o.connection, explainable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", o.output, formats); err != nil {
				return err
			}
			kind, name, hasKind := strings.Cut(args[0], "/")
			if !hasKind {
				kind, name = "", args[0]
			}
			if name == "" || hasKind && kind != "node" && kind != "pod" {
				return fmt.Errorf("%s: give NODE, node/NAME or pod/NAME", args[0])
			}
			if err := o.run(cmd, kind, name); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pod (default: that of the context)")
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, json or yaml")
	o.connection.addFlags(flags)
	completeFlag(command, "output", fixed(formats...))
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
	return command
}

func (o explainOptions) run(cmd *cobra.Command, kind, name string) error {
	found, text, err := o.find(cmd.Context(), cmd.ErrOrStderr(), kind, name)
	if err != nil {
		return err
	}
	return o.write(cmd.OutOrStdout(), found, text)
}

// find explains the node or the pod, and also returns it as text. It prints which policies cannot be decoded.
func (o explainOptions) find(
	ctx context.Context, stderr io.Writer, kind, name string,
) (found any, text string, err error) {
	known, err := reasons.All()
	if err != nil {
		return nil, "", err
	}
	asked, err := o.connection.open()
	if err != nil {
		return nil, "", err
	}
	if kind != "pod" {
		node, err := o.findNode(ctx, stderr, asked, name, known)
		switch {
		case err != nil:
			return nil, "", err
		case node != nil:
			return node, nodeText(node), nil
		case kind == "node":
			return nil, "", missingNodes([]string{name}, nil)
		}
	} else if all, err := allPolicies(ctx, asked); err == nil {
		// Who may only read pods gets the explanation all the same.
		fmt.Fprint(stderr, undecodableText(undecodablePolicies(slices.Values(all))))
	}
	o.namespace = cmp.Or(o.namespace, asked.namespace)
	pod, err := o.pod(ctx, asked, name, known)
	if err != nil {
		return nil, "", err
	}
	return pod, podText(pod), nil
}

// findNode reads the cluster and explains the node; nil if there is none of this name.
func (o explainOptions) findNode(
	ctx context.Context, stderr io.Writer, asked *session, name string, known map[string]reasons.Explanation,
) (*explain.Node, error) {
	live := newLiveCluster(asked)
	if err := live.readSome(ctx, withField(gpuNodes, "metadata.name", name), o.tenantsOf(name)); err != nil {
		return nil, err
	}
	fmt.Fprint(stderr, undecodableText(live.undecodable()))
	node, err := o.node(ctx, asked, live, name, known)
	if node != nil {
		readLogs(ctx, asked, node.Findings)
	}
	return node, err
}

func (o explainOptions) write(out io.Writer, found any, text string) error {
	return writeAs(out, o.output, found, text, "the explanation")
}

// node explains a node with GPUs of a cluster that was read; nil if there is none of this name.
func (o explainOptions) node(
	ctx context.Context, asked *session, live *liveCluster, name string, known map[string]reasons.Explanation,
) (*explain.Node, error) {
	all := live.overview()
	i := slices.IndexFunc(all.Nodes, func(n overview.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, nil
	}
	in := explain.NodeInput{Overview: all.Nodes[i], Reasons: known, Policy: live.activePolicy(all)}
	for _, node := range live.nodes {
		if node.Name == name {
			in.Node = node
		}
	}
	in.Namespace = namespaceOf(in.Policy)
	var err error
	if in.Pods, err = stackOn(ctx, asked, in.Namespace, name); err != nil {
		return nil, err
	}
	explained := explain.OfNode(in)
	return &explained, nil
}

// tenantsOf selects the tenants on a node. The text does not show what is free: then there is nothing to select.
func (o explainOptions) tenantsOf(node string) *metav1.ListOptions {
	if o.output == formatText {
		return nil
	}
	return new(withField(tenants, "spec.nodeName", node))
}

// activePolicy returns the policy of an overview, nil if there is none.
func (c *liveCluster) activePolicy(of overview.Overview) *v1.ClusterPolicy {
	for _, policy := range c.policies {
		if of.Policy != nil && policy.Name == of.Policy.Name {
			return policy
		}
	}
	return nil
}

// pod explains a pod, or why a controller has none.
func (o explainOptions) pod(
	ctx context.Context, asked *session, name string, known map[string]reasons.Explanation,
) (*explain.Pod, error) {
	var pod *corev1.Pod
	core := asked.core
	if _, err := list(ctx, core.Pods(o.namespace).List, withField(metav1.ListOptions{}, "metadata.name", name),
		func(found *corev1.Pod) { pod = found }); err != nil {
		return nil, err
	}
	var events []corev1.Event
	of := metav1.ListOptions{FieldSelector: "reason=FailedCreate"}
	if pod != nil { // Not the events of an earlier pod with its name.
		of.FieldSelector = "involvedObject.uid=" + string(pod.UID)
	}
	if _, err := list(ctx, core.Events(o.namespace).List, of,
		func(event *corev1.Event) { events = append(events, *event) }); err != nil {
		return nil, err
	}
	if pod == nil {
		if found := explain.OfController(o.namespace, name, events); found != nil {
			return found, nil
		}
		return nil, errors.New("no node with GPUs, and no pod in namespace " + o.namespace + ", has the name " + name)
	}
	in := explain.PodInput{Pod: pod, Events: events, Reasons: known}
	in.Claims = claimsOf(ctx, asked, pod)
	if pod.Spec.NodeName == "" { // Otherwise its status has what was mapped.
		in.Mapped = mappedResources(ctx, asked)
	}
	if err := addNodes(ctx, asked, &in); err != nil {
		return nil, err
	}
	explained := explain.OfPod(in)
	return &explained, nil
}

// addNodes adds the node of a pod, or all nodes with GPUs and what is requested of them if it has none yet. Pods that
// cannot be listed are no error.
func addNodes(ctx context.Context, asked *session, in *explain.PodInput) error {
	options, core := gpuNodes, asked.core
	if node := in.Pod.Spec.NodeName; node != "" {
		options = withField(gpuNodes, "metadata.name", node)
	}
	_, err := list(ctx, core.Nodes().List, options, func(node *corev1.Node) { in.Nodes = append(in.Nodes, node) })
	if err != nil || in.Pod.Spec.NodeName != "" {
		return err
	}
	usage := &overview.Usage{}
	if _, err := list(ctx, core.Pods("").List, tenants, usage.Set); err == nil {
		in.Usage = usage
	}
	return nil
}
