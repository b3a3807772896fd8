package rollout

import (
	"path"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// The start-up probe of the driver container is a command of gpu-node. In older releases it was a script in the
// ConfigMap labels.ProbeScript, which the pods mounted. Drivers must not be replaced because of that: their digest is
// computed from the template with the script, and the ConfigMap stays until no pod mounts it, as such a pod needs it to
// restart after a reboot.
const (
	probeScriptVolume = "driver-startup-probe-script"
	probeScriptFile   = "startup-probe.sh"
	probeScriptPath   = "/usr/local/bin/" + probeScriptFile
	probeScriptMode   = 0o755
)

// withProbeScript returns the pod as it was with the script, or the same pod if it has no probe of gpu-node.
func withProbeScript(pod *corev1.PodSpec) *corev1.PodSpec {
	at := slices.IndexFunc(pod.Containers, hasProbeCommand)
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == labels.HelperVolume })
	if at < 0 || volume < 0 {
		return pod
	}
	pod = pod.DeepCopy()
	container := &pod.Containers[at]
	container.StartupProbe.Exec.Command = []string{"sh", probeScriptPath}
	setEarlierTimes(container.StartupProbe)
	for i := range container.VolumeMounts {
		if container.VolumeMounts[i].Name == labels.HelperVolume {
			container.VolumeMounts[i] = corev1.VolumeMount{
				Name:      probeScriptVolume,
				MountPath: probeScriptPath,
				SubPath:   probeScriptFile,
			}
		}
	}
	script := &corev1.ConfigMapVolumeSource{DefaultMode: new(int32(probeScriptMode))}
	script.Name = labels.ProbeScript
	pod.Volumes = slices.Insert(pod.Volumes, volume,
		corev1.Volume{Name: probeScriptVolume, VolumeSource: corev1.VolumeSource{ConfigMap: script}})
	if !slices.ContainsFunc(pod.Containers, mountsHelper) {
		// No sidecar needs gpu-node.
		pod.Volumes = slices.Delete(pod.Volumes, volume+1, volume+2)
		pod.InitContainers = slices.DeleteFunc(pod.InitContainers, func(c corev1.Container) bool {
			return c.Name == labels.CopyContainer
		})
	}
	return pod
}

func hasProbeCommand(c corev1.Container) bool {
	if c.StartupProbe == nil || c.StartupProbe.Exec == nil || len(c.StartupProbe.Exec.Command) < 2 {
		return false
	}
	command := c.StartupProbe.Exec.Command
	return command[0] == path.Join(labels.HelperDir, path.Base(labels.HelperBinary)) && command[1] == labels.ProbeCommand
}

// setEarlierTimes replaces the default times of a probe by the defaults of older releases, which are NVIDIA's.
func setEarlierTimes(probe *corev1.Probe) {
	if !effective.HasDefaultTimes(v1.ProbeSpec{
		InitialDelaySeconds: probe.InitialDelaySeconds, PeriodSeconds: probe.PeriodSeconds,
		TimeoutSeconds: probe.TimeoutSeconds, FailureThreshold: probe.FailureThreshold,
	}) {
		return
	}
	earlier := effective.NVIDIADriverStartupProbe()
	probe.InitialDelaySeconds, probe.PeriodSeconds = earlier.InitialDelaySeconds, earlier.PeriodSeconds
	probe.FailureThreshold = earlier.FailureThreshold
}

func mountsHelper(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == labels.HelperVolume })
}

// needsProbeScript reports whether pods may mount the script: those of this template, or remaining pods of an earlier
// one. The DaemonSet status counts only pods of the current template; all others may be of any earlier one.
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
