package migration

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	component       = "app.kubernetes.io/component"
	driverComponent = "nvidia-driver"
	precompiled     = "nvidia.com/precompiled"
	driverOwner     = "nvidia.com/gpu-operator.driver.owner"
	toolkitCtr      = "openshift-driver-toolkit-ctr"
)

// Driver is a driver DaemonSet of NVIDIA's operator.
type Driver struct {
	// Name of the DaemonSet, and App in the selector and the labels of its pods.
	Name, App string
	// Image of the driver container.
	Image string
	// NodeSelector has what it selects nodes by, beside the deploy label.
	NodeSelector map[string]string
	// Precompiled: the image has the kernel modules.
	Precompiled bool
	// Toolkit is the image of OpenShift's driver toolkit, and Release its release of Red Hat CoreOS; empty for none.
	Toolkit, Release string
	// Object is the NVIDIADriver object that owns the DaemonSet, and Account the name of its account and rights; nil for
	// a driver of the policy.
	Object  *metav1.OwnerReference
	Account string
}

// drivers returns the driver DaemonSets: Drivers, or without any the usual one.
func (p *Player) drivers() []Driver {
	if len(p.Drivers) > 0 {
		return p.Drivers
	}
	return []Driver{{Name: DriverName, App: DriverName, Image: p.DriverImage}}
}

// driverObjects returns the DaemonSet, and for an NVIDIADriver object what else belongs to it. All objects share the
// start-up probe.
func (p *Player) driverObjects(d Driver) []client.Object {
	ds := p.driverDaemonSet(d)
	if d.Object == nil {
		return []client.Object{ds}
	}
	script := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: probeScript, Labels: map[string]string{"app": d.App}},
		Data:       map[string]string{"theirs": "of " + d.App},
	}
	objects := append(p.accessOf(d.Account, true), script, ds)
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{*d.Object})
	}
	return objects
}

func (p *Player) driverDaemonSet(d Driver) *appsv1.DaemonSet {
	usual := daemonSet{
		name: d.App, operand: "driver", account: driverAccount, inits: []string{"k8s-driver-manager"},
		main: driverCtr, plain: true, constrained: true,
	}
	if d.Object != nil {
		usual.account = d.Account
	}
	ds := p.daemonSet(usual)
	ds.Name = d.Name
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	for _, labels := range []map[string]string{ds.Labels, ds.Spec.Template.Labels} {
		if d.Object != nil {
			delete(labels, "app.kubernetes.io/managed-by")
			delete(labels, "helm.sh/chart")
		}
		labels[component], labels[precompiled] = driverComponent, "false"
		if d.Precompiled {
			labels[precompiled] = "true"
		}
		if d.Release != "" {
			labels["openshift.driver-toolkit"] = "true"
		}
	}
	if d.Object != nil {
		ds.Labels["nvidia.com/gpu-operator.state"] = "state-driver"
	}
	if d.Release != "" {
		ds.Labels["openshift.driver-toolkit.rhcos"] = d.Release
	}
	completeDriver(d, &ds.Spec.Template.Spec)
	return ds
}

// completeDriver adds what only the pods of drivers have.
func completeDriver(d Driver, pod *corev1.PodSpec) {
	maps.Copy(pod.NodeSelector, d.NodeSelector)
	if d.Object != nil {
		pod.NodeSelector[driverOwner] = d.Object.Name
	}
	pod.HostPID = true
	pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{component: driverComponent}},
			TopologyKey:   corev1.LabelHostname,
		}},
	}}
	pod.InitContainers[0].Image = managerImage
	pod.InitContainers[0].Command, pod.InitContainers[0].Args = []string{"driver-manager"}, []string{"uninstall_driver"}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: path,
		}}}
	}
	script := &corev1.ConfigMapVolumeSource{DefaultMode: new(int32(0o755))}
	script.Name = probeScript
	pod.Volumes = []corev1.Volume{
		{Name: "driver-startup-probe-script", VolumeSource: corev1.VolumeSource{ConfigMap: script}},
		{Name: "run-nvidia", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/run/nvidia", Type: new(corev1.HostPathDirectoryOrCreate),
		}}},
	}
	container := &pod.Containers[0]
	container.Image = d.Image
	container.Command, container.Args = []string{"nvidia-driver"}, []string{"init"}
	container.Env = []corev1.EnvVar{
		field("NODE_NAME", "spec.nodeName"), field("NODE_IP", "status.hostIP"),
		{Name: "KERNEL_MODULE_TYPE", Value: "auto"}, {Name: "DRIVER_CONFIG_DIGEST", Value: "theirs"},
	}
	container.VolumeMounts = []corev1.VolumeMount{
		{
			Name: "driver-startup-probe-script", MountPath: "/usr/local/bin/startup-probe.sh", SubPath: "startup-probe.sh",
		},
		{Name: "run-nvidia", MountPath: "/run/nvidia", MountPropagation: new(corev1.MountPropagationBidirectional)},
	}
	container.StartupProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "/usr/local/bin/startup-probe.sh"},
		}},
		InitialDelaySeconds: 60, FailureThreshold: 120, SuccessThreshold: 1, PeriodSeconds: 10, TimeoutSeconds: 60,
	}
	if d.Toolkit != "" {
		addToolkit(d, pod)
	}
}

// addToolkit adds the container that builds the modules on OpenShift.
func addToolkit(d Driver, pod *corev1.PodSpec) {
	container := &pod.Containers[0]
	container.Command, container.Args = []string{"ocp_dtk_entrypoint"}, []string{"nv-ctr-run-with-dtk"}
	container.Env = append(container.Env, corev1.EnvVar{Name: "OPENSHIFT_VERSION", Value: "4.18"})
	pod.Containers = append(pod.Containers, corev1.Container{
		Name: toolkitCtr, Image: d.Toolkit, Command: []string{"bash", "-xc"}, Args: []string{"dtk-build-driver"},
		Env: []corev1.EnvVar{{Name: "RHCOS_VERSION", Value: d.Release}, {Name: "DRIVER_CONFIG_DIGEST", Value: "theirs"}},
	})
}

// Serves reports whether the DaemonSet selects a GPU node by its own labels.
func (d *Driver) Serves(node *corev1.Node) bool {
	for key, value := range d.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	return true
}
