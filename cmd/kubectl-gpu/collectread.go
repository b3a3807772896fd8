package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

const (
	// statusFile is also part of the summary.
	statusFile = "status.txt"
	// maxPart bounds an answer, and maxLog a log, in bytes.
	maxPart = 32 << 20
	maxLog  = 1 << 20
	// maxExplained and maxExporters bound the nodes that are looked at one by one, and maxLogged the pods whose logs are
	// read, those that are not ready first.
	maxExplained = 50
	maxExporters = 50
	maxLogged    = 500
	// partTime bounds one question, as a node may be gone.
	partTime = 20 * time.Second
)

// part is a list of objects in a bundle.
type part struct {
	file, path string
	query      url.Values
	// optional kinds may be unknown to the cluster.
	optional bool
	// trim removes from an object what is large and says little; nil for nothing.
	trim func(*unstructured.Unstructured)
}

// collector fills a bundle.
type collector struct {
	collectOptions
	session   *session
	bundle    *bundle
	namespace string
	// pods of the operator's namespace, those that are not ready first.
	pods []corev1.Pod
}

// parts returns the lists of objects. NAMESPACE is that of the operator.
func parts(namespace string) []part {
	inNamespace := func(group, kind string) string {
		return "/" + group + "/namespaces/" + namespace + "/" + kind
	}
	events := func(kind string) url.Values { return url.Values{"fieldSelector": {"involvedObject.kind=" + kind}} }
	// What an installation consists of, as the chart and config/default label it.
	installed := url.Values{"labelSelector": {labels.Name + "=" + labels.ManagedByValue}}
	const admission, rbac = "/apis/admissionregistration.k8s.io/v1/", "/apis/rbac.authorization.k8s.io/v1/"
	all := []part{
		{file: "clusterpolicies", path: policiesPath},
		{file: "nvidiadrivers", path: "/apis/nvidia.com/v1alpha1/nvidiadrivers", optional: true},
		{file: "nodes", path: nodesPath, query: gpuNodes, trim: withoutImages},
		{file: "crds", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", trim: withoutSchema},
		{file: "runtimeclasses", path: "/apis/node.k8s.io/v1/runtimeclasses"},
		{
			file: "validatingadmissionpolicies", path: admission + "validatingadmissionpolicies",
			query: installed, optional: true,
		},
		{
			file: "validatingadmissionpolicybindings", path: admission + "validatingadmissionpolicybindings",
			query: installed, optional: true,
		},
		{file: "clusterroles", path: rbac + "clusterroles", query: installed},
		{file: "clusterrolebindings", path: rbac + "clusterrolebindings", query: installed},
		{file: "events-nodes", path: "/api/v1/events", query: events("Node")},
		{file: "events-policies", path: "/api/v1/events", query: events(v1.ClusterPolicyKind.Kind)},
	}
	for _, kind := range []struct{ group, kind string }{
		{"api/v1", "pods"}, {"api/v1", "events"}, {"api/v1", "configmaps"}, {"api/v1", "services"},
		{"api/v1", "serviceaccounts"}, {"apis/apps/v1", "daemonsets"}, {"apis/apps/v1", "deployments"},
		{"apis/coordination.k8s.io/v1", "leases"}, {"apis/networking.k8s.io/v1", "networkpolicies"},
		{"apis/policy/v1", "poddisruptionbudgets"}, {"apis/rbac.authorization.k8s.io/v1", "roles"},
		{"apis/rbac.authorization.k8s.io/v1", "rolebindings"}, {"apis/monitoring.coreos.com/v1", "servicemonitors"},
		{"apis/monitoring.coreos.com/v1", "prometheusrules"},
	} {
		all = append(all, part{
			file: namespace + "/" + kind.kind, path: inNamespace(kind.group, kind.kind),
			optional: strings.Contains(kind.group, "monitoring"),
		})
	}
	return all
}

func withoutImages(node *unstructured.Unstructured) {
	unstructured.RemoveNestedField(node.Object, "status", "images")
}

// withoutSchema removes the schemas of a CustomResourceDefinition.
func withoutSchema(definition *unstructured.Unstructured) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for i := range versions {
		if fields, isMap := versions[i].(map[string]any); isMap {
			delete(fields, "schema")
		}
	}
	_ = unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions") // Versions are maps.
}

// versions reads those of cluster and plugin. It fails if the cluster does not answer.
func (c *collector) versions(ctx context.Context) error {
	text, _, err := c.session.read(ctx, "/version", typeJSON, maxError)
	if err != nil {
		return err
	}
	server := map[string]any{}
	if err := json.Unmarshal(text, &server); err != nil {
		return fmt.Errorf("reading /version: %w", err)
	}
	encoded, err := encode(map[string]any{"plugin": version.Version, "kubernetes": server}, formatJSON)
	if err != nil {
		return fmt.Errorf("encoding the versions: %w", err)
	}
	c.bundle.addText(bundleFile{Name: "versions.json", Source: "/version"}, string(encoded))
	if c.namespace != "" {
		return nil
	}
	policy, err := activePolicyOf(ctx, c.session)
	if err != nil {
		c.bundle.missing("namespace", policiesPath, err)
	}
	c.namespace = namespaceOf(policy)
	return nil
}

// objects reads all lists, and which pods request GPUs.
func (c *collector) objects(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for _, p := range parts(c.namespace) {
		group.Go(func() error {
			c.list(ctx, p)
			return nil
		})
	}
	group.Go(func() error {
		c.gpuPods(ctx)
		return nil
	})
	_ = group.Wait() // No function fails.
	// What time and size leave room for is read of pods that are not ready first.
	slices.SortFunc(c.pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(readyRank(&a), readyRank(&b)), cmp.Compare(a.Name, b.Name))
	})
}

// list reads one list.
func (c *collector) list(ctx context.Context, p part) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	file := bundleFile{Name: p.file + ".yaml", Source: p.path}
	objects, size := []any{}, 0
	_, err := listJSON(ctx, c.session, p.path, p.query, typeJSON, func(text *json.RawMessage) {
		if strings.HasSuffix(p.file, "/pods") {
			c.notePod(*text)
		}
		if file.Cut {
			return
		}
		kept, length := c.object(p, *text)
		if kept == nil {
			return
		}
		if file.Cut = size+length > maxPart; !file.Cut {
			objects, size = append(objects, kept), size+length
		}
	})
	switch {
	case err != nil && p.optional && answered(err, "NotFound"):
	case err != nil:
		c.bundle.missing(file.Name, p.path, err)
	default:
		c.bundle.add(content{file: file, objects: objects}, size)
	}
}

// notePod adds a pod to those whose logs and metrics are read, also if the list of pods is cut before it.
func (c *collector) notePod(text []byte) {
	pod := corev1.Pod{}
	if err := json.Unmarshal(text, &pod); err == nil { // Otherwise object reports it.
		c.pods = append(c.pods, pod)
	}
}

// object returns an object without credentials, and its size in bytes; nil if it is not of interest.
func (c *collector) object(p part, text []byte) (kept any, size int) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		c.bundle.missing(p.file, p.path, err)
		return nil, 0
	}
	if p.file == "crds" && !strings.HasSuffix(object.GetName(), ".nvidia.com") {
		return nil, 0
	}
	if p.trim != nil {
		p.trim(object)
	}
	if strings.HasSuffix(p.file, "/configmaps") {
		object.SetKind("ConfigMap") // Items of a list have none.
	}
	ours := object.GetLabels()[labels.ManagedBy] == labels.ManagedByValue
	c.bundle.mu.Lock()
	c.bundle.redactor.RedactObject(object, ours)
	c.bundle.mu.Unlock()
	encoded, err := json.Marshal(object.Object)
	if err != nil {
		c.bundle.missing(p.file, p.path, err)
		return nil, 0
	}
	return object.Object, len(encoded)
}

// computed adds a value as YAML, or takes down why there is none.
func (c *collector) computed(file bundleFile, value any, err error) {
	var text []byte
	if err == nil {
		text, err = encode(value, formatYAML)
	}
	if err != nil {
		c.bundle.missing(file.Name, file.Source, err)
		return
	}
	c.bundle.addText(file, string(text))
}

// overview adds what status prints, and what explain prints of nodes that are not ready.
func (c *collector) overview(ctx context.Context) {
	live := newLiveCluster(c.kubectl)
	if err := live.readFrom(ctx, c.session); err != nil {
		c.bundle.missing(statusFile, "", err)
		return
	}
	found := live.overview()
	c.bundle.addText(bundleFile{Name: statusFile}, overviewText(found, c.bundle.index.Created, true, palette{}))
	c.computed(bundleFile{Name: "status.yaml"}, found, nil)
	known, err := reasons.All()
	if err != nil {
		c.bundle.missing("explain", "", err)
		return
	}
	for i := range min(len(found.Nodes), maxExplained) {
		node := &found.Nodes[i]
		if node.Ready == overview.Ready {
			continue
		}
		file := bundleFile{Name: "explain/" + node.Name + ".txt"}
		explained, err := explainOptions{kubectl: c.kubectl}.node(ctx, c.session, live, node.Name, known)
		if err != nil {
			c.bundle.missing(file.Name, "", err)
			continue
		}
		c.bundle.addText(file, nodeText(explained))
	}
}

// metrics adds those of the exporters.
func (c *collector) metrics(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(maxParallel)
	asked := 0
	for i := range c.pods {
		pod := &c.pods[i]
		if pod.Labels[labels.Operand] != exporterOperand || pod.Status.Phase != corev1.PodRunning || asked == maxExporters {
			continue
		}
		asked++
		group.Go(func() error {
			c.text(ctx, "metrics/"+pod.Name+".txt", metricsPath(pod), maxPart)
			return nil
		})
	}
	_ = group.Wait() // No function fails.
}

// text reads a text.
func (c *collector) text(ctx context.Context, name, path string, limit int64) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	text, cut, err := c.session.read(ctx, path, "text/plain, */*", limit)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	if err != nil {
		c.bundle.missing(name, path, err)
		return
	}
	c.bundle.addText(bundleFile{Name: name, Source: path, Cut: cut}, string(text))
}
