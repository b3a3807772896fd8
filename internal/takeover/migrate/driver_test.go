package migrate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// driver returns a pod with a driver container; theirs mounts the script of NVIDIA's start-up probe.
func driver(theirs bool, change ...func(*corev1.PodSpec)) *corev1.PodSpec {
	pod := &corev1.PodSpec{Containers: []corev1.Container{{
		Name: "nvidia-driver-ctr", Image: "nvcr.io/nvidia/driver:580.95.05-ubuntu24.04",
		Command: []string{"nvidia-driver"}, Args: []string{"init"},
		Env: []corev1.EnvVar{{Name: "KERNEL_MODULE_TYPE", Value: "auto"}, {Name: "DRIVER_CONFIG_DIGEST", Value: "1"}},
	}}}
	if theirs {
		script := &corev1.ConfigMapVolumeSource{}
		script.Name = "nvidia-driver-startup-probe"
		pod.Containers[0].Env[1].Value = "2"
		pod.Volumes = []corev1.Volume{{Name: "script", VolumeSource: corev1.VolumeSource{ConfigMap: script}}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "script", MountPath: "/usr/local/bin/probe.sh"}}
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func TestSameDriver(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.PodSpec)
		want   bool
	}{
		"the digest and the probe differ": {want: true, change: func(*corev1.PodSpec) {}},
		"another mirror": {want: true, change: func(p *corev1.PodSpec) {
			p.Containers[0].Image = "mirror.example.com/nvidia/driver:580.95.05-ubuntu24.04"
		}},
		"another order and form of the command": {want: true, change: func(p *corev1.PodSpec) {
			p.Containers[0].Command, p.Containers[0].Args = []string{"nvidia-driver", "init"}, nil
			p.Containers[0].Env[0], p.Containers[0].Env[1] = p.Containers[0].Env[1], p.Containers[0].Env[0]
		}},
		"the release and the proxy of OpenShift": {want: true, change: func(p *corev1.PodSpec) {
			certificates := &corev1.ConfigMapVolumeSource{}
			certificates.Name = "gpu-operator-trusted-ca"
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: certificates}})
			p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{
				Name: "ca", MountPath: "/etc/pki/ca-trust/extracted/pem",
			})
			p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "OPENSHIFT_VERSION", Value: "4.18"},
				corev1.EnvVar{Name: "https_proxy", Value: "http://proxy.example.com"})
		}},
		"another version": {change: func(p *corev1.PodSpec) {
			p.Containers[0].Image = "nvcr.io/nvidia/driver:590.48.01-ubuntu24.04"
		}},
		"another command":     {change: func(p *corev1.PodSpec) { p.Containers[0].Args = nil }},
		"another module type": {change: func(p *corev1.PodSpec) { p.Containers[0].Env[0].Value = "open" }},
		"a further variable": {change: func(p *corev1.PodSpec) {
			p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "A", Value: "1"})
		}},
		"a Secret": {change: func(p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		}},
		"a further module": {change: func(p *corev1.PodSpec) {
			p.Containers = append(p.Containers, corev1.Container{Name: "nvidia-fs-ctr"})
		}},
		"a file": {change: func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "modules", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{},
			}})
			p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{
				Name: "modules", MountPath: "/drivers/nvidia.conf",
			})
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := migrate.SameDriver(driver(true, test.change), driver(false)); got != test.want {
				t.Errorf("the same driver: %t, want %t", got, test.want)
			}
		})
	}
}

// A directory with listed files is the same as these files, each mounted on its own.
func TestADirectoryOfFiles(t *testing.T) {
	const token = "client_configuration_token.tok"
	mounted := func(mount corev1.VolumeMount, items ...string) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			secret, config := &corev1.SecretVolumeSource{SecretName: "licence"}, &corev1.ConfigMapVolumeSource{}
			for _, item := range items {
				secret.Items = append(secret.Items, corev1.KeyToPath{Key: item, Path: item})
			}
			config.Items = secret.Items
			for name, source := range map[string]corev1.VolumeSource{"a": {Secret: secret}, "b": {ConfigMap: config}} {
				p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: source})
				mount.Name = name
				p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, mount)
			}
		}
	}
	file := mounted(corev1.VolumeMount{MountPath: "/drivers/Token/" + token, SubPath: token}, "gridd.conf", token)
	for name, test := range map[string]struct {
		ours func(*corev1.PodSpec)
		want bool
	}{
		"the directory":     {mounted(corev1.VolumeMount{MountPath: "/drivers/Token"}, token), true},
		"another file":      {mounted(corev1.VolumeMount{MountPath: "/drivers/Token"}, "b"), false},
		"another directory": {mounted(corev1.VolumeMount{MountPath: "/drivers"}, token), false},
	} {
		if got := migrate.SameDriver(driver(true, file), driver(false, test.ours)); got != test.want {
			t.Errorf("%s: the same driver: %t, want %t", name, got, test.want)
		}
	}
}
