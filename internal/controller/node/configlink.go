package node

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/pluginfile"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// replaceStuckReaders replaces the pods in which config-manager cannot link another configuration, because the one that
// it has linked is gone from the ConfigMap: it takes the link for missing, and cannot create it. That lasts as long as
// the volume of the pod, also if its containers restart. A new pod has no link.
func (s *scope) replaceStuckReaders(ctx context.Context, pods assess.Pods) error {
	for _, pod := range s.readers(pods) {
		if pod.DeletionTimestamp != nil || !s.failsToLink(pod) || !s.successorStarts() || !s.mayWrite() {
			continue
		}
		log.FromContext(ctx).Info("Replacing a pod whose config-manager cannot replace its link to a configuration",
			"pod", pod.Name)
		if err := s.deletePod(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// failsToLink reports whether config-manager of the pod ended with that error, and has not recovered since.
func (s *scope) failsToLink(pod *corev1.Pod) bool {
	for _, container := range []string{labels.ConfigManagerInitContainer, labels.ConfigManagerContainer} {
		if pluginfile.CannotRelink(readiness.LastLineOf(pod, container, s.now)) {
			return true
		}
	}
	return false
}

// successorStarts reports whether a new pod that reads a configuration starts on the node, and the operator may replace
// pods: the device plugin still serves with the configuration that is gone, as long as it does not restart.
func (s *scope) successorStarts() bool {
	spec, planned := s.nodePlan().Spec, s.nodePlan().PluginConfigRead
	if spec.DaemonSets.UpdateStrategy == string(appsv1.OnDeleteDaemonSetStrategyType) || planned.Broken {
		return false
	}
	// Without a configuration for the node, config-manager links none, if it finds any.
	return planned.Digest != "" ||
		planned.Source == "" && len(s.basis.Decisions.Input.KeysOf(spec.DevicePlugin.Config.Name)) > 0
}
