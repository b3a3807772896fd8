package driver

import (
	"fmt"
	"strconv"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// values are what the driver's templates insert.
type values struct {
	Image, PullPolicy               string
	ManagerImage, ManagerPullPolicy string
	Precompiled                     string
	KernelModuleType                v1.KernelModuleType
	OpenModules                     bool
	ConfigDigest                    string

	Probe               v1.ProbeSpec
	ProbeWithin         time.Duration
	Liveness, Readiness optionalProbe

	RDMA, HostMOFED bool
	MOFEDSource     string
	GDS, GDRCopy    sidecar
	DriverToolkit   driverToolkit

	SecretEnv    named
	Licence      licence
	Topology     named
	ModuleConfig moduleConfig
	Filled       []filledDirectory
	// Files: an init container puts files of ConfigMaps where the driver container reads them.
	Files      bool
	HostMounts []hostMount
}

// named is an object of the user that may be there.
type named struct {
	Set  bool
	Name v1.ObjectName
}

func name(name v1.ObjectName) named { return named{name != "", name} }

type optionalProbe struct {
	Set bool
	v1.ProbeSpec
}

// optional is no probe where the block says nothing.
func optional(probe *v1.ProbeSpec) optionalProbe {
	return optionalProbe{*probe != v1.ProbeSpec{}, *probe}
}

// sidecar is a container that builds and loads a kernel module beside the driver's.
type sidecar struct {
	Enabled           bool
	Image, PullPolicy string
	// Args of its program; empty for its own.
	Args        []string
	Env         []v1.EnvVar
	pullSecrets []string
}

// driverToolkit is OpenShift's image that builds the modules in a container beside the driver's.
type driverToolkit struct {
	Set bool
	// Image is that of Release of Red Hat CoreOS.
	Image, Release string
}

// licence of a vGPU guest driver.
type licence struct {
	Secret, ConfigMap named
	// Set: one of them is there. Token: the licence system is used.
	Set, Token bool
}

type moduleConfig struct {
	named
	Files []string
}

func instances(in operand.Input, pools []nodeinfo.Pool) ([]operand.Instance, error) {
	manager := in.Spec.Driver.Manager
	managerImage, err := managerDefault.Resolve(manager.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.driver.manager: %w", err)
	}
	var result []operand.Instance
	for _, pool := range pools {
		values, version, err := poolValues(in, pool)
		if err != nil {
			return nil, err
		}
		values.ManagerImage, values.ManagerPullPolicy = managerImage.Image, string(manager.ImagePullPolicy)
		result = append(result, operand.Instance{
			Suffix:      "-" + objectName(pool.Name),
			Pool:        pool.Name,
			Image:       values.Image,
			Version:     version,
			PullSecrets: pullSecrets(in.Spec.Driver.ImagePullSecrets, manager.ImagePullSecrets, values.GDS.pullSecrets, values.GDRCopy.pullSecrets),
			Main:        "nvidia-driver-ctr",
			Container:   containerSpec(in, pool),
			InitEnv:     map[string][]v1.EnvVar{"k8s-driver-manager": manager.Env},
			Values:      values,
		})
	}
	return result, nil
}

// containerSpec is what the spec says of the driver container. The entrypoint for the driver toolkit takes
// no arguments but its own.
func containerSpec(in operand.Input, pool nodeinfo.Pool) v1.ContainerSpec {
	container := in.Spec.Driver.ContainerSpec
	if pool.CoreOS != "" {
		container.Args = nil
	}
	return container
}

func pullSecrets(lists ...[]string) []string {
	secrets := []string{}
	for _, list := range lists {
		secrets = append(secrets, list...)
	}
	return secrets
}

// poolValues are the values of one pool, and the version of its image.
func poolValues(in operand.Input, pool nodeinfo.Pool) (values, string, error) {
	spec := in.Spec.Driver
	suffix := "-" + pool.OSTag
	if pool.Kernel != "" {
		suffix = "-" + pool.Kernel + suffix
	}
	driverImage, err := driverDefault.Resolve(spec.ImageSpec, suffix)
	if err != nil {
		return values{}, "", fmt.Errorf("spec.driver: %w", err)
	}
	v := values{
		Image:            driverImage.Image,
		PullPolicy:       string(spec.ImagePullPolicy),
		Precompiled:      strconv.FormatBool(pool.Kernel != ""),
		KernelModuleType: spec.KernelModuleType,
		OpenModules:      spec.KernelModuleType == v1.KernelModuleOpen,
		Probe:            *spec.StartupProbe,
		ProbeWithin:      effective.DriverProbeWithin(*spec.StartupProbe),
		Liveness:         optional(spec.LivenessProbe),
		Readiness:        optional(spec.ReadinessProbe),
		RDMA:             rdma(in),
		HostMOFED:        hostMOFED(in),
		MOFEDSource:      mofedSource(in),
		Licence:          licenceOf(spec.LicensingConfig),
		Topology:         name(spec.VirtualTopology.Config),
		ModuleConfig:     moduleConfig{name(spec.KernelModuleConfig.Name), moduleConfigFiles},
		Filled:           filledDirectories(in, pool),
		HostMounts:       hostMounts(in, pool),
		DriverToolkit:    driverToolkit{pool.CoreOS != "", in.DriverToolkit[pool.CoreOS], pool.CoreOS},
	}
	if pool.Kernel == "" {
		v.SecretEnv = name(spec.SecretEnv)
	}
	v.Files = v.ModuleConfig.Set || len(v.Filled) > 0
	if err := v.addSidecars(in, pool); err != nil {
		return values{}, "", err
	}
	v.ConfigDigest = configDigest(in, v)
	return v, driverImage.Version, nil
}

func (v *values) addSidecars(in operand.Input, pool nodeinfo.Pool) (err error) {
	if gds(in) {
		if v.GDS, err = sidecarOf(gdsDefault, in.Spec.GDS.ImageSpec, pool); err != nil {
			return fmt.Errorf("spec.gds: %w", err)
		}
		v.GDS.Args, v.GDS.Env = in.Spec.GDS.Args, in.Spec.GDS.Env
	}
	if gdrcopy(in) {
		if v.GDRCopy, err = sidecarOf(gdrCopyDefault, in.Spec.GDRCopy.ImageSpec, pool); err != nil {
			return fmt.Errorf("spec.gdrcopy: %w", err)
		}
		v.GDRCopy.Args, v.GDRCopy.Env = in.Spec.GDRCopy.Args, in.Spec.GDRCopy.Env
	}
	return nil
}

func sidecarOf(fallback image.Default, spec v1.ImageSpec, pool nodeinfo.Pool) (sidecar, error) {
	ref, err := fallback.Resolve(spec, "-"+pool.OSTag)
	return sidecar{Enabled: true, Image: ref.Image, PullPolicy: string(spec.ImagePullPolicy), pullSecrets: spec.ImagePullSecrets}, err
}

// mofedSource is where the sources of the network driver are, which nvidia-peermem is built with.
func mofedSource(in operand.Input) string {
	if hostMOFED(in) {
		return "/usr/src"
	}
	return "/run/mellanox/drivers/usr/src"
}

func licenceOf(spec *v1.DriverLicensingConfigSpec) licence {
	l := licence{Secret: name(spec.SecretName)}
	if !l.Secret.Set {
		l.ConfigMap = name(spec.ConfigMapName)
	}
	l.Set = l.Secret.Set || l.ConfigMap.Set
	l.Token = l.Set && *spec.NLSEnabled
	return l
}
