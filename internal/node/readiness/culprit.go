package readiness

import corev1 "k8s.io/api/core/v1"

// Culprit is the container by which Pod explains its verdict.
type Culprit struct {
	// Container that has failed or is not ready; of a ready pod the first main one. It is empty if that has not run yet.
	Container string
	// Previous: it has been restarted since it failed, so that how it failed is in its previous log.
	Previous bool
	// Crashed: it has terminated with a failure.
	Crashed bool
}

// CulpritOf returns the culprit of a pod.
func CulpritOf(pod *corev1.Pod) Culprit {
	status, terminated := firstFailing(pod)
	if status == nil {
		status = firstUnready(pod)
	}
	if status == nil {
		return Culprit{}
	}
	crashed := terminated != nil
	culprit := Culprit{Crashed: crashed, Previous: crashed && status.State.Terminated == nil}
	if status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
		culprit.Container = status.Name
	}
	return culprit
}

// firstUnready returns the first main container that is not ready, or else the first; nil if the pod has no statuses.
func firstUnready(pod *corev1.Pod) *corev1.ContainerStatus {
	all := pod.Status.ContainerStatuses
	for i := range all {
		if !all[i].Ready {
			return &all[i]
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}
