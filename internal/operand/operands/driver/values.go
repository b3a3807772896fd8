package driver

import (
	"fmt"
	"slices"
	"strconv"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// values are the values that the driver's templates insert.
type values struct {
	Image, PullPolicy               string
	ManagerImage, ManagerPullPolicy string
	Precompiled                     string
	KernelModuleType                v1.KernelModuleType
	OpenModules                     bool
	ConfigDigest                    string

	RDMA, HostMOFED bool
	MOFEDSource     string
	GDS, GDRCopy    sidecar
	DriverToolkit   driverToolkit

	SecretEnv    optionalName
	ModuleConfig optionalName
}

// optionalName is the name of an object that the user may provide.
type optionalName struct {
	Set  bool
	Name v1.ObjectName
}

func optionalNameOf(name v1.ObjectName) optionalName { return optionalName{name != "", name} }

// sidecar is a container that builds and loads a kernel module beside the driver's.
type sidecar struct {
	Enabled           bool
	Image, PullPolicy string
	// Command and Args of the container.
	Command, Args []string
	// programArgs are the arguments of its program in the spec; empty for the default.
	programArgs []string
	env         []v1.EnvVar
	pullSecrets []string
}

// driverToolkit is OpenShift's image that builds the modules in a sidecar of the driver container.
type driverToolkit struct {
	Set bool
	// Image is the image for Release, a release of Red Hat CoreOS.
	Image, Release string
}

func instances(in operand.Input, pools []nodeinfo.Pool) ([]operand.Instance, error) {
	manager := in.Spec.Driver.Manager
	managerImage, err := in.Images.Of(managerDefault).Resolve(manager.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.ImageField("spec.driver.manager"), err)
	}
	var result []operand.Instance
	for _, pool := range pools {
		values, version, err := poolValues(in, pool)
		if err != nil {
			return nil, err
		}
		values.ManagerImage, values.ManagerPullPolicy = managerImage.Image, string(manager.ImagePullPolicy)
		instance := operand.Instance{
			Suffix:  "-" + objectName(pool.Name),
			Pool:    pool.Name,
			Image:   values.Image,
			Version: version,
			PullSecrets: pullSecrets(in.Spec.Driver.ImagePullSecrets, manager.ImagePullSecrets,
				values.GDS.pullSecrets, values.GDRCopy.pullSecrets),
			Main:      mainContainer,
			Container: containerSpec(in, pool),
			InitEnv:   map[string][]v1.EnvVar{managerContainer: manager.Env},
			Values:    values,
		}
		containers(in, pool, values, &instance)
		result = append(result, instance)
	}
	return result, nil
}

// containerSpec returns the spec of the driver container. The entrypoint for the driver toolkit takes no user
// arguments.
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

// poolValues returns the values of one pool, and the version of its image.
func poolValues(in operand.Input, pool nodeinfo.Pool) (values, string, error) {
	spec := in.Spec.Driver
	suffix := "-" + pool.OSTag
	if pool.Kernel != "" {
		suffix = "-" + pool.Kernel + suffix
	}
	driverImage, err := in.Images.Of(driverDefault).Resolve(spec.ImageSpec, suffix)
	if err != nil {
		return values{}, "", fmt.Errorf("%s: %w", in.ImageField("spec.driver"), err)
	}
	v := values{
		Image:            driverImage.Image,
		PullPolicy:       string(spec.ImagePullPolicy),
		Precompiled:      strconv.FormatBool(pool.Kernel != ""),
		KernelModuleType: spec.KernelModuleType,
		OpenModules:      spec.KernelModuleType == v1.KernelModuleOpen,
		RDMA:             rdma(in),
		HostMOFED:        hostMOFED(in),
		MOFEDSource:      mofedSource(in),
		ModuleConfig:     optionalNameOf(spec.KernelModuleConfig.Name),
		DriverToolkit:    driverToolkit{pool.CoreOS != "", in.DriverToolkit[pool.CoreOS], pool.CoreOS},
	}
	if pool.Kernel == "" {
		v.SecretEnv = optionalNameOf(spec.SecretEnv)
	}
	if err := v.addSidecars(in, pool); err != nil {
		return values{}, "", err
	}
	v.ConfigDigest = configDigest(in, v)
	return v, driverImage.Version, nil
}

func (v *values) addSidecars(in operand.Input, pool nodeinfo.Pool) (err error) {
	if gds(in) {
		if v.GDS, err = sidecarOf(in.Images.Of(gdsDefault), in.Spec.GDS.ImageSpec, pool); err != nil {
			return fmt.Errorf("%s: %w", in.ImageField("spec.gds"), err)
		}
		v.GDS.setCommand(pool, "nvidia-gds-driver", "nv-fs-ctr-run-with-dtk", in.Spec.GDS.Args)
		v.GDS.env = in.Spec.GDS.Env
	}
	if gdrcopy(in) {
		if v.GDRCopy, err = sidecarOf(in.Images.Of(gdrCopyDefault), in.Spec.GDRCopy.ImageSpec, pool); err != nil {
			return fmt.Errorf("%s: %w", in.ImageField("spec.gdrcopy"), err)
		}
		v.GDRCopy.setCommand(pool, "nvidia-gdrcopy-driver", "gdrcopy-ctr-run-with-dtk", in.Spec.GDRCopy.Args)
		v.GDRCopy.env = in.Spec.GDRCopy.Env
	}
	return nil
}

func sidecarOf(fallback image.Default, spec v1.ImageSpec, pool nodeinfo.Pool) (sidecar, error) {
	ref, err := fallback.Resolve(spec, "-"+pool.OSTag)
	return sidecar{
		Enabled:     true,
		Image:       ref.Image,
		PullPolicy:  string(spec.ImagePullPolicy),
		pullSecrets: spec.ImagePullSecrets,
	}, err
}

// setCommand sets the command of a sidecar. Its module is built with the driver's sources, so gpu-node waits for the
// driver container; with the driver toolkit, the entrypoint waits.
func (s *sidecar) setCommand(pool nodeinfo.Pool, program, withToolkit string, args []string) {
	s.programArgs = args
	if pool.CoreOS != "" {
		s.Command, s.Args = []string{"ocp_dtk_entrypoint"}, []string{withToolkit}
		return
	}
	if len(args) == 0 {
		args = []string{"install"}
	}
	s.Command = slices.Concat([]string{gpuNodePath, "exec", "--driver-container", "--", program}, args)
}

// mofedSource returns the directory with the sources of the network driver, against which nvidia-peermem is built.
func mofedSource(in operand.Input) string {
	if hostMOFED(in) {
		return "/usr/src"
	}
	return "/run/mellanox/drivers/usr/src"
}
