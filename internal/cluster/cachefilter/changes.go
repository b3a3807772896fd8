package cachefilter

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// NodeChanges passes events of nodes that can change an assessment, a label, or what a node means for driver upgrades.
// A node that was created again while its watch was interrupted is an update, which has another UID.
// It drops heartbeats, labels that neither the operator reads nor the spec selects by (selects), and the operator's own
// writes of the condition nvidia.com/GPUReady and of the record (written).
func NodeChanges(selects func(label string) bool, written func(*corev1.Node) bool) predicate.Predicate {
	return onUpdate(func(before, after *corev1.Node) bool {
		return before.UID != after.UID ||
			ownLabelsChanged(before, after) || selectorLabelsChanged(selects, before, after) ||
			!maps.Equal(foreignAnnotations(before), foreignAnnotations(after)) ||
			before.Spec.Unschedulable != after.Spec.Unschedulable ||
			!reflect.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			reportsDiffer(written, before, after) ||
			before.Status.NodeInfo != after.Status.NodeInfo ||
			gpusChanged(before.Status.Allocatable, after.Status.Allocatable) ||
			gpusChanged(before.Status.Capacity, after.Status.Capacity)
	})
}

// gpusChanged reports whether the number of any kind of GPU differs.
func gpusChanged(before, after corev1.ResourceList) bool {
	differs := func(one, other corev1.ResourceList) bool {
		for name, quantity := range one {
			if labels.IsGPUResource(string(name)) && !quantity.Equal(other[name]) {
				return true
			}
		}
		return false
	}
	return differs(before, after) || differs(after, before)
}

// reportsDiffer reports whether conditions or the record differ, other than by the operator's own write of
// nvidia.com/GPUReady.
func reportsDiffer(written func(*corev1.Node) bool, before, after *corev1.Node) bool {
	if reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) &&
		before.Annotations[labels.ReportRecord] == after.Annotations[labels.ReportRecord] {
		return false
	}
	// Where the faults end follows from the condition nvidia.com/GPUHealthy, of which another client changes nothing then.
	if !written(after) || assess.RecordOf(before).FaultsEnd != assess.RecordOf(after).FaultsEnd {
		return true
	}
	return !reflect.DeepEqual(foreignConditions(before.Status.Conditions), foreignConditions(after.Status.Conditions))
}

// foreignAnnotations returns the annotations but for the record of the report.
func foreignAnnotations(node *corev1.Node) map[string]string {
	if _, exists := node.Annotations[labels.ReportRecord]; !exists {
		return node.Annotations
	}
	foreign := maps.Clone(node.Annotations)
	delete(foreign, labels.ReportRecord)
	return foreign
}

// foreignConditions returns the conditions but for nvidia.com/GPUReady.
func foreignConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	var found []corev1.NodeCondition
	for i := range conditions {
		if string(conditions[i].Type) != labels.ConditionGPUReady {
			found = append(found, conditions[i])
		}
	}
	return found
}

// ownLabelsChanged reports whether a label has changed that the operator reads or writes.
func ownLabelsChanged(before, after *corev1.Node) bool {
	if maps.Equal(before.Labels, after.Labels) {
		return false
	}
	if hasOtherOwnLabel(before.Labels, after.Labels) || hasOtherOwnLabel(after.Labels, before.Labels) {
		return true
	}
	old, now := observe.Facts(before), observe.Facts(after)
	old.Labels, now.Labels = nil, nil
	return !reflect.DeepEqual(old, now)
}

// hasOtherOwnLabel reports whether a label that the operator may write (anchors and nvidia.com/) is missing from other
// or has another value there.
func hasOtherOwnLabel(all, other map[string]string) bool {
	for key, value := range all {
		if !strings.HasPrefix(key, labels.VendorPrefix) && !strings.HasPrefix(key, labels.AnchorPrefix) {
			continue
		}
		if now, exists := other[key]; !exists || now != value {
			return true
		}
	}
	return false
}

// selectorLabelsChanged reports whether a label has changed that the spec selects nodes by.
func selectorLabelsChanged(selects func(string) bool, before, after *corev1.Node) bool {
	if maps.Equal(before.Labels, after.Labels) {
		return false
	}
	changed := func(one, other map[string]string) bool {
		for key, value := range one {
			if other[key] != value && selects(key) {
				return true
			}
		}
		return false
	}
	return changed(before.Labels, after.Labels) || changed(after.Labels, before.Labels)
}

// PolicyChanges passes events of policies whose spec has changed, or whether it can be decoded. The generation alone
// does not suffice: around an update of the CRD, the API server may send a new generation without the fields that the
// old CRD did not have, and the full spec only with the next event, such as a status update.
func PolicyChanges() predicate.Predicate {
	return onUpdate(func(before, after *v1.ClusterPolicy) bool {
		return before.UID != after.UID || before.Generation != after.Generation ||
			!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			before.Annotations[labels.Undecodable] != after.Annotations[labels.Undecodable] ||
			before.Annotations[labels.ChartNotes] != after.Annotations[labels.ChartNotes]
	})
}

// PolicyReverts passes updates by which another client has reverted what the operator writes on policies, so that a
// pass writes it again: a status that is not the operator's own (own), and a policy that has lost the operator's
// finalizer. Creations and deletions are passed by PolicyChanges.
func PolicyReverts(own func(*v1.ClusterPolicy) bool) predicate.Predicate {
	return onlyUpdates(onUpdate(func(before, after *v1.ClusterPolicy) bool {
		return observe.HasFinalizer(before) && !observe.HasFinalizer(after) ||
			!equality.Semantic.DeepEqual(before.Status, after.Status) && !own(after)
	}))
}

// PodChanges passes events of pods that change their verdict, or the DaemonSet by which they are judged: one that is
// created again adopts the pods that the deletion of the earlier one has orphaned.
func PodChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Pod) bool {
		return before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
			controllerOf(before) != controllerOf(after) ||
			verdictChanged(currentVerdict(before), currentVerdict(after)) ||
			templateDigest(before) != templateDigest(after) || !reflect.DeepEqual(before.Labels, after.Labels)
	})
}

// UpgradeNodeChanges passes events of nodes that can change the plan of driver upgrades by themselves. What they change
// by an assessment is an event of the fleet.
func UpgradeNodeChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Node) bool {
		return before.UID != after.UID || before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			readiness.Kubelet(before).State != readiness.Kubelet(after).State ||
			upgradeKeysChanged(before, after)
	})
}

// HealthNodeChanges passes events of nodes that can change the plan of health actions by themselves. What they change
// by an assessment is an event of the fleet.
func HealthNodeChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Node) bool {
		return before.UID != after.UID || before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			!reflect.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			differ([]string{labels.NVSentinelState, labels.MIGConfigState, labels.UpgradeState}, before.Labels, after.Labels) ||
			differ([]string{
				labels.GPUHealth, labels.HealthRecord, labels.HealthConsent, labels.UpgradeRecord, labels.MIGDrain,
			}, before.Annotations, after.Annotations)
	})
}

// differ reports whether any of the keys is missing in one map only, or has another value.
func differ(keys []string, one, other map[string]string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		was, had := one[key]
		is, has := other[key]
		return had != has || was != is
	})
}

func upgradeKeysChanged(before, after *corev1.Node) bool {
	return differ([]string{
		labels.UpgradeState, labels.UpgradeSkip, labels.Pool, labels.DriverAnchor, labels.MIGConfig, labels.MIGConfigState,
	}, before.Labels, after.Labels) || differ([]string{
		labels.UpgradeRecord, labels.UpgradeRequested, labels.UpgradeInitialCordon, labels.MIGConfigWritten,
		labels.MIGDrain,
	}, before.Annotations, after.Annotations)
}

// UpgradePodChanges passes events of pods that can change the plan of driver upgrades: those for which isOperand
// returns true for the name of the operand, and those that pull images.
func UpgradePodChanges(isOperand func(name string) bool) predicate.Predicate {
	concerns := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return isOperand(object.GetLabels()[labels.Operand]) || object.GetLabels()[labels.DriverPull] != ""
	})
	return predicate.And(concerns, onUpdate(func(before, after *corev1.Pod) bool {
		now := time.Now()
		return observe.PodNode(before) != observe.PodNode(after) ||
			observe.UpgradePod(before, now) != observe.UpgradePod(after, now)
	}))
}

// controllerOf returns the name of the object that controls the pod; empty for none.
func controllerOf(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Name
	}
	return ""
}

// currentVerdict returns the verdict on a pod at this moment, as if its template were current.
func currentVerdict(pod *corev1.Pod) readiness.Verdict {
	return readiness.Pod(pod, templateDigest(pod), time.Now())
}

// verdictChanged reports whether two verdicts on a pod differ, or only the later one has an Until, at which the node
// must be assessed again. Another Until, as after each restart of a failing container, is not a change: the next
// assessment finds it.
func verdictChanged(before, after readiness.Verdict) bool {
	if before.Until.IsZero() && !after.Until.IsZero() {
		return true
	}
	before.Until, after.Until = time.Time{}, time.Time{}
	return before != after
}

func templateDigest(pod *corev1.Pod) string { return pod.Annotations[labels.TemplateDigest] }

// SlotsDeleted passes the deletion of the ConfigMap with the slots of upgrades, so that a pass creates it again. Other
// events may not come for a long time: a node that does not report has none.
func SlotsDeleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetName() == labels.UpgradeSlots },
	}
}

// onlyUpdates passes the updates that a predicate passes, and nothing else.
func onlyUpdates(of predicate.Predicate) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  of.Update,
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
	}
}

func onUpdate[T any](changed func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := any(e.ObjectOld).(T)
		after, isAfter := any(e.ObjectNew).(T)
		return !isBefore || !isAfter || changed(before, after)
	}}
}
