package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// values are what the driver's templates insert.
type values struct {
	Image, PullPolicy               string
	ManagerImage, ManagerPullPolicy string
	KernelModuleType                v1.KernelModuleType
	OpenModules                     bool
	ConfigDigest                    string
	Probe                           v1.ProbeSpec
}

// defaultProbe gives a driver that builds its modules 21 minutes.
var defaultProbe = v1.ProbeSpec{
	InitialDelaySeconds: 60, PeriodSeconds: 10, TimeoutSeconds: 60, SuccessThreshold: 1, FailureThreshold: 120,
}

func instances(in operand.Input, pools []operand.Pool) ([]operand.Instance, error) {
	spec := spec(in)
	manager := v1.DriverManagerSpec{}
	if spec.Manager != nil {
		manager = *spec.Manager
	}
	managerImage, err := image.Resolve(image.DriverManager, manager.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.driver.manager: %w", err)
	}
	var result []operand.Instance
	for _, pool := range pools {
		driverImage, err := image.Resolve(image.Driver, spec.ImageSpec, "-"+pool.OSTag)
		if err != nil {
			return nil, fmt.Errorf("spec.driver: %w", err)
		}
		moduleType := spec.KernelModuleType
		if moduleType == "" {
			moduleType = v1.KernelModuleAuto
		}
		result = append(result, operand.Instance{
			Suffix:      "-" + objectName(pool.Name),
			Pool:        pool.Name,
			Image:       driverImage.Image,
			Version:     driverImage.Version,
			PullSecrets: append(append([]string{}, spec.ImagePullSecrets...), manager.ImagePullSecrets...),
			Main:        "nvidia-driver-ctr",
			Container:   spec.ContainerSpec,
			InitEnv:     map[string][]v1.EnvVar{"k8s-driver-manager": manager.Env},
			Values: values{
				Image:             driverImage.Image,
				PullPolicy:        image.PullPolicy(spec.ImageSpec),
				ManagerImage:      managerImage.Image,
				ManagerPullPolicy: image.PullPolicy(manager.ImageSpec),
				KernelModuleType:  moduleType,
				OpenModules:       moduleType == v1.KernelModuleOpen,
				ConfigDigest:      configDigest(driverImage.Image, moduleType, spec),
				Probe:             probe(spec.StartupProbe),
			},
		})
	}
	return result, nil
}

// objectName is the pool's name as part of an object's name: a label value may hold more.
func objectName(pool string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' {
			return '-'
		}
		return c
	}, strings.ToLower(pool))
}

// configDigest covers what decides which modules are built and how. k8s-driver-manager and the
// driver container skip the reinstallation when it is the same as that of the loaded driver, so
// anything else in it would unload a driver for nothing.
func configDigest(imageRef string, moduleType v1.KernelModuleType, spec v1.DriverSpec) string {
	env := slices.SortedFunc(slices.Values(spec.Env), func(a, b v1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q", imageRef, moduleType, spec.Args, env)
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func probe(override *v1.ProbeSpec) v1.ProbeSpec {
	probe := defaultProbe
	if override == nil {
		return probe
	}
	set := func(to *int32, value int32) {
		if value != 0 {
			*to = value
		}
	}
	set(&probe.InitialDelaySeconds, override.InitialDelaySeconds)
	set(&probe.PeriodSeconds, override.PeriodSeconds)
	set(&probe.TimeoutSeconds, override.TimeoutSeconds)
	set(&probe.SuccessThreshold, override.SuccessThreshold)
	set(&probe.FailureThreshold, override.FailureThreshold)
	return probe
}
