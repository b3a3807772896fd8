package render

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// checkPod refuses what the API server refuses of a field of the spec because of the pod that it is a part of. Package
// podrules has the rules that no pod matters for. The pods of a node pool are left to the API server, which refuses
// their DaemonSet alone: a field of one node pool must not hold the driver of others.
func (r *renderer) checkPod(template *corev1.PodTemplateSpec) error {
	if r.instance.NodePool != "" {
		return nil
	}
	for _, check := range []func(*corev1.PodTemplateSpec) error{r.checkSysctls, r.checkProfiles, r.checkMounts} {
		if err := check(template); err != nil {
			return err
		}
	}
	return nil
}

// invalid returns the error about the fields of the spec that decide about a path of the operand's DaemonSets.
func (r *renderer) invalid(path, format string, args ...any) error {
	fields := r.plan.Input.FieldsOf(&r.step.Operand, path)
	return operand.InvalidSpec{Message: strings.Join(fields, ", ") + ": " + fmt.Sprintf(format, args...)}
}

// checkSysctls refuses parameters of a namespace that the pod shares with the host.
func (r *renderer) checkSysctls(template *corev1.PodTemplateSpec) error {
	pod := &template.Spec
	if pod.SecurityContext == nil {
		return nil
	}
	for _, parameter := range pod.SecurityContext.Sysctls {
		shared := ""
		switch namespace, _, _ := sysctl.GetNamespace(parameter.Name); {
		case namespace == sysctl.NetNamespace && pod.HostNetwork:
			shared = "network"
		case namespace == sysctl.IPCNamespace && pod.HostIPC:
			shared = "IPC"
		default:
			continue
		}
		return r.invalid("spec.template.spec.securityContext", "%s is not possible in the pods of %s, which have the "+
			"host's %s: remove it, and set it on the hosts", parameter.Name, r.step.Operand.Name, shared)
	}
	return nil
}

// checkProfiles refuses the profile of a container that the pod does not have, in an annotation.
func (r *renderer) checkProfiles(template *corev1.PodTemplateSpec) error {
	names := map[string]bool{}
	manifest.ForEachContainer(&template.Spec, func(c *corev1.Container) { names[c.Name] = true })
	for key := range template.Annotations {
		name, isProfile := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if isProfile && !names[name] {
			return r.invalid("spec.template.annotations", "%s is for a container that the pods of %s do not have: remove it",
				key, r.step.Operand.Name)
		}
	}
	return nil
}

// checkMounts refuses a directory of the spec at which a container has another mount. Other mounts at one path are left
// to the API server.
func (r *renderer) checkMounts(template *corev1.PodTemplateSpec) error {
	var refused error
	manifest.ForEachContainer(&template.Spec, func(c *corev1.Container) {
		seen := map[string]bool{}
		for _, mount := range c.VolumeMounts {
			if seen[mount.MountPath] && refused == nil {
				refused = r.taken(c.Name, mount.MountPath)
			}
			seen[mount.MountPath] = true
		}
	})
	return refused
}

// taken returns the error about a path at which a container has two mounts, nil if no directory of the spec leads to
// it.
func (r *renderer) taken(container, path string) error {
	spec := r.plan.Input.Spec
	for _, candidate := range []struct{ field, directory string }{
		{"spec.hostPaths.driverInstallDir", spec.HostPaths.DriverInstallDir},
		{"spec.hostPaths.kubeletRootDir", spec.HostPaths.KubeletRootDir},
		{"spec.toolkit.installDir", spec.Toolkit.InstallDir},
		{"spec.devicePlugin.mps.root", spec.DevicePlugin.MPS.Root},
		{"spec.dcgmExporter.hpcJobMapping.directory", spec.DCGMExporter.HPCJobMapping.Directory},
	} {
		directory := strings.TrimRight(candidate.directory, "/")
		if directory != "" && (path == candidate.directory || path == directory || strings.HasPrefix(path, directory+"/")) {
			return operand.InvalidSpec{Message: fmt.Sprintf(
				"%s: container %s has another mount at %s: use another directory", candidate.field, container, path)}
		}
	}
	return nil
}
