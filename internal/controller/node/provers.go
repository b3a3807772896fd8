package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// replaceStaleProvers replaces the pods that have validated an earlier driver than the present one. Their markers are
// stale, and no container of theirs validates again, so that what waits for a marker would wait for ever.
//
// Usually k8s-driver-manager of the new driver's pod has restarted them. It does not where the earlier driver has
// unloaded its modules: then no process uses a GPU, and the restart of these pods disturbs none.
//
// Where a label or the spec leaves the driver to the host, none is replaced, but the assessment names them: nothing
// shows whether their successors would not find the same, and be replaced for ever.
func (s *scope) replaceStaleProvers(ctx context.Context, pods assess.Pods) error {
	stale := s.staleProvers(pods)
	if len(stale) == 0 || !s.beginWrite() {
		return nil
	}
	for _, pod := range stale {
		log.FromContext(ctx).Info("Replacing a pod that has validated an earlier driver", "pod", pod.Name)
		if err := s.deletePod(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// staleProvers returns the pods of the node that have validated an earlier driver, if the present one is ready.
func (s *scope) staleProvers(pods assess.Pods) []*corev1.Pod {
	driver := s.readyDriver(pods)
	if driver == nil {
		return nil
	}
	var stale []*corev1.Pod
	for i := range s.Catalogue {
		o := &s.Catalogue[i]
		if pod := pods[o.Name]; len(o.Proofs) > 0 && pod != nil && validatedBefore(pod, driver) {
			stale = append(stale, pod)
		}
	}
	return stale
}

// validatedBefore reports whether a pod has validated another driver than this one, and has been ready since before the
// driver's pod started. Both times are of the node's clock. As that may be set back, only a pod that was created before
// that of the driver counts, by the clock of the API server: its successor never does.
//
// The times alone do not show that there was an earlier driver: a kubelet that reports pods as ready whatever their
// containers do, as simulated ones may, makes a first installation look the same.
func validatedBefore(pod, driver *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || !pod.CreationTimestamp.Before(&driver.CreationTimestamp) ||
		!readiness.ValidatedAnother(pod, string(driver.UID)) {
		return false
	}
	ready, started := readiness.ReadySince(pod), driver.Status.StartTime
	return !ready.IsZero() && started != nil && ready.Before(started.Time)
}
