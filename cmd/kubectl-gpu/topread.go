package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/gpuusage"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	// exporterOperand is the operand whose pods report metrics of GPUs, and exporterPort the name of their port.
	exporterOperand = "dcgm-exporter"
	exporterPort    = "metrics"
	// maxMetrics bounds the metrics of a node, in bytes: those of 16 GPUs with many pod labels are below 1 MB.
	maxMetrics = 16 << 20
)

// noAnswer is a node with GPUs whose usage is unknown.
type noAnswer struct {
	Node string `json:"node"`
	// Pod of the exporter; empty if the node has none.
	Pod     string `json:"pod,omitempty"`
	Message string `json:"message"`
	// cause is the error of the question; nil if none was asked.
	cause error
}

// usageUnknown is the error of nodes without an answer, and also the errors of their questions.
type usageUnknown struct {
	error
	causes []error
}

func (u usageUnknown) Unwrap() []error { return u.causes }

// reading is what the exporters have reported.
type reading struct {
	devices []gpuusage.Device
	errors  []noAnswer
	// without are the nodes that are not to run an exporter, which is no failure.
	without []noAnswer
}

// failure returns an error that names the nodes without an answer; nil if there are none.
func (r *reading) failure() error {
	if len(r.errors) == 0 {
		return nil
	}
	text, causes := &strings.Builder{}, []error(nil)
	for i, e := range r.errors {
		if e.cause != nil {
			causes = append(causes, e.cause)
		}
		if i == maxNamed {
			fmt.Fprintf(text, "\n  and %s more", count(len(r.errors)-maxNamed, "node"))
			break
		}
		fmt.Fprintf(text, "\n  %s: %s", e.Node, e.Message)
	}
	return usageUnknown{fmt.Errorf("the usage of %s is unknown:%s", count(len(r.errors), "node"), text), causes}
}

var (
	errExporterOff = errors.New("the DCGM exporter is off (spec.dcgmExporter.enabled is false in ClusterPolicy")
	errNoExporter  = errors.New("no pod of the DCGM exporter runs in namespace")
)

// read asks the exporters of the nodes with these labels that the filter lets through; empty and nil for all. It prints
// which policies cannot be decoded: they may be why an exporter is missing.
func (o *topOptions) read(
	cmd *cobra.Command, asked *session, selector string, wanted func(node string) bool,
) (*reading, error) {
	ctx := cmd.Context()
	all, err := allPolicies(ctx, asked)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(cmd.ErrOrStderr(), undecodableText(undecodablePolicies(slices.Values(all))))
	policy := activeOf(all)
	if policy != nil && !*effective.Of(policy.Spec).DCGMExporter.Enabled {
		return nil, fmt.Errorf("%w %s): turn it on to see the usage of GPUs", errExporterOff, policy.Name)
	}
	namespace := cmp.Or(o.operatorNamespace, namespaceOf(policy))
	pods, err := exporters(ctx, asked, namespace)
	if err != nil {
		return nil, err
	}
	nodes, err := gpuNodesWith(ctx, asked, selector)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("%w %s: see kubectl gpu status, or name another namespace with --operator-namespace",
			errNoExporter, namespace)
	}
	nodes = slices.DeleteFunc(nodes, func(node nodeinfo.Facts) bool { return wanted != nil && !wanted(node.Name) })
	names, without, err := splitExempt(policy, nodes, pods)
	if err != nil {
		return nil, err
	}
	found := o.ask(ctx, asked, names, pods)
	found.without = without
	return found, nil
}

// splitExempt returns the names of the nodes whose exporter is to answer, and those without a pod that the policy,
// which may be nil, or a label keeps the exporter off, sorted.
func splitExempt(
	policy *v1.ClusterPolicy, nodes []nodeinfo.Facts, pods map[string]*corev1.Pod,
) (names []string, without []noAnswer, err error) {
	var decisions *plan.Decisions
	if policy != nil {
		catalogue, err := operands.Catalogue()
		if err != nil {
			return nil, nil, err
		}
		decisions = plan.Decide(catalogue, operand.Input{Spec: effective.Of(policy.Spec)})
	}
	for _, node := range nodes {
		if pods[node.Name] == nil && decisions != nil {
			if cause := exemption(decisions.ForNode(node)); cause != "" {
				without = append(without, noAnswer{Node: node.Name, Message: cause})
				continue
			}
		}
		names = append(names, node.Name)
	}
	slices.SortFunc(without, func(a, b noAnswer) int { return cmp.Compare(a.Node, b.Node) })
	return names, without, nil
}

// exemption returns what keeps the exporter off a node for good; empty if nothing does.
func exemption(node plan.NodePlan) string {
	if node.Facts.ExcludedByLabel {
		return fmt.Sprintf("label %s is %q", labels.DeployOperands, labels.False)
	}
	for _, onNode := range node.Auxiliary {
		if onNode.Operand != exporterOperand {
			continue
		}
		if onNode.Expectation == plan.OptedOut || onNode.Expectation == plan.HostProvides {
			return onNode.Message
		}
		return ""
	}
	return cmp.Or(node.Decision.Message, "the policy has none for it")
}

// namespaceOf returns the operator's namespace by the policy, which may be nil.
func namespaceOf(policy *v1.ClusterPolicy) string {
	if policy == nil {
		return defaultNamespace
	}
	return cmp.Or(policy.Status.Namespace, defaultNamespace)
}

// activePolicyOf returns the active policy of the cluster; nil for none.
func activePolicyOf(ctx context.Context, asked *session) (*v1.ClusterPolicy, error) {
	all, err := allPolicies(ctx, asked)
	return activeOf(all), err
}

// allPolicies returns the policies of the cluster.
func allPolicies(ctx context.Context, asked *session) (all []*v1.ClusterPolicy, err error) {
	_, err = listPolicies(ctx, asked, func(policy *v1.ClusterPolicy) { all = append(all, policy) })
	return all, err
}

// exporters returns the exporter's pod of each node.
func exporters(ctx context.Context, asked *session, namespace string) (map[string]*corev1.Pod, error) {
	found := map[string]*corev1.Pod{}
	options := metav1.ListOptions{LabelSelector: labels.Operand + "=" + exporterOperand}
	_, err := list(ctx, asked.core.Pods(namespace).List, options, func(pod *corev1.Pod) {
		other := found[pod.Spec.NodeName]
		if pod.Spec.NodeName != "" && (other == nil || pod.CreationTimestamp.After(other.CreationTimestamp.Time)) {
			found[pod.Spec.NodeName] = pod
		}
	})
	return found, err
}

// gpuNodesWith returns the nodes with GPUs and other labels, empty for any: the facts that their labels have.
func gpuNodesWith(ctx context.Context, asked *session, selector string) ([]nodeinfo.Facts, error) {
	var nodes []nodeinfo.Facts
	_, err := list(ctx, asked.headers("nodes", ""), gpuNodesLabelled(selector),
		func(object *metav1.PartialObjectMetadata) {
			nodes = append(nodes, observe.Facts(&corev1.Node{ObjectMeta: object.ObjectMeta}))
		})
	return nodes, err
}

// selectedPods returns the pods with the labels of the flag, as namespace/name.
func (o *topOptions) selectedPods(ctx context.Context, asked *session) (map[string]bool, error) {
	namespace := o.namespace
	if o.allNamespaces {
		namespace = ""
	}
	found := map[string]bool{}
	_, err := list(ctx, asked.headers("pods", namespace), metav1.ListOptions{LabelSelector: o.selector},
		func(pod *metav1.PartialObjectMetadata) { found[pod.Namespace+"/"+pod.Name] = true })
	return found, err
}

// ask gets the metrics of the nodes.
func (o *topOptions) ask(ctx context.Context, asked *session, nodes []string, pods map[string]*corev1.Pod) *reading {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxParallel)
	all := &reading{}
	for _, node := range nodes {
		group.Go(func() error {
			devices, failed := o.askNode(ctx, asked, node, pods[node])
			mu.Lock()
			defer mu.Unlock()
			all.devices = append(all.devices, devices...)
			if failed != nil {
				all.errors = append(all.errors, *failed)
			}
			return nil
		})
	}
	_ = group.Wait() // No function fails.
	slices.SortFunc(all.errors, func(a, b noAnswer) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// askNode gets the metrics of one node, whose exporter's pod may be nil.
func (o *topOptions) askNode(
	ctx context.Context, asked *session, node string, pod *corev1.Pod,
) ([]gpuusage.Device, *noAnswer) {
	if pod == nil {
		return nil, &noAnswer{Node: node, Message: "it has no pod of the DCGM exporter: see kubectl gpu explain " + node}
	}
	if pod.Status.Phase != corev1.PodRunning {
		return nil, &noAnswer{Node: node, Pod: pod.Name, Message: fmt.Sprintf("pod %s is %s: see kubectl gpu explain %s",
			pod.Name, pod.Status.Phase, node)}
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	text, cut, err := asked.read(ctx, metricsPath(pod), nil, "text/plain", maxMetrics)
	if err == nil && cut {
		err = fmt.Errorf("the metrics are larger than %d MiB", maxMetrics>>20)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in %s", o.timeout)
	}
	if err != nil {
		return nil, &noAnswer{node, pod.Name, fmt.Sprintf("pod %s does not answer: %v", pod.Name, err), err}
	}
	devices, err := gpuusage.Parse(node, bytes.NewReader(text))
	if err != nil {
		return nil, &noAnswer{node, pod.Name, fmt.Sprintf("pod %s: %v", pod.Name, err), err}
	}
	return devices, nil
}

// metricsPath returns the path of an exporter's metrics through the API server.
func metricsPath(pod *corev1.Pod) string {
	port := int32(0)
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.Name == exporterPort {
				port = p.ContainerPort
			}
		}
	}
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", pod.Namespace, pod.Name, port)
}
