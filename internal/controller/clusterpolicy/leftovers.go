package clusterpolicy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// pruneLeft deletes what NVIDIA's operator has left and nothing uses: DaemonSets that run nowhere, and once none of its
// pods is left, what only these used. It lists once after a start, and again after it has seen a DaemonSet of NVIDIA's
// operator.
func (s *scope) pruneLeft(ctx context.Context) {
	rendered := s.renderedNames()
	s.deleteUnneeded(ctx, rendered)
	if s.hasTheirs() {
		s.leftPruned = false
		return
	}
	if s.leftPruned || s.err != nil || !s.isTakenOver(rendered) {
		return
	}
	listCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.Live.List(listCtx, list, client.InNamespace(s.Namespace)); err != nil {
		s.fail(fmt.Errorf("listing ConfigMaps that NVIDIA's operator may have left: %w", err))
		return
	}
	for i := range list.Items {
		object := &list.Items[i]
		if !slices.Contains(migrate.LeftConfigMaps(), object.Name) || object.Labels[labels.Operand] != "" ||
			!s.isNVIDIAs(object) {
			continue
		}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		if err := s.Applier.Delete(ctx, object); err != nil {
			s.fail(err)
			return
		}
	}
	s.leftPruned = true
}

// renderedNames returns the names of the DaemonSets of all operands.
func (s *scope) renderedNames() map[string]bool {
	rendered := map[string]bool{}
	for name := range s.objects {
		for _, ds := range s.renderedDaemonSets(name) {
			rendered[ds.Name] = true
		}
	}
	return rendered
}

// deleteUnneeded deletes the DaemonSets of NVIDIA's operator that this operator has none for, and that run nowhere.
func (s *scope) deleteUnneeded(ctx context.Context, rendered map[string]bool) {
	daemonSets := slices.Collect(maps.Values(s.snapshot.DaemonSets))
	if len(s.drivers) > 0 && !s.driversTakenOver {
		listCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
		defer cancel()
		drivers, err := observe.DriverDaemonSets(listCtx, s.Live, s.Namespace)
		s.fail(err)
		daemonSets = append(daemonSets, drivers...)
	}
	for _, ds := range daemonSets {
		if s.err == nil && s.isNVIDIAs(ds) && !rendered[ds.Name] && migrate.IsUnneeded(ds) {
			left := ds.DeepCopy()
			left.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
			s.fail(s.Applier.Delete(ctx, left))
		}
	}
}

// hasTheirs reports whether a DaemonSet of NVIDIA's operator is left.
func (s *scope) hasTheirs() bool {
	for _, ds := range s.snapshot.DaemonSets {
		if s.isNVIDIAs(ds) {
			return true
		}
	}
	return false
}

// isTakenOver reports whether all pods but those of drivers have been replaced, of DaemonSets that are not NVIDIA's.
func (s *scope) isTakenOver(rendered map[string]bool) bool {
	for _, ds := range s.snapshot.DaemonSets {
		if !isReplaced(ds) {
			return false
		}
	}
	return len(rendered) > 0
}

// isReplaced reports whether all pods are of the current template, or only end when they are deleted.
func isReplaced(ds *appsv1.DaemonSet) bool {
	return ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType ||
		ds.Status.ObservedGeneration == ds.Generation &&
			ds.Status.UpdatedNumberScheduled >= ds.Status.DesiredNumberScheduled
}
