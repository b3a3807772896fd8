package driver

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// The containers of the pod. Those in separate files have the names of the files.
const (
	mainContainer          = "nvidia-driver-ctr"
	peermemContainer       = "nvidia-peermem-ctr"
	gdsContainer           = "nvidia-fs-ctr"
	gdrcopyContainer       = "nvidia-gdrcopy-ctr"
	driverToolkitContainer = "openshift-driver-toolkit-ctr"
	managerContainer       = "k8s-driver-manager"
)

const (
	driverToolkitVolume = "shared-nvidia-driver-toolkit"
	topologyVolume      = "topology-config"
	topologyFile        = "nvidia-topologyd.conf"
)

// gpuNodePath is the path of gpu-node in containers of other images.
var gpuNodePath = path.Join(labels.HelperDir, path.Base(labels.HelperBinary))

// containers adds to an instance the optional containers of a pool, and the optional settings of all containers.
func containers(in operand.Input, pool nodeinfo.Pool, v values, instance *operand.Instance) {
	c := &podBuilder{
		in: in, values: v, packages: packageFiles(in, pool), modules: moduleFiles(in), instance: instance,
	}
	instance.Additions = map[string]operand.Additions{mainContainer: c.main(hostMounts(in, pool))}
	if v.RDMA {
		c.add(peermemContainer, c.peermem())
	}
	if v.GDS.Enabled {
		c.add(gdsContainer, c.module(v.GDS))
	}
	if v.GDRCopy.Enabled {
		c.add(gdrcopyContainer, c.module(v.GDRCopy))
	}
	if v.DriverToolkit.Set {
		c.add(driverToolkitContainer, operand.Additions{Env: c.moduleEnv()})
	}
	// With RDMA it waits for the network driver, which the modules are built against.
	c.add(managerContainer, operand.Additions{Env: c.rdmaEnv()})
	instance.Volumes = c.volumes(hostMounts(in, pool))
	instance.ProvidedVolumes = providedVolumes(in, pool)
	instance.TrustStores = trustStores(pool)
}

// podBuilder builds the optional parts of a pod.
type podBuilder struct {
	in     operand.Input
	values values
	// packages are the files for the package manager, for each container that installs packages; modules those with
	// parameters of kernel modules.
	packages, modules configMapFiles
	instance          *operand.Instance
}

// add appends the container in this file to the pod.
func (c *podBuilder) add(file string, settings operand.Additions) {
	c.instance.ContainerFiles = append(c.instance.ContainerFiles, file)
	c.instance.Additions[file] = settings
}

func (c *podBuilder) main(host []hostMount) operand.Additions {
	spec := c.in.Spec.Driver
	// The start-up probe writes these variables to a file, from which the validation reads which modules to wait for.
	settings := operand.Additions{
		Env:     append(c.rdmaEnv(), c.moduleEnv()...),
		EnvFrom: c.secretEnv(),
		StartupProbe: probe(*spec.StartupProbe,
			gpuNodePath, labels.ProbeCommand, fmt.Sprintf("--within=%s", effective.DriverProbeWithin(*spec.StartupProbe))),
	}
	if *spec.LivenessProbe != (v1.ProbeSpec{}) {
		settings.LivenessProbe = probe(*spec.LivenessProbe, "nvidia-smi")
	}
	if *spec.ReadinessProbe != (v1.ProbeSpec{}) {
		settings.ReadinessProbe = probe(*spec.ReadinessProbe, "nvidia-smi")
	}
	settings.Mounts = c.mainMounts(host)
	return settings
}

func (c *podBuilder) mainMounts(host []hostMount) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if c.values.DriverToolkit.Set {
		mounts = append(mounts, corev1.VolumeMount{Name: driverToolkitVolume, MountPath: "/mnt/" + driverToolkitVolume})
	}
	mounts = append(mounts, c.packages.mounts()...)
	mounts = append(mounts, c.modules.mounts()...)
	mounts = append(mounts, licenceOf(c.in).mounts()...)
	if c.topology() != "" {
		mounts = append(mounts, fileMount(topologyVolume, topologyFile, "/etc/nvidia/"+topologyFile))
	}
	for _, m := range host {
		mounts = append(mounts, corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: true})
	}
	return mounts
}

func (c *podBuilder) peermem() operand.Additions {
	settings := operand.Additions{Mounts: c.modules.mounts()}
	settings.Env.AddIf(c.values.HostMOFED, labels.HostMOFEDKey, labels.True)
	return settings
}

// module returns the settings of a sidecar that builds a kernel module.
func (c *podBuilder) module(s sidecar) operand.Additions {
	settings := operand.Additions{EnvFrom: c.secretEnv(), Mounts: c.packages.mounts()}
	for _, variable := range s.env {
		settings.Env.Add(variable.Name, variable.Value)
	}
	return settings
}

func (c *podBuilder) volumes(host []hostMount) []corev1.Volume {
	volumes := append(c.packages.volumes(), c.modules.volumes()...)
	volumes = append(volumes, licenceOf(c.in).volumes()...)
	if c.topology() != "" {
		volumes = append(volumes, volume(topologyVolume, configMapSource(c.topology(), topologyFile)))
	}
	for _, m := range host {
		volumes = append(volumes, volume(m.Name, corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: m.Path, Type: new(m.Type)},
		}))
	}
	return volumes
}

func (c *podBuilder) rdmaEnv() (env operand.Env) {
	env.AddIf(c.values.RDMA, labels.RDMAEnabledKey, labels.True)
	env.AddIf(c.values.HostMOFED, labels.HostMOFEDKey, labels.True)
	return env
}

func (c *podBuilder) moduleEnv() (env operand.Env) {
	env.AddIf(c.values.GDS.Enabled, labels.GDSEnabledKey, labels.True)
	env.AddIf(c.values.GDRCopy.Enabled, labels.GDRCopyEnabledKey, labels.True)
	return env
}

func (c *podBuilder) secretEnv() []corev1.EnvFromSource {
	if !c.values.SecretEnv.Set {
		return nil
	}
	secret := &corev1.SecretEnvSource{}
	secret.Name = string(c.values.SecretEnv.Name)
	return []corev1.EnvFromSource{{SecretRef: secret}}
}

func (c *podBuilder) topology() string { return string(c.in.Spec.Driver.VirtualTopology.Config) }

// probe runs a command with the times of the spec.
func probe(spec v1.ProbeSpec, command ...string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
		InitialDelaySeconds: spec.InitialDelaySeconds,
		PeriodSeconds:       spec.PeriodSeconds,
		TimeoutSeconds:      spec.TimeoutSeconds,
		SuccessThreshold:    spec.SuccessThreshold,
		FailureThreshold:    spec.FailureThreshold,
	}
}

// fileMount mounts one file of a volume.
func fileMount(volume, file, at string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volume, MountPath: at, SubPath: file, ReadOnly: true}
}

func volume(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

// configMapSource mounts these keys of a ConfigMap as files, or all keys if none is given.
func configMapSource(name string, keys ...string) corev1.VolumeSource {
	source := &corev1.ConfigMapVolumeSource{Items: items(keys...)}
	source.Name = name
	return corev1.VolumeSource{ConfigMap: source}
}

func items(keys ...string) []corev1.KeyToPath {
	var paths []corev1.KeyToPath
	for _, key := range keys {
		paths = append(paths, corev1.KeyToPath{Key: key, Path: key})
	}
	return paths
}
