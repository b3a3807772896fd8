package cleanup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
)

// Plan is what removes the stack, in the order of its fields.
type Plan struct {
	// Operators at work, which would do the same, and Busy nodes, whose pods would lose their GPUs: each is a reason not
	// to carry out the plan.
	Operators []string
	Busy      []BusyNode
	// Policies are deleted first, so that an operator that starts meanwhile installs nothing.
	Policies []Policy
	// DaemonSets are deleted group by group, each once the pods of the group before it are gone: an operand after those
	// that need it on their node. Others are the rest of the objects.
	DaemonSets [][]Object
	Others     []Object
	Nodes      []Node
	Namespaces []Namespace
}

// BusyNode is a node whose GPUs may be in use, by these pods.
type BusyNode struct {
	Name string
	Pods []string
}

// Policy is a ClusterPolicy.
type Policy struct {
	Name, ResourceVersion string
	Terminating           bool
	// Hold: the finalizer is added before the policy is deleted. Otherwise the garbage collector would delete the objects
	// of the policy in no order.
	Hold bool
	// Finalizers that the policy keeps, and Held: it has the operator's besides.
	Finalizers []string
	Held       bool
}

// Object is one that the operator has applied.
type Object struct{ Kind, Resource, Namespace, Name string }

// String returns kind and name.
func (o Object) String() string {
	return o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// Node is one that the operator has written to.
type Node struct {
	Name    string
	Removal *nodemarks.Removal
}

// Namespace is one whose Pod Security labels the operator has set. Restored are the values that these had before.
type Namespace struct {
	Name     string
	Restored map[string]string
}

// IsEmpty reports whether nothing of the stack is left.
func (p *Plan) IsEmpty() bool {
	return len(p.Policies) == 0 && len(p.DaemonSets) == 0 && len(p.Others) == 0 && len(p.Nodes) == 0 &&
		len(p.Namespaces) == 0
}

// Of returns the plan for a cluster. catalogue is sorted.
func Of(cluster *Cluster, catalogue operand.Catalogue) *Plan {
	p := &Plan{Operators: cluster.operators()}
	stack, owners := map[string]bool{}, map[string]bool{}
	groups := map[int][]Object{}
	for _, object := range cluster.Objects {
		if !isOfStack(object) {
			continue
		}
		for _, owner := range object.GetOwnerReferences() {
			owners[string(owner.UID)] = true
		}
		described := Describe(object)
		if object.GetKind() != "DaemonSet" {
			p.Others = append(p.Others, described)
			continue
		}
		stack[object.GetNamespace()] = true
		group := removalGroup(catalogue, operand.Name(object.GetLabels()[labels.Operand]))
		groups[group] = append(groups[group], described)
	}
	for _, driver := range cluster.Drivers {
		p.Others = append(p.Others, Describe(driver))
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		p.DaemonSets = append(p.DaemonSets, sortObjects(groups[group]))
	}
	p.Others = sortObjects(p.Others)
	p.addPolicies(cluster.Policies, owners)
	p.addNodes(cluster.Nodes, catalogue)
	p.addNamespaces(cluster.Namespaces)
	p.Busy = cluster.busyNodes(p.Nodes, stack)
	return p
}

// isOfStack reports whether the operator has applied the object, or keeps the slots of upgrades in it.
func isOfStack(object *unstructured.Unstructured) bool {
	return labels.IsApplied(object) || object.GetKind() == "ConfigMap" && object.GetName() == labels.UpgradeSlots &&
		object.GetLabels()[labels.ManagedBy] == labels.ManagedByValue
}

// Describe returns the name of an object, as kubectl takes it.
func Describe(object *unstructured.Unstructured) Object {
	kind := object.GroupVersionKind()
	return Object{Kind: kind.Kind, Resource: Resource(kind), Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Resource returns a kind as kubectl takes it.
func Resource(kind schema.GroupVersionKind) string {
	if kind.Group == "" {
		return strings.ToLower(kind.Kind)
	}
	return fmt.Sprintf("%s.%s.%s", strings.ToLower(kind.Kind), kind.Version, kind.Group)
}

func sortObjects(objects []Object) []Object {
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects
}

// removalGroup returns after how many others the operand is removed: 0 for one that no other needs on its node. An
// operand that this release does not know may need any.
func removalGroup(catalogue operand.Catalogue, name operand.Name) int {
	group := 0
	for i := range catalogue {
		for _, r := range catalogue[i].Requires {
			if r.On == name && r.Scope == operand.Node {
				group = max(group, 1+removalGroup(catalogue, catalogue[i].Name))
			}
		}
	}
	return group
}

func (p *Plan) addPolicies(policies []*unstructured.Unstructured, owners map[string]bool) {
	for _, policy := range policies {
		kept := slices.DeleteFunc(slices.Clone(policy.GetFinalizers()), func(name string) bool {
			return name == labels.RemovalFinalizer
		})
		held := len(kept) < len(policy.GetFinalizers())
		terminating := policy.GetDeletionTimestamp() != nil
		p.Policies = append(p.Policies, Policy{
			Name: policy.GetName(), ResourceVersion: policy.GetResourceVersion(), Terminating: terminating,
			Hold: !terminating && !held && owners[string(policy.GetUID())], Finalizers: kept, Held: held,
		})
	}
	slices.SortFunc(p.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
}

func (p *Plan) addNodes(nodes []corev1.Node, catalogue operand.Catalogue) {
	for i := range nodes {
		if removal := nodemarks.Remove(catalogue, &nodes[i]); !removal.IsEmpty() {
			p.Nodes = append(p.Nodes, Node{Name: nodes[i].Name, Removal: removal})
		}
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
}

func (p *Plan) addNamespaces(namespaces []metav1.PartialObjectMetadata) {
	for i := range namespaces {
		if namespace := &namespaces[i]; apply.OwnsPodSecurity(namespace) {
			p.Namespaces = append(p.Namespaces, Namespace{
				Name: namespace.Name, Restored: apply.RestoredPodSecurity(namespace),
			})
		}
	}
	slices.SortFunc(p.Namespaces, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
}
