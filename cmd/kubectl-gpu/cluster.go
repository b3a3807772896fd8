package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// defaultNamespace is that of the operator, if neither a flag nor the status of a policy names it.
const defaultNamespace = "gpu-operator"

// operatorNamespaceUsage is the usage of the flags for that namespace.
const operatorNamespaceUsage = "namespace of the operator (default: the one in the status of the policy, or " +
	defaultNamespace + ")"

// clusterReader collects objects.
type clusterReader struct {
	scheme  *runtime.Scheme
	cluster preview.Cluster
}

func newClusterReader() (*clusterReader, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme, schedulingv1.AddToScheme,
		admissionv1.AddToScheme, resourcev1.AddToScheme, monitoringv1.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return &clusterReader{scheme: scheme, cluster: preview.Cluster{Read: map[string]bool{}}}, nil
}

// add takes up the objects of a document, which may be a list. Kinds that no preview depends on are ignored, and so are
// unknown fields: another release may have written them.
func (r *clusterReader) add(document []byte) error {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return err
	}
	if !object.IsList() {
		return r.addObject(object)
	}
	return object.EachListItem(func(item runtime.Object) error {
		one, isObject := item.(*unstructured.Unstructured)
		if !isObject {
			return fmt.Errorf("found a %T in a list", item)
		}
		if one.GetKind() == "" { // Items of a list of one kind.
			one.SetAPIVersion(object.GetAPIVersion())
			one.SetKind(strings.TrimSuffix(object.GetKind(), "List"))
		}
		return r.addObject(one)
	})
}

func (r *clusterReader) addObject(object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	switch {
	case kind.Kind == "CustomResourceDefinition":
		if r.cluster.CRDs == nil {
			r.cluster.CRDs = map[string]bool{}
		}
		r.cluster.CRDs[object.GetName()] = true
		return nil
	case kind.Kind == "ImageStream", isOpenShiftConfig(kind):
		r.cluster.Objects = append(r.cluster.Objects, object)
		return nil
	case kind.Group == resourcev1.GroupName && kind.Kind == "ResourceClaim":
		// What is read of it is alike in all versions, which differ between clusters.
		kind.Version = resourcev1.SchemeGroupVersion.Version
	case !r.scheme.Recognizes(kind):
		return nil
	}
	typed, err := r.scheme.New(kind)
	if err != nil {
		return err
	}
	fields, err := sanitized(object)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, typed); err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
	}
	known, isObject := typed.(manifest.Object)
	if !isObject {
		return nil
	}
	r.cluster.Objects = append(r.cluster.Objects, known)
	r.cluster.Read[kind.Kind] = true
	return nil
}

// isOpenShiftConfig reports whether a kind is one of OpenShift's configuration that drivers depend on.
func isOpenShiftConfig(kind schema.GroupVersionKind) bool {
	return kind.Group == labels.OpenShiftConfigGroup && (kind.Kind == "Proxy" || kind.Kind == "ClusterVersion")
}

// sanitized returns the fields of an object that can be decoded.
func sanitized(object *unstructured.Unstructured) (map[string]any, error) {
	if _, own := customKinds()[object.GroupVersionKind()]; !own {
		return object.Object, nil
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	if text, _, err = customKinds().Sanitize(text); err != nil {
		return nil, err
	}
	fields := map[string]any{}
	return fields, json.Unmarshal(text, &fields)
}

// finish returns the cluster, with the namespace of the operator.
func (r *clusterReader) finish(namespace string) *preview.Cluster {
	r.cluster.Namespace = cmp.Or(namespace, r.namespaceInStatus(), defaultNamespace)
	return &r.cluster
}

func (r *clusterReader) namespaceInStatus() string {
	for _, object := range r.cluster.Objects {
		if policy, isPolicy := object.(*v1.ClusterPolicy); isPolicy && policy.Status.Namespace != "" {
			return policy.Status.Namespace
		}
	}
	return ""
}

// readFile reads the objects of a cluster from a file.
func (o planOptions) readFile(in io.Reader) (*preview.Cluster, error) {
	all, err := documents(o.against, in)
	if err != nil {
		return nil, fmt.Errorf("reading the objects %s: %w", o.against, err)
	}
	reader, err := newClusterReader()
	if err != nil {
		return nil, err
	}
	for _, document := range all {
		if err := reader.add(document); err != nil {
			return nil, fmt.Errorf("reading the objects %s: %w", o.against, err)
		}
	}
	for _, kind := range []string{"Node", "Pod", "DaemonSet"} {
		if !reader.cluster.Read[kind] {
			return nil, fmt.Errorf("reading the objects %s: %w", o.against, errNoKind(kind))
		}
	}
	return reader.finish(o.namespace), nil
}

// errNoKind is the error for a file without any object of a kind that a plan depends on.
func errNoKind(kind string) error {
	return errors.New("it has no " + kind + ": export the objects as kubectl gpu plan --help shows")
}

// askCluster reads the cluster of the connection.
func (o planOptions) askCluster(ctx context.Context, edit preview.Edit) (*preview.Cluster, error) {
	asked, err := o.connection.open()
	if err != nil {
		return nil, err
	}
	return o.readCluster(ctx, asked, edit)
}

// readCluster reads a cluster.
func (o planOptions) readCluster(ctx context.Context, asked *session, edit preview.Edit) (*preview.Cluster, error) {
	reader, err := newClusterReader()
	if err != nil {
		return nil, err
	}
	crds := append([]string{crd.NVIDIADriverName}, openShiftDefinitions...)
	for _, kind := range manifest.OptionalKinds() {
		crds = append(crds, kind.CRD)
	}
	reader.cluster.CRDs = map[string]bool{}
	for _, of := range []selection{
		{resources: "nodes,runtimeclasses.node.k8s.io,pods,poddisruptionbudgets.policy"},
		{resources: definitions, names: crds},
	} {
		if err := asked.get(ctx, of, reader.addObject); err != nil {
			return nil, err
		}
	}
	if err := reader.readPolicies(ctx, asked, edit); err != nil {
		return nil, err
	}
	reader.readClaims(ctx, asked)
	reader.readOpenShift(ctx, asked)
	reader.finish(o.namespace)
	namespaced := "daemonsets.apps,deployments.apps,services,configmaps"
	for definition := range reader.cluster.CRDs {
		if !slices.Contains(openShiftDefinitions, definition) {
			namespaced += "," + definition
		}
	}
	inNamespace := selection{resources: namespaced, namespace: reader.cluster.Namespace}
	if err := asked.get(ctx, inNamespace, reader.addObject); err != nil {
		return nil, err
	}
	for _, kind := range []string{
		"Node", "RuntimeClass", "ClusterPolicy", "Pod", "PodDisruptionBudget", "DaemonSet", "Deployment", "Service",
		"ConfigMap", string(operand.Secret), string(operand.PriorityClass), string(operand.ValidatingAdmissionPolicyBinding),
	} {
		reader.cluster.Read[kind] = true
	}
	reader.cluster.Read[v1alpha1.NVIDIADriverKind.Kind] = reader.cluster.CRDs[crd.NVIDIADriverName]
	for _, kind := range manifest.OptionalKinds() {
		reader.cluster.Read[string(kind.Kind)] = reader.cluster.CRDs[kind.CRD]
	}
	if err := reader.readReferences(ctx, asked, edit); err != nil {
		return nil, err
	}
	return &reader.cluster, nil
}

// readPolicies reads the policies. That of a file may be for a cluster in which nothing is installed yet.
func (r *clusterReader) readPolicies(ctx context.Context, asked *session, edit preview.Edit) error {
	err := asked.get(ctx, selection{resources: "clusterpolicies.nvidia.com"}, r.addObject)
	switch {
	case !errors.Is(err, errNoResource):
		return err
	case edit.Policy == nil:
		return fmt.Errorf("%w, or give a policy by --filename", errNotServed)
	}
	return nil
}

// resourceClaims is the resource of claims for devices, in the version that the cluster prefers.
const resourceClaims = "resourceclaims.resource.k8s.io"

// readClaims reads the resource claims, if a pod has any. A cluster need not serve them, and the user need not have the
// right: those that are not read count as holding GPUs.
func (r *clusterReader) readClaims(ctx context.Context, asked *session) {
	for _, object := range r.cluster.Objects {
		if pod, isPod := object.(*corev1.Pod); isPod && gpuuse.HasClaims(pod) {
			_ = asked.get(ctx, selection{resources: resourceClaims}, r.addObject)
			return
		}
	}
}

// openShiftDefinitions are the names of the kinds of OpenShift's configuration that drivers depend on.
var openShiftDefinitions = []string{labels.ProxyDefinition, labels.ClusterVersionDefinition}

// readOpenShift reads the configuration of OpenShift. The user need not have the right: the preview has a note then.
func (r *clusterReader) readOpenShift(ctx context.Context, asked *session) {
	for _, definition := range openShiftDefinitions {
		if r.cluster.CRDs[definition] {
			_ = asked.get(ctx, selection{resources: definition}, r.addObject)
		}
	}
}

// readReferences reads the objects that the policy refers to, except for ConfigMaps, and the images of OpenShift's
// driver toolkit if there are nodes with Red Hat CoreOS. The user need not have the right to Secrets: the preview has a
// note then.
func (r *clusterReader) readReferences(ctx context.Context, asked *session, edit preview.Edit) error {
	references, err := preview.References(&r.cluster, edit)
	if err != nil {
		return err
	}
	named := map[operand.ReferenceKind][]string{}
	for _, reference := range references {
		if reference.Kind != operand.ConfigMap {
			named[reference.Kind] = append(named[reference.Kind], reference.Name)
		}
	}
	for kind, names := range named {
		of := selection{resources: strings.ToLower(string(kind)), namespace: r.cluster.Namespace, names: names}
		err := asked.get(ctx, of, r.addObject)
		if kind == operand.Secret && apierrors.IsForbidden(err) {
			r.cluster.Read[string(kind)] = false
			continue
		}
		if err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(r.cluster.Objects, isCoreOS) {
		return nil
	}
	images := selection{
		resources: "imagestreams.image.openshift.io", names: []string{labels.DriverToolkitName},
		namespace: labels.DriverToolkitNamespace,
	}
	return asked.get(ctx, images, r.addObject)
}

// isCoreOS reports whether an object is a node with Red Hat CoreOS.
func isCoreOS(object manifest.Object) bool {
	node, isNode := object.(*corev1.Node)
	return isNode && node.Labels[labels.DiscoveryOSTree] != ""
}
