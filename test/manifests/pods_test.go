package manifests

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podChecks are those of kube-linter that kube-score does not have, by kube-linter's names, except matters of taste.
// added-capabilities, host-port, lost-last-output, unset-seccomp-profile, which includes init containers, and
// untagged-image, which supports registries with ports, are not kube-linter's.
var podChecks = map[string]check[workload]{
	"added-capabilities": ofUnprivileged(func(s *corev1.SecurityContext) bool {
		return s.Capabilities != nil && len(s.Capabilities.Add) > 0
	}),
	"container-runtime-socket": ofHostVolumes(func(p string) bool { return strings.HasSuffix(p, ".sock") }),
	"default-service-account": ofPod(func(p *corev1.PodSpec) bool {
		return p.ServiceAccountName == "" || p.ServiceAccountName == "default"
	}),
	"deprecated-service-account": ofPod(func(p *corev1.PodSpec) bool { return p.DeprecatedServiceAccount != "" }),
	"drop-net-raw-capability":    ofUnprivileged(keepsRawSockets),
	"env-var-secret":             ofContainers(hasSecretAsText),
	"host-ipc":                   ofPod(func(p *corev1.PodSpec) bool { return p.HostIPC }),
	"host-network":               ofPod(func(p *corev1.PodSpec) bool { return p.HostNetwork }),
	"host-pid":                   ofPod(func(p *corev1.PodSpec) bool { return p.HostPID }),
	"host-port":                  ofPorts(func(p corev1.ContainerPort) bool { return p.HostPort != 0 }),
	"lost-last-output": ofContainers(func(_ *corev1.PodSpec, c *corev1.Container) bool {
		return c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError
	}),
	"mismatching-selector": func(_ *cluster, w workload) []string {
		return wholeIf(w.selector != nil && !w.selectsItself())
	},
	"non-existent-service-account": func(c *cluster, w workload) []string {
		return wholeIf(!c.known["ServiceAccount/"+w.template.Spec.ServiceAccountName])
	},
	"privilege-escalation": ofUnprivileged(func(s *corev1.SecurityContext) bool {
		return s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation
	}),
	"privileged-ports": ofPorts(func(p corev1.ContainerPort) bool {
		return p.ContainerPort < 1024 && p.ContainerPort != 22
	}),
	"probe-port":               ofContainers(probesUndeclaredPort),
	"read-secret-from-env-var": ofContainers(readsSecretFromEnvironment),
	"run-as-non-root":          ofContainers(mayBeRoot),
	"sensitive-host-mounts":    ofHostVolumes(sensitive.MatchString),
	"ssh-port":                 ofPorts(func(p corev1.ContainerPort) bool { return p.ContainerPort == 22 }),
	"unsafe-proc-mount": ofUnprivileged(func(s *corev1.SecurityContext) bool {
		return s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount
	}),
	"unsafe-sysctls": ofPod(func(p *corev1.PodSpec) bool {
		return p.SecurityContext != nil && len(p.SecurityContext.Sysctls) > 0
	}),
	"unset-seccomp-profile": ofContainers(hasNoSeccompProfile),
	"untagged-image": ofContainers(func(_ *corev1.PodSpec, c *corev1.Container) bool {
		return !strings.ContainsAny(path.Base(c.Image), ":@")
	}),
	"writable-host-mount": writableHostMounts,
}

var (
	// sensitive are host directories that contain more than the files of one program.
	sensitive  = regexp.MustCompile(`^/$|^/(boot|dev|etc|lib|proc|sys|usr)(/|$)`)
	secretName = regexp.MustCompile(`(?i)secret|passw|token|credential`)
)

func ofPod(weak func(*corev1.PodSpec) bool) check[workload] {
	return func(_ *cluster, w workload) []string { return wholeIf(weak(&w.template.Spec)) }
}

func ofContainers(weak func(*corev1.PodSpec, *corev1.Container) bool) check[workload] {
	return func(_ *cluster, w workload) []string {
		var names []string
		for _, c := range slices.Concat(w.template.Spec.InitContainers, w.template.Spec.Containers) {
			if weak(&w.template.Spec, &c) {
				names = append(names, c.Name)
			}
		}
		return names
	}
}

// ofUnprivileged skips privileged containers, which are a finding of kube-score anyway.
func ofUnprivileged(weak func(*corev1.SecurityContext) bool) check[workload] {
	return ofContainers(func(_ *corev1.PodSpec, c *corev1.Container) bool {
		return !privileged(c) && weak(securityOf(c))
	})
}

func ofPorts(weak func(corev1.ContainerPort) bool) check[workload] {
	return ofContainers(func(_ *corev1.PodSpec, c *corev1.Container) bool { return slices.ContainsFunc(c.Ports, weak) })
}

func ofHostVolumes(weak func(path string) bool) check[workload] {
	return func(_ *cluster, w workload) []string {
		var names []string
		for _, v := range w.template.Spec.Volumes {
			if v.HostPath != nil && weak(v.HostPath.Path) {
				names = append(names, v.Name)
			}
		}
		return names
	}
}

func securityOf(c *corev1.Container) *corev1.SecurityContext {
	if c.SecurityContext == nil {
		return &corev1.SecurityContext{}
	}
	return c.SecurityContext
}

func privileged(c *corev1.Container) bool {
	p := securityOf(c).Privileged
	return p != nil && *p
}

func (w workload) selectsItself() bool {
	selector, err := metav1.LabelSelectorAsSelector(w.selector)
	return err == nil && selector.Matches(labels.Set(w.template.Labels))
}

func keepsRawSockets(s *corev1.SecurityContext) bool {
	return s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") && !slices.Contains(s.Capabilities.Drop,
		"NET_RAW")
}

// mayBeRoot only relies on the manifest: the user of an image may change.
func mayBeRoot(p *corev1.PodSpec, c *corev1.Container) bool {
	user, must := securityOf(c).RunAsUser, securityOf(c).RunAsNonRoot
	if pod := p.SecurityContext; pod != nil {
		if user == nil {
			user = pod.RunAsUser
		}
		if must == nil {
			must = pod.RunAsNonRoot
		}
	}
	return (must == nil || !*must) && (user == nil || *user == 0)
}

// hasNoSeccompProfile skips privileged containers, to which none applies.
func hasNoSeccompProfile(p *corev1.PodSpec, c *corev1.Container) bool {
	profile := securityOf(c).SeccompProfile
	if profile == nil && p.SecurityContext != nil {
		profile = p.SecurityContext.SeccompProfile
	}
	return !privileged(c) && (profile == nil || profile.Type == corev1.SeccompProfileTypeUnconfined)
}

func hasSecretAsText(_ *corev1.PodSpec, c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env,
		func(e corev1.EnvVar) bool { return e.Value != "" && secretName.MatchString(e.Name) })
}

func readsSecretFromEnvironment(_ *corev1.PodSpec, c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env,
		func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) ||
		slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil })
}

func probesUndeclaredPort(_ *corev1.PodSpec, c *corev1.Container) bool {
	return slices.ContainsFunc([]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe},
		func(p *corev1.Probe) bool {
			switch {
			case p == nil:
				return false
			case p.HTTPGet != nil:
				return !declares(c, p.HTTPGet.Port)
			case p.TCPSocket != nil:
				return !declares(c, p.TCPSocket.Port)
			}
			return false
		})
}

// declares reports whether the container has the port, by number or by name.
func declares(c *corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return port == intstr.FromInt32(p.ContainerPort) || port == intstr.FromString(p.Name)
	})
}

// writableHostMounts returns mounts as CONTAINER:VOLUME.
func writableHostMounts(_ *cluster, w workload) []string {
	ofHost := map[string]bool{}
	for _, v := range w.template.Spec.Volumes {
		ofHost[v.Name] = v.HostPath != nil
	}
	var names []string
	for _, c := range slices.Concat(w.template.Spec.InitContainers, w.template.Spec.Containers) {
		for _, mount := range c.VolumeMounts {
			if ofHost[mount.Name] && !mount.ReadOnly {
				names = append(names, c.Name+":"+mount.Name)
			}
		}
	}
	return names
}
