package migrationsteps

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

const (
	kindPriorityClass = "PriorityClass"
	kindRevision      = "ControllerRevision"
)

// ownAccounts are the accounts of the operands that NVIDIA's operator does not have.
var ownAccounts = []string{"nvidia-node-discovery", "nvidia-gpu-health"}

// FinishRefusal returns why what is left of this operator cannot be removed yet; empty if it can.
func (b *Back) FinishRefusal() string {
	theirs, own := b.deployments()
	switch {
	case len(own) > 0:
		return fmt.Sprintf("Deployment %s in namespace %s still runs this operator: run kubectl gpu migrate --back first",
			own[0].GetName(), own[0].GetNamespace())
	case len(theirs) == 0:
		return "NVIDIA's operator is not installed: install it first, as docs/migration.md describes"
	}
	if left := b.notTakenBack(); len(left) > 0 {
		return "NVIDIA's operator has not taken over " + strings.Join(left, ", ") +
			" yet: wait until their pods have been replaced, or see its log"
	}
	for i := range b.nodes {
		if node := &b.nodes[i]; node.Annotations[labels.DiscoveredLabels] != "" && !isDiscovered(node) {
			return fmt.Sprintf("only this operator's node discovery labels node %s, and NVIDIA's operator finds GPUs by these "+
				"labels: install Node Feature Discovery first, which is part of NVIDIA's chart", node.Name)
		}
	}
	return ""
}

// isDiscovered reports whether Node Feature Discovery has labelled the node.
func isDiscovered(node *corev1.Node) bool {
	for key := range node.Annotations {
		if strings.HasPrefix(key, labels.NFDPrefix) {
			return true
		}
	}
	return false
}

// notTakenBack returns the DaemonSets of NVIDIA's operator that it has not updated yet, or whose pods it has not
// replaced.
func (b *Back) notTakenBack() []string {
	var left []string
	for i := range b.sets {
		ds := &b.sets[i]
		p, known := placeOf(ds)
		if !known {
			continue
		}
		updated := p.operand == driverOperand || ds.Status.ObservedGeneration == ds.Generation &&
			ds.Status.UpdatedNumberScheduled >= ds.Status.DesiredNumberScheduled
		if labels.IsApplied(ds) || ds.Annotations[labels.NVIDIAHash] == "" || !updated {
			left = append(left, ds.Name)
		}
	}
	return left
}

// placeOf returns the DaemonSet of NVIDIA's operator that a DaemonSet is, or is to become.
func placeOf(ds *appsv1.DaemonSet) (place, bool) {
	for _, p := range places() {
		if ds.Labels[labels.Operand] == p.operand || ds.Name == p.name ||
			p.operand == driverOperand && strings.HasPrefix(ds.Name, driverName+"-") {
			return p, true
		}
	}
	return place{}, false
}

// Finish returns the steps after NVIDIA's operator has taken over, in order: what it does not have is deleted, and the
// marks of this operator are removed from pods, nodes, namespace and policy. Running pods are not touched, but those of
// node discovery.
func (b *Back) Finish() []Step {
	var steps []Step
	releases := b.ownReleases()
	for _, object := range b.sorted() {
		switch {
		case b.isOnlyOurs(object), releases[recordOf(object)]:
			steps = append(steps, step(ActionDelete, object))
		case releases[releaseOf(object)]:
			release := step(ActionRelease, object)
			release.Annotations = []string{releaseName, releaseNamespace}
			steps = append(steps, release)
		}
	}
	steps = append(steps, b.unmarkPods()...)
	for _, kind := range []string{"Namespace", kindPolicy, kindDriver} {
		for _, object := range b.ofKind(kind) {
			s, marked := unmark(object, nil)
			s.StatusPatch = statusWithoutOurs(object)
			if marked || s.StatusPatch != nil {
				steps = append(steps, s)
			}
		}
	}
	return append(steps, b.unmarkNodes()...)
}

// knownFinish returns the steps of Finish that are certain before NVIDIA's operator has taken over: it updates objects
// of the same names, and what it replaces needs no other step.
func (b *Back) knownFinish() []Step {
	return slices.DeleteFunc(b.Finish(), func(s Step) bool {
		known := append([]string{kindDaemonSet, kindPriorityClass}, leftoverKinds...)
		return s.Action == ActionDelete && !slices.Contains(known, s.Kind) || s.Action == ActionUnmark && s.Kind == kindPod
	})
}

// isOnlyOurs reports whether an object is one of this operator that NVIDIA's does not have, and so has not overwritten.
func (b *Back) isOnlyOurs(object *unstructured.Unstructured) bool {
	name, all := object.GetName(), object.GetLabels()
	switch kind := object.GetKind(); {
	case kind == kindDaemonSet:
		return labels.IsApplied(object) && !isPlaced(object)
	case kind == kindRevision:
		return all[labels.Operand] != "" && object.GetNamespace() == b.namespace
	case kind == "ConfigMap" && name == labels.UpgradeSlots:
		return all[labels.ManagedBy] == labels.ManagedByValue
	case labels.IsApplied(object):
		return true
	case kind == kindPriorityClass, slices.Contains(leftoverKinds, kind):
		isOwn := slices.Contains(ownAccounts, name) || strings.HasPrefix(name, operatorName+"-")
		return isOwn && all[labels.Name] == operatorName
	}
	return false
}

// isPlaced reports whether NVIDIA's operator has a DaemonSet for the operand of one of this operator.
func isPlaced(ds *unstructured.Unstructured) bool {
	return slices.ContainsFunc(places(), func(p place) bool { return p.operand == ds.GetLabels()[labels.Operand] })
}

// ownReleases returns the releases of Helm that this operator is from, without that of NVIDIA's.
func (b *Back) ownReleases() map[Release]bool {
	found := map[Release]bool{}
	for _, object := range b.Objects {
		if slices.Contains(leftoverKinds, object.GetKind()) && b.isOnlyOurs(object) {
			found[releaseOf(object)] = true
		}
	}
	delete(found, Release{})
	theirs, _ := b.deployments()
	for _, deployment := range theirs {
		delete(found, releaseOf(deployment))
	}
	return found
}

// unmark returns the step that removes this operator's labels and annotations from an object, and sets labels; false if
// there is nothing to do.
func unmark(object *unstructured.Unstructured, set map[string]any) (Step, bool) {
	changed, removed := map[string]any{}, map[string]any{}
	for key := range object.GetLabels() {
		if labels.IsOwn(key) {
			changed[key] = nil
		}
	}
	for key := range object.GetAnnotations() {
		if labels.IsOwn(key) {
			removed[key] = nil
		}
	}
	for key, value := range set {
		changed[key] = value
	}
	metadata := map[string]any{"uid": object.GetUID()}
	if len(changed) > 0 {
		metadata["labels"] = changed
	}
	if len(removed) > 0 {
		metadata["annotations"] = removed
	}
	return patched(ActionUnmark, object, map[string]any{"metadata": metadata}), len(metadata) > 1
}

// statusWithoutOurs returns the merge patch that removes from the status of a policy what NVIDIA's operator does not
// write, and so would leave as it is; nil if there is none.
func statusWithoutOurs(policy *unstructured.Unstructured) map[string]any {
	status, _, _ := unstructured.NestedMap(policy.Object, "status")
	if policy.GetKind() != kindPolicy {
		return nil
	}
	changes := map[string]any{}
	for key := range status {
		if !slices.Contains([]string{"state", "namespace", "conditions"}, key) {
			changes[key] = nil
		}
	}
	conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions")
	kept := slices.DeleteFunc(slices.Clone(conditions), func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] != "Ready" && fields["type"] != "Error"
	})
	if len(kept) < len(conditions) {
		changes["conditions"] = kept
	}
	if len(changes) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"uid": policy.GetUID()}, "status": changes}
}

// unmarkPods returns the steps for the pods of the operands' namespace, but those that end with their DaemonSet. A
// driver pod that installs what its DaemonSet installs gets the label of its newest revision, as a pod that was created
// from it: otherwise NVIDIA's operator would report it as outdated, and replace it.
func (b *Back) unmarkPods() []Step {
	var steps []Step
	for i := range b.pods {
		pod := &b.pods[i]
		ds := b.setOf(pod)
		if pod.DeletionTimestamp != nil || ds != nil && labels.IsApplied(ds) {
			continue
		}
		set := map[string]any{}
		if revision := b.revisionOf(ds); revision != "" && isUpToDate(pod, ds) &&
			pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision {
			set[appsv1.ControllerRevisionHashLabelKey] = revision
		}
		if s, marked := unmark(b.object(kindPod, pod.Name), set); marked {
			steps = append(steps, s)
		}
	}
	return steps
}

// isUpToDate reports whether a driver pod installs what a DaemonSet of NVIDIA's operator installs.
func isUpToDate(pod *corev1.Pod, ds *appsv1.DaemonSet) bool {
	return pod.Labels[labels.Component] == labels.DriverComponent && ds.Annotations[labels.NVIDIAHash] != "" &&
		migrate.SameDriver(&pod.Spec, &ds.Spec.Template.Spec)
}

// setOf returns the DaemonSet of a pod; nil for none.
func (b *Back) setOf(pod *corev1.Pod) *appsv1.DaemonSet {
	controller := metav1.GetControllerOfNoCopy(pod)
	at := slices.IndexFunc(b.sets, func(ds appsv1.DaemonSet) bool {
		return controller != nil && ds.UID == controller.UID
	})
	if at < 0 {
		return nil
	}
	return &b.sets[at]
}

// revisionOf returns the label of the newest revision of a DaemonSet; empty for none.
func (b *Back) revisionOf(ds *appsv1.DaemonSet) string {
	var newest *appsv1.ControllerRevision
	for i := range b.revisions {
		r := &b.revisions[i]
		if controller := metav1.GetControllerOfNoCopy(r); ds != nil && controller != nil && controller.UID == ds.UID &&
			(newest == nil || r.Revision > newest.Revision) {
			newest = r
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// unmarkNodes returns the steps for the nodes, in the order of their names.
func (b *Back) unmarkNodes() []Step {
	var steps []Step
	for i := range b.nodes {
		node := &b.nodes[i]
		if removal := nodemarks.HandBack(node); !removal.IsEmpty() {
			s := patched(ActionUnmark, b.object(kindNode, node.Name), removal.NodePatch())
			s.StatusPatch = removal.StatusPatch()
			steps = append(steps, s)
		}
	}
	return steps
}
