package rollout

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// needsProbeScript reports whether pods may mount the script with which NVIDIA's operator probes drivers, of the
// ConfigMap labels.ProbeScript: those of this template, or remaining pods of an earlier one. Such a pod needs it to
// restart after a reboot. The DaemonSet status counts only pods of the current template; all others may be of any
// earlier one.
func needsProbeScript(ds *appsv1.DaemonSet) bool {
	if mountsProbeScript(&ds.Spec.Template.Spec) {
		return true
	}
	status := &ds.Status
	allReplaced := status.ObservedGeneration >= ds.Generation &&
		status.UpdatedNumberScheduled >= status.DesiredNumberScheduled &&
		status.NumberMisscheduled == 0
	return ds.Annotations[labels.ProbeScriptMounted] == labels.True && !allReplaced
}

func mountsProbeScript(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == labels.ProbeScript
	})
}

// AnyNeedsProbeScript reports whether pods of any of these DaemonSets may mount the script.
func AnyNeedsProbeScript(live map[string]Live) bool {
	for _, ds := range live {
		if ds.NeedsProbeScript {
			return true
		}
	}
	return false
}
