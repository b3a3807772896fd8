package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// PodNodeField indexes pods in the cache by the node that they run on.
const PodNodeField = "spec.nodeName"

// Snapshot is what a pass has read, besides policies and nodes.
type Snapshot struct {
	// DaemonSets of the stack, by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// CRDs are the names of the cluster's CustomResourceDefinitions, except those that are being deleted.
	CRDs map[string]bool
}

// ReadSnapshot reads the Snapshot of the cluster.
func ReadSnapshot(ctx context.Context, reader client.Reader, namespace string) (Snapshot, error) {
	daemonSets, err := DaemonSets(ctx, reader, namespace)
	if err != nil {
		return Snapshot{}, err
	}
	found, err := listCRDs(ctx, reader)
	return Snapshot{DaemonSets: daemonSets, CRDs: found}, err
}

// CRDMetadata returns the type under which CustomResourceDefinitions are cached, which is without their content.
func CRDMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
	}
}

func listCRDs(ctx context.Context, reader client.Reader) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: CRDMetadata().TypeMeta}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		// While a CRD is being deleted, the API server rejects new objects of its kind.
		if list.Items[i].DeletionTimestamp == nil {
			names[list.Items[i].Name] = true
		}
	}
	return names, nil
}

// DaemonSets reads the DaemonSets of the stack, by name.
func DaemonSets(ctx context.Context, reader client.Reader, namespace string) (map[string]*appsv1.DaemonSet, error) {
	list := &appsv1.DaemonSetList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing DaemonSets: %w", err)
	}
	byName := make(map[string]*appsv1.DaemonSet, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// NodePods are the operator's pods on one node.
type NodePods struct {
	// Operands are those of operands. It is not nil if the pods were read.
	Operands assess.Pods
	// Pull is the one that pulls the images of a driver; nil for none.
	Pull *corev1.Pod
}

// PodsOnNode reads the operator's pods on one node.
func PodsOnNode(ctx context.Context, reader client.Reader, namespace, node string) (NodePods, error) {
	all, err := podsOnNode(ctx, reader, namespace, node)
	if err != nil {
		return NodePods{}, err
	}
	pods := NodePods{Operands: make(assess.Pods, len(all))}
	for _, pod := range all {
		pods.Operands.Add(pod)
		if pod.Labels[labels.DriverPull] != "" {
			pods.Pull = pod
		}
	}
	return pods, nil
}

// podsOnNode reads all pods of the namespace on one node, from the index of a PodIndex if the reader has one.
func podsOnNode(ctx context.Context, reader client.Reader, namespace, node string) ([]*corev1.Pod, error) {
	if indexed, has := reader.(indexedClient); has {
		return indexed.podsOnNode(node)
	}
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{PodNodeField: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

// StackOnNode reads the pods of the stack on one node, sorted by name: those of operands, those that pull images of
// drivers, and the youngest of those that clean up the host, which is nil if there is none.
func StackOnNode(
	ctx context.Context, reader client.Reader, namespace, node string,
) (pods []removal.Pod, cleaner *corev1.Pod, err error) {
	all, err := podsOnNode(ctx, reader, namespace, node)
	if err != nil {
		return nil, nil, err
	}
	cleaners := assess.Pods{}
	for _, pod := range all {
		switch name := pod.Labels[labels.Operand]; {
		case name == labels.CleanupOperand:
			cleaners.Add(pod)
		case name != "" || pod.Labels[labels.DriverPull] != "":
			pods = append(pods, removal.Pod{Name: pod.Name, Operand: operand.Name(name)})
		}
	}
	slices.SortFunc(pods, func(a, b removal.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, cleaners[labels.CleanupOperand], nil
}

// ExistingDaemonSetOrPod reads the DaemonSet with this name, or if there is none, a pod that its selector would match.
// Both are nil if neither exists.
func ExistingDaemonSetOrPod(
	ctx context.Context, live client.Reader, namespace, name string,
) (*appsv1.DaemonSet, *corev1.Pod, error) {
	ds := &appsv1.DaemonSet{}
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
	switch {
	case err == nil:
		return ds, nil, nil
	case !apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("reading DaemonSet %s: %w", name, err)
	}
	pods := &corev1.PodList{}
	err = live.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{labels.App: name}, client.Limit(1))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the pods left by DaemonSet %s: %w", name, err)
	}
	if len(pods.Items) == 0 {
		return nil, nil, nil
	}
	return nil, &pods.Items[0], nil
}

// DriverDaemonSets reads the driver DaemonSets of this operator and of NVIDIA's from the API server, sorted by name.
// Those of NVIDIADriver objects have none of the labels by which DaemonSets are cached.
func DriverDaemonSets(ctx context.Context, live client.Reader, namespace string) ([]*appsv1.DaemonSet, error) {
	list := &appsv1.DaemonSetList{}
	drivers := client.MatchingLabels{labels.Component: labels.DriverComponent}
	if err := live.List(ctx, list, client.InNamespace(namespace), drivers); err != nil {
		return nil, fmt.Errorf("listing the driver DaemonSets: %w", err)
	}
	var found []*appsv1.DaemonSet
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// PodNode returns the node that a pod runs on, or for a pod that is not scheduled yet, the node that the DaemonSet
// controller has created it for; empty for none.
func PodNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return ""
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// IndexPodNode is the indexer of PodNodeField: the node of a pod, as PodNode returns it.
func IndexPodNode(object client.Object) []string {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil
	}
	if node := PodNode(pod); node != "" {
		return []string{node}
	}
	return nil
}

// Policies reads all policies. It returns the active one of those that are not being deleted; nil for none. One that
// has been active, and has the finalizer, stays it, as its stack is installed. Otherwise it is the oldest that can be
// decoded, or if there is none, the oldest; of equally old ones the first by name.
func Policies(ctx context.Context, reader client.Reader) (active *v1.ClusterPolicy, all []v1.ClusterPolicy, err error) {
	list := &v1.ClusterPolicyList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing ClusterPolicies: %w", err)
	}
	pointers := make([]*v1.ClusterPolicy, 0, len(list.Items))
	for i := range list.Items {
		pointers = append(pointers, &list.Items[i])
	}
	return Active(pointers), list.Items, nil
}

// Active returns the active one of all policies, see Policies; nil for none.
func Active(all []*v1.ClusterPolicy) *v1.ClusterPolicy {
	var active *v1.ClusterPolicy
	for _, candidate := range all {
		if candidate.DeletionTimestamp == nil && (active == nil || precedes(candidate, active)) {
			active = candidate
		}
	}
	return active
}

// precedes reports whether one policy is active rather than the other. Age alone does not decide: an older policy that
// can be decoded after a correction would take over the nodes, while the objects belong to the other policy.
func precedes(a, b *v1.ClusterPolicy) bool {
	if HasFinalizer(a) != HasFinalizer(b) {
		return HasFinalizer(a)
	}
	if !HasFinalizer(a) && isDecodable(a) != isDecodable(b) {
		return isDecodable(a)
	}
	return older(a, b)
}

func isDecodable(policy *v1.ClusterPolicy) bool { return policy.Annotations[labels.Undecodable] == "" }

func older(a, b *v1.ClusterPolicy) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// Removed returns the policy whose stack has to be removed: the oldest that is being deleted and has the operator's
// finalizer; nil for none. all have no active one.
func Removed(all []v1.ClusterPolicy) *v1.ClusterPolicy {
	var removed *v1.ClusterPolicy
	for i := range all {
		if candidate := &all[i]; candidate.DeletionTimestamp != nil && HasFinalizer(candidate) &&
			(removed == nil || older(candidate, removed)) {
			removed = candidate
		}
	}
	return removed
}

// HasFinalizer reports whether the policy has the operator's finalizer.
func HasFinalizer(policy *v1.ClusterPolicy) bool {
	return slices.Contains(policy.Finalizers, labels.RemovalFinalizer)
}
