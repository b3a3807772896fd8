package observe

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// NodeChanges lets pass the events of nodes that can change a verdict or a label. Heartbeats do not, nor do
// labels that neither the operator nor the policy in force, which is read from the caches, asks for.
func NodeChanges(reader client.Reader, catalogue []operand.Operand) predicate.Predicate {
	return onUpdate(func(before, after *corev1.Node) bool {
		return relabelled(before, after) || selectedAnew(reader, catalogue, before, after) ||
			!reflect.DeepEqual(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			!reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
			before.Status.NodeInfo != after.Status.NodeInfo ||
			readiness.Allocatable(before) != readiness.Allocatable(after)
	})
}

// relabelled tells whether a label has changed that the operator reads or writes itself.
func relabelled(before, after *corev1.Node) bool {
	if maps.Equal(before.Labels, after.Labels) {
		return false
	}
	old, now := Facts(before), Facts(after)
	old.Labels, now.Labels = nil, nil
	return !reflect.DeepEqual(old, now) || !maps.Equal(ofNVIDIA(before.Labels), ofNVIDIA(after.Labels))
}

// ofNVIDIA are the labels below nvidia.com, among which are all that the operator writes.
func ofNVIDIA(all map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, resourcePrefix) {
			found[key] = value
		}
	}
	return found
}

// selectedAnew tells whether a label has changed that a nodeSelector of the policy in force asks for. A policy
// that comes to ask for it later is an event for every node.
func selectedAnew(reader client.Reader, catalogue []operand.Operand, before, after *corev1.Node) bool {
	if maps.Equal(before.Labels, after.Labels) {
		return false
	}
	active, _, err := Policies(context.Background(), reader)
	if err != nil {
		return true // Whoever looks at the node meets the error, and tries again.
	}
	if active == nil {
		return false
	}
	for key := range (operand.Input{Spec: effective.Of(active.Spec)}).SelectorKeys(catalogue) {
		old, was := before.Labels[key]
		now, is := after.Labels[key]
		if old != now || was != is {
			return true
		}
	}
	return false
}

// PolicyChanges lets pass the events of policies that ask for something else. The spec is compared too, and
// not its generation alone: around a change of the definition the API server may show a new generation
// without the fields that the old definition lacked, and all of it only with the next event, such as that
// of the status.
func PolicyChanges() predicate.Predicate {
	return onUpdate(func(before, after *v1.ClusterPolicy) bool {
		return before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	})
}

// PodChanges lets pass the events of pods that change the verdict on them.
func PodChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Pod) bool {
		return before.Spec.NodeName != after.Spec.NodeName ||
			news(verdict(before), verdict(after)) ||
			digest(before) != digest(after) || !reflect.DeepEqual(before.Labels, after.Labels)
	})
}

// TemplateChanges lets pass the events of DaemonSets by which pods become outdated.
func TemplateChanges() predicate.Predicate {
	return onUpdate(func(before, after *appsv1.DaemonSet) bool {
		return before.Annotations[labels.TemplateDigest] != after.Annotations[labels.TemplateDigest] ||
			before.Spec.UpdateStrategy.Type != after.Spec.UpdateStrategy.Type
	})
}

// verdict is what matters of a pod now.
func verdict(pod *corev1.Pod) readiness.Verdict { return readiness.Pod(pod, digest(pod), time.Now()) }

// news tells whether two verdicts on a pod differ, or the later one changes by time alone and the earlier did not:
// somebody has to come back then. That a container which has failed has been started once more is no news beside
// that: whoever comes back finds out until when it is on trial.
func news(before, after readiness.Verdict) bool {
	if before.Until.IsZero() && !after.Until.IsZero() {
		return true
	}
	before.Until, after.Until = time.Time{}, time.Time{}
	return before != after
}

func digest(pod *corev1.Pod) string { return pod.Annotations[labels.TemplateDigest] }

func onUpdate[T any](changed func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := any(e.ObjectOld).(T)
		after, isAfter := any(e.ObjectNew).(T)
		return !isBefore || !isAfter || changed(before, after)
	}}
}
