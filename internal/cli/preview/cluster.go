package preview

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// Cluster is the part of a cluster that a preview depends on.
type Cluster struct {
	// Namespace of the operator and its operands.
	Namespace string
	// Objects in any order, with their kind set. Those of other kinds and of other namespaces are ignored, except pods
	// and PodDisruptionBudgets, which are read of all namespaces.
	Objects []manifest.Object
	// Read are the kinds of which Objects has all. An object of another kind counts as existing if the policy refers to
	// it, and is otherwise not compared.
	Read map[string]bool
	// CRDs are the names of the CustomResourceDefinitions of optional kinds; nil if they were not read.
	CRDs map[string]bool
	// Given counts over what the objects have.
	Given Given

	// policy is the one that an edit replaces, as it is in the cluster; nil for a new one.
	policy *v1.ClusterPolicy
	// mirror is the registry that an edit removes from the operator's image; empty for none.
	mirror string
	// edited: the identity of the applied spec is left out, as the operator writes another one after the edit.
	edited bool
}

// Given is what a user says of a cluster. A field without a value says nothing.
type Given struct {
	// Image of the operator, and Variables of its container by name.
	Image     string
	Variables map[string]string
	// DriverToolkit has the images of OpenShift's driver toolkit by release, and OpenShift the configuration.
	DriverToolkit map[string]string
	OpenShift     operand.OpenShiftCluster
}

// of returns the objects of a type in the order of the cluster.
func of[T manifest.Object](c *Cluster) []T {
	var found []T
	for _, object := range c.Objects {
		if typed, isOne := object.(T); isOne {
			found = append(found, typed)
		}
	}
	return found
}

// inNamespace returns the objects of a type in the operator's namespace.
func inNamespace[T manifest.Object](c *Cluster) []T {
	return slices.DeleteFunc(of[T](c), func(object T) bool { return object.GetNamespace() != c.Namespace })
}

// find returns the live object of a rendered one; nil if there is none.
func (c *Cluster) find(rendered manifest.Object) manifest.Object {
	kind := rendered.GetObjectKind().GroupVersionKind()
	for _, object := range c.Objects {
		if object.GetName() == rendered.GetName() && object.GetNamespace() == rendered.GetNamespace() &&
			object.GetObjectKind().GroupVersionKind() == kind {
			return object
		}
	}
	return nil
}

// daemonSets returns the DaemonSets of the stack, by name.
func (c *Cluster) daemonSets() map[string]*appsv1.DaemonSet {
	byName := map[string]*appsv1.DaemonSet{}
	for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
		if ds.Labels[labels.ManagedBy] == labels.ManagedByValue {
			byName[ds.Name] = ds
		}
	}
	return byName
}

// nvidiaDrivers returns the drivers that NVIDIADriver objects declare after an edit; nil if there may be others.
func (c *Cluster) nvidiaDrivers(edit Edit) []operand.NVIDIADriver {
	found := of[*v1alpha1.NVIDIADriver](c)
	if len(found)+len(edit.Drivers) == 0 && !c.Read[v1alpha1.NVIDIADriverKind.Kind] {
		return nil
	}
	objects := slices.Clone(edit.Drivers)
	for _, object := range found {
		if !slices.ContainsFunc(edit.Drivers, func(other v1alpha1.NVIDIADriver) bool { return other.Name == object.Name }) {
			objects = append(objects, *object)
		}
	}
	return nvidiadriver.Declared(edit.Policy.Spec, objects)
}

// live returns the live DaemonSets of an operand, as the pass finds them: the name of a deleted DaemonSet is in use
// while pods of it remain.
func (c *Cluster) live(o *operand.Operand, instances []operand.Instance) map[string]rollout.Live {
	live := rollout.LiveDaemonSets(o, c.daemonSets())
	if !rollout.MayAssignBaseName(o, instances, live) {
		return live
	}
	for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
		if ds.Name == o.DaemonSet {
			live[ds.Name] = rollout.LiveDaemonSet(ds)
			return live
		}
	}
	for _, pod := range inNamespace[*corev1.Pod](c) {
		if pod.Labels[labels.App] == o.DaemonSet {
			live[o.DaemonSet] = rollout.LivePod(pod)
			break
		}
	}
	return live
}

// active returns the policy that the operator applies; nil for none.
func (c *Cluster) active() *v1.ClusterPolicy { return observe.Active(of[*v1.ClusterPolicy](c)) }

// activeAfter returns the policy that the operator applies after an edit; nil for none. An edited policy keeps the
// metadata by which it is chosen, and a new one is created now.
func (c *Cluster) activeAfter(edit Edit, now time.Time) *v1.ClusterPolicy {
	edited := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: edit.Policy.Name, CreationTimestamp: metav1.NewTime(now), Annotations: edit.Policy.Annotations,
	}}
	var all []*v1.ClusterPolicy
	for _, policy := range of[*v1.ClusterPolicy](c) {
		if policy.Name != edited.Name {
			all = append(all, policy)
			continue
		}
		edited.UID, edited.CreationTimestamp = policy.UID, policy.CreationTimestamp
		edited.Finalizers, edited.DeletionTimestamp = policy.Finalizers, policy.DeletionTimestamp
	}
	return observe.Active(append(all, edited))
}

// before returns the cluster with the policy that an edit replaces.
func (c *Cluster) before(edit Edit) *Cluster {
	clone := *c
	for _, policy := range of[*v1.ClusterPolicy](c) {
		if policy.Name == edit.Policy.Name && policy.DeletionTimestamp == nil {
			clone.policy = policy
		}
	}
	return &clone
}

// appliedSpec returns the annotation of the spec that was last applied, so that it does not count as a change.
func (c *Cluster) appliedSpec() string {
	if c.edited {
		return ""
	}
	for _, service := range inNamespace[*corev1.Service](c) {
		if applied := service.Annotations[labels.AppliedSpec]; applied != "" {
			return applied
		}
	}
	return ""
}

// optional returns the optional kinds that the cluster serves.
func (c *Cluster) optional() map[operand.OptionalKind]bool {
	served := map[operand.OptionalKind]bool{}
	for _, kind := range manifest.OptionalKinds() {
		served[kind.Kind] = c.CRDs[kind.CRD] || c.CRDs == nil && c.Read[string(kind.Kind)]
	}
	return served
}

// driverToolkit returns the images of OpenShift's driver toolkit; nil if the cluster has none.
func (c *Cluster) driverToolkit() map[string]string {
	if c.Given.DriverToolkit != nil {
		return c.Given.DriverToolkit
	}
	for _, object := range of[*unstructured.Unstructured](c) {
		if object.GetKind() == "ImageStream" && object.GetNamespace() == labels.DriverToolkitNamespace &&
			object.GetName() == labels.DriverToolkitName {
			return observe.DriverToolkitImages(object)
		}
	}
	return nil
}

// ownerUID is the UID of the policy in the cluster, which owns the objects of the stack; empty for none.
func ownerUID(policy *v1.ClusterPolicy) types.UID {
	if policy == nil {
		return ""
	}
	return policy.UID
}
