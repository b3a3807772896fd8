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

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

const (
	// statusFile is also part of the summary, and pageFile the same for a browser.
	statusFile = "status.txt"
	pageFile   = "status.html"
	// maxPart bounds a list, maxLog a log, and maxVersion the versions of the cluster, in bytes.
	maxPart    = 32 << 20
	maxLog     = 1 << 20
	maxVersion = 64 << 10
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
	file      string
	resource  schema.GroupVersionResource
	namespace string
	options   metav1.ListOptions
	// optional kinds may be unknown to the cluster.
	optional bool
	// trim removes from an object what is large and says little; nil for nothing.
	trim func(*unstructured.Unstructured)
}

// path of the list.
func (p part) path() string {
	path := "/apis/" + p.resource.GroupVersion().String()
	if p.resource.Group == "" {
		path = "/api/" + p.resource.Version
	}
	if p.namespace != "" {
		path += "/namespaces/" + p.namespace
	}
	return path + "/" + p.resource.Resource
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
	events := func(kind string) metav1.ListOptions {
		return withField(metav1.ListOptions{}, "involvedObject.kind", kind)
	}
	// What an installation consists of, as the chart and config/default label it.
	installed := metav1.ListOptions{LabelSelector: labels.Name + "=" + labels.ManagedByValue}
	core, admission, rbac := corev1.SchemeGroupVersion, admissionv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	all := []part{
		{file: "clusterpolicies", resource: policies},
		{file: "nvidiadrivers", resource: v1alpha1.GroupVersion.WithResource("nvidiadrivers"), optional: true},
		{file: "nodes", resource: core.WithResource("nodes"), options: gpuNodes, trim: withoutImages},
		{
			file: "crds", trim: withoutSchema,
			resource: schema.GroupVersionResource{
				Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			},
		},
		{file: "runtimeclasses", resource: nodev1.SchemeGroupVersion.WithResource("runtimeclasses")},
		{
			file:     "validatingadmissionpolicies",
			resource: admission.WithResource("validatingadmissionpolicies"), options: installed, optional: true,
		},
		{
			file:     "validatingadmissionpolicybindings",
			resource: admission.WithResource("validatingadmissionpolicybindings"), options: installed, optional: true,
		},
		{file: "clusterroles", resource: rbac.WithResource("clusterroles"), options: installed},
		{file: "clusterrolebindings", resource: rbac.WithResource("clusterrolebindings"), options: installed},
		{file: "events-nodes", resource: core.WithResource("events"), options: events("Node")},
		{file: "events-policies", resource: core.WithResource("events"), options: events(v1.ClusterPolicyKind.Kind)},
	}
	for _, of := range []struct {
		group     schema.GroupVersion
		resources []string
	}{
		{core, []string{"pods", "events", "configmaps", "services", "serviceaccounts"}},
		{appsv1.SchemeGroupVersion, []string{"daemonsets", "deployments"}},
		{coordinationv1.SchemeGroupVersion, []string{"leases"}},
		{networkingv1.SchemeGroupVersion, []string{"networkpolicies"}},
		{policyv1.SchemeGroupVersion, []string{"poddisruptionbudgets"}},
		{rbac, []string{"roles", "rolebindings"}},
		{monitoringv1.SchemeGroupVersion, []string{"servicemonitors", "prometheusrules"}},
	} {
		for _, resource := range of.resources {
			all = append(all, part{
				file: namespace + "/" + resource, resource: of.group.WithResource(resource), namespace: namespace,
				optional: of.group == monitoringv1.SchemeGroupVersion,
			})
		}
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
	text, _, err := c.session.read(ctx, "/version", nil, runtime.ContentTypeJSON, maxVersion)
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
		c.bundle.missing("namespace", part{resource: policies}.path(), err)
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
	file := bundleFile{Name: p.file + ".yaml", Source: p.path()}
	objects, size := []any{}, 0
	resource := c.session.objects.Resource(p.resource).Namespace(p.namespace)
	_, err := list(ctx, resource.List, p.options, func(object *unstructured.Unstructured) {
		if strings.HasSuffix(p.file, "/pods") {
			c.notePod(object)
		}
		if file.Cut {
			return
		}
		kept, length := c.object(p, object)
		if kept == nil {
			return
		}
		if file.Cut = size+length > maxPart; !file.Cut {
			objects, size = append(objects, kept), size+length
		}
	})
	switch {
	case err != nil && p.optional && apierrors.IsNotFound(err):
	case err != nil:
		c.bundle.missing(file.Name, file.Source, err)
	default:
		c.bundle.add(content{file: file, objects: objects}, size)
	}
}

// notePod adds a pod to those whose logs and metrics are read, also if the list of pods is cut before it.
func (c *collector) notePod(object *unstructured.Unstructured) {
	pod := corev1.Pod{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod) == nil { // The API server checks it.
		c.pods = append(c.pods, pod)
	}
}

// object returns an object without credentials, and its size in bytes; nil if it is not of interest.
func (c *collector) object(p part, object *unstructured.Unstructured) (kept any, size int) {
	if p.file == "crds" && !strings.HasSuffix(object.GetName(), ".nvidia.com") {
		return nil, 0
	}
	if p.trim != nil {
		p.trim(object)
	}
	ours := object.GetLabels()[labels.ManagedBy] == labels.ManagedByValue
	c.bundle.mu.Lock()
	c.bundle.redactor.RedactObject(object, ours)
	c.bundle.mu.Unlock()
	encoded, err := json.Marshal(object.Object)
	if err != nil {
		c.bundle.missing(p.file, p.path(), err)
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

// overview adds what status prints, also as a page, and what explain prints of nodes that are not ready.
func (c *collector) overview(ctx context.Context) {
	live := newLiveCluster(c.session)
	if err := live.read(ctx); err != nil {
		c.bundle.missing(statusFile, "", err)
		return
	}
	found := live.overview()
	c.bundle.addText(bundleFile{Name: statusFile}, overviewText(found, c.bundle.index.Created, true, palette{}))
	c.computed(bundleFile{Name: "status.yaml"}, found, nil)
	c.page(live, found)
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
		explained, err := explainOptions{}.node(ctx, c.session, live, node.Name, known)
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
			c.text(ctx, "metrics/"+pod.Name+".txt", metricsPath(pod), nil, maxPart)
			return nil
		})
	}
	_ = group.Wait() // No function fails.
}

// text reads a text.
func (c *collector) text(ctx context.Context, name, path string, query url.Values, limit int64) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	text, cut, err := c.session.read(ctx, path, query, "text/plain, */*", limit)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	if err != nil {
		c.bundle.missing(name, path, err)
		return
	}
	c.bundle.addText(bundleFile{Name: name, Source: path, Cut: cut}, string(text))
}
