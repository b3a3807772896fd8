package observe

import (
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// NodeChanges lets pass the events of nodes that can change a verdict or a label; heartbeats do not.
func NodeChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Node) bool {
		return !reflect.DeepEqual(before.Labels, after.Labels) ||
			!reflect.DeepEqual(before.Annotations, after.Annotations) ||
			!reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
			before.Status.NodeInfo != after.Status.NodeInfo ||
			readiness.Allocatable(before) != readiness.Allocatable(after)
	})
}

// PodChanges lets pass the events of pods that change the verdict on them.
func PodChanges() predicate.Predicate {
	return onUpdate(func(before, after *corev1.Pod) bool {
		return before.Spec.NodeName != after.Spec.NodeName ||
			verdict(before) != verdict(after) ||
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

// verdict is what matters of a pod now. That a container in a crash loop has been started once more
// is no news.
func verdict(pod *corev1.Pod) readiness.Verdict {
	verdict := readiness.Pod(pod, digest(pod), time.Now())
	verdict.Until = time.Time{}
	return verdict
}

func digest(pod *corev1.Pod) string { return pod.Annotations[labels.TemplateDigest] }

func onUpdate[T any](changed func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := any(e.ObjectOld).(T)
		after, isAfter := any(e.ObjectNew).(T)
		return !isBefore || !isAfter || changed(before, after)
	}}
}
