package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/leadership"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// readCluster reads what the plan of a cleanup depends on.
func (o *cleanupOptions) readCluster(ctx context.Context) (*cleanup.Cluster, error) {
	cluster := &cleanup.Cluster{Now: time.Now()}
	kinds, err := o.appliedKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		of   selection
		into func(*unstructured.Unstructured) error
	}{
		{
			selection{resources: strings.Join(kinds.applied, ","), label: labels.ManagedBy + "=" + labels.ManagedByValue},
			keep(&cluster.Objects),
		},
		{selection{resources: "nodes"}, decode(&cluster.Nodes)},
		{selection{resources: "pods"}, decode(&cluster.Pods)},
		{selection{resources: "namespaces", managers: true}, decode(&cluster.Namespaces)},
		{
			selection{resources: "leases.coordination.k8s.io", fields: "metadata.name=" + leadership.LeaseName},
			decode(&cluster.Leases),
		},
	} {
		if err := o.asked.get(ctx, one.of, one.into); err != nil {
			return nil, err
		}
	}
	o.readClaims(ctx, cluster)
	for name, into := range map[string]*[]*unstructured.Unstructured{
		crd.Name: &cluster.Policies, crd.NVIDIADriverName: &cluster.Drivers,
	} {
		if !kinds.own[name] {
			continue
		}
		if err := o.asked.get(ctx, selection{resources: name}, keep(into)); err != nil {
			return nil, err
		}
	}
	return cluster, nil
}

// readClaims reads the resource claims, if a pod has any. A cluster need not serve them, and the user need not have the
// right: those that are not read count as holding GPUs.
func (o *cleanupOptions) readClaims(ctx context.Context, cluster *cleanup.Cluster) {
	if slices.ContainsFunc(cluster.Pods, func(pod corev1.Pod) bool { return gpuuse.HasClaims(&pod) }) {
		_ = o.asked.get(ctx, selection{resources: resourceClaims}, func(object *unstructured.Unstructured) error {
			claim := &resourcev1.ResourceClaim{}
			cluster.Claims = append(cluster.Claims, claim)
			return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, claim)
		})
	}
}

// kindsInCluster are the kinds of applied objects that the cluster serves, and the operator's own, by their
// definitions.
type kindsInCluster struct {
	applied []string
	own     map[string]bool
}

func (o *cleanupOptions) appliedKinds(ctx context.Context) (kindsInCluster, error) {
	found := kindsInCluster{own: map[string]bool{}}
	for _, kind := range manifest.Kinds() {
		found.applied = append(found.applied, cleanup.Resource(kind.GetObjectKind().GroupVersionKind()))
	}
	names := []string{crd.Name, crd.NVIDIADriverName}
	for _, kind := range manifest.OptionalKinds() {
		names = append(names, kind.CRD)
	}
	of := selection{resources: definitions, names: names}
	err := o.asked.get(ctx, of, func(definition *unstructured.Unstructured) error {
		if name := definition.GetName(); name == crd.Name || name == crd.NVIDIADriverName {
			found.own[name] = true
			return nil
		}
		found.applied = append(found.applied, definition.GetName())
		return nil
	})
	return found, err
}

// keep adds objects to a list.
func keep(list *[]*unstructured.Unstructured) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		*list = append(*list, object)
		return nil
	}
}

// decode adds objects to a list of their type.
func decode[T corev1.Node | corev1.Pod | coordinationv1.Lease | metav1.PartialObjectMetadata](
	list *[]T,
) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		*list = append(*list, one)
		return nil
	}
}
