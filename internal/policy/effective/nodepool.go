package effective

import (
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// ForNodePool is the spec for the nodes of a node pool: this spec with the overrides of the node pool.
func (s Spec) ForNodePool(nodePool v1.NodePoolSpec) Spec {
	if nodePool.Driver != nil {
		s.Driver = driverOf(*s.Driver, *nodePool.Driver)
		s.GDS, s.GDRCopy = gdsOf(s.GDS, nodePool.Driver.GDS), gdrcopyOf(s.GDRCopy, nodePool.Driver.GDRCopy)
	}
	if nodePool.Toolkit != nil {
		own := *s.Toolkit
		own.ImageSpec = imageOf(own.ImageSpec, nodePool.Toolkit.ImageSpec)
		s.Toolkit = &own
	}
	if nodePool.DevicePlugin != nil && nodePool.DevicePlugin.Config != nil {
		own := *s.DevicePlugin
		own.Config = pluginConfigOf(*own.Config, *nodePool.DevicePlugin.Config)
		s.DevicePlugin = &own
	}
	s = s.withSharingOf(nodePool)
	if nodePool.MIG != nil && nodePool.MIG.Strategy != "" {
		s.MIG = nodePool.MIG
	}
	if nodePool.MIGManager != nil && nodePool.MIGManager.Config != nil && nodePool.MIGManager.Config.Default != nil {
		own := *s.MIGManager
		config := v1.MIGManagerConfigSpec{Name: MIGLayouts, OnBusy: v1.MIGBusyHold}
		if own.Config != nil {
			config = *own.Config
		}
		config.Default = nodePool.MIGManager.Config.Default
		own.Config = &config
		s.MIGManager = &own
	}
	return s
}

// withSharingOf returns the spec with the sharing of the node pool, which replaces the ConfigMap of the spec, or with
// the ConfigMap of the node pool, which replaces the sharing of the spec.
func (s Spec) withSharingOf(nodePool v1.NodePoolSpec) Spec {
	switch {
	case nodePool.Sharing != nil:
		own := *s.DevicePlugin
		own.Config = &v1.DevicePluginConfigSpec{}
		s.DevicePlugin, s.Sharing = &own, nodePool.Sharing
	case nodePool.DevicePlugin != nil && nodePool.DevicePlugin.Config != nil && nodePool.DevicePlugin.Config.Name != "":
		s.Sharing = nil
	}
	return s
}

func driverOf(driver v1.DriverSpec, nodePool v1.NodePoolDriverSpec) *v1.DriverSpec {
	nodePool = withVariables(nodePool)
	driver.ImageSpec = imageOf(driver.ImageSpec, nodePool.ImageSpec)
	override(&driver.UsePrecompiled, nodePool.UsePrecompiled)
	override(&driver.KernelModuleType, nodePool.KernelModuleType)
	override(&driver.SecretEnv, nodePool.SecretEnv)
	driver.StartupProbe, driver.LivenessProbe, driver.ReadinessProbe = probesOf(driver, nodePool)
	overrideBlock(&driver.RDMA, nodePool.RDMA, func(own *v1.RDMASpec, rdma v1.RDMASpec) {
		override(&own.Enabled, rdma.Enabled)
		override(&own.UseHostMOFED, rdma.UseHostMOFED)
	})
	overrideBlock(&driver.Manager, nodePool.Manager, func(own *v1.DriverManagerSpec, manager v1.DriverManagerSpec) {
		own.ImageSpec = imageOf(own.ImageSpec, manager.ImageSpec)
		overrideList(&own.Env, manager.Env)
	})
	if nodePool.UpgradePolicy != nil {
		driver.UpgradePolicy = upgradePolicyOf(*driver.UpgradePolicy, *nodePool.UpgradePolicy)
	}
	overridePods(&driver, nodePool)
	overrideObjects(&driver, nodePool)
	return &driver
}

// withVariables returns the driver of a node pool with the fields that its own variables set.
func withVariables(nodePool v1.NodePoolDriverSpec) v1.NodePoolDriverSpec {
	if len(nodePool.Env) == 0 {
		return nodePool
	}
	named := v1.DriverSpec{KernelModuleType: nodePool.KernelModuleType, RDMA: nodePool.RDMA.DeepCopy()}
	named.Env = nodePool.Env
	variables(&named)
	nodePool.KernelModuleType, nodePool.RDMA = named.KernelModuleType, named.RDMA
	return nodePool
}

// probesOf returns the probes of the driver container. A probe of the node pool replaces that of the spec, as its
// numbers belong together.
func probesOf(driver v1.DriverSpec, nodePool v1.NodePoolDriverSpec) (startup, liveness, readiness *v1.ProbeSpec) {
	startup, liveness, readiness = driver.StartupProbe, driver.LivenessProbe, driver.ReadinessProbe
	if nodePool.StartupProbe != nil && *nodePool.StartupProbe != (v1.ProbeSpec{}) {
		startup = nodePool.StartupProbe.DeepCopy()
		startupProbe(startup)
	}
	if nodePool.LivenessProbe != nil && *nodePool.LivenessProbe != (v1.ProbeSpec{}) {
		liveness = nodePool.LivenessProbe
	}
	if nodePool.ReadinessProbe != nil && *nodePool.ReadinessProbe != (v1.ProbeSpec{}) {
		readiness = nodePool.ReadinessProbe
	}
	return startup, liveness, readiness
}

// overridePods overrides what all containers of an operand and their placement have.
func overridePods(driver *v1.DriverSpec, nodePool v1.NodePoolDriverSpec) {
	override(&driver.Resources, nodePool.Resources)
	override(&driver.HostNetwork, nodePool.HostNetwork)
	override(&driver.PriorityClassName, nodePool.PriorityClassName)
	overrideList(&driver.Args, nodePool.Args)
	overrideList(&driver.Env, nodePool.Env)
	overrideList(&driver.Tolerations, nodePool.Tolerations)
	driver.Labels = added(driver.Labels, nodePool.Labels)
	driver.Annotations = added(driver.Annotations, nodePool.Annotations)
}

// overrideObjects overrides the names of ConfigMaps and Secrets.
func overrideObjects(driver *v1.DriverSpec, nodePool v1.NodePoolDriverSpec) {
	overrideNamed(&driver.RepoConfig, nodePool.RepoConfig)
	overrideNamed(&driver.CertConfig, nodePool.CertConfig)
	overrideNamed(&driver.VirtualTopology, nodePool.VirtualTopology)
	overrideNamed(&driver.KernelModuleConfig, nodePool.KernelModuleConfig)
	driver.LicensingConfig = licensingOf(*driver.LicensingConfig, nodePool.LicensingConfig)
}

// overrideNamed replaces a block that names an object, unless that of the node pool is empty.
func overrideNamed[T comparable](block **T, nodePool *T) {
	var empty T
	if nodePool != nil && *nodePool != empty {
		*block = nodePool
	}
}

// licensingOf drops the object of the spec where the node pool names another one, of either kind.
func licensingOf(licence v1.DriverLicensingConfigSpec, nodePool *v1.DriverLicensingConfigSpec,
) *v1.DriverLicensingConfigSpec {
	if nodePool == nil {
		return &licence
	}
	if nodePool.SecretName != "" || nodePool.ConfigMapName != "" {
		licence.SecretName, licence.ConfigMapName = nodePool.SecretName, nodePool.ConfigMapName
	}
	override(&licence.NLSEnabled, nodePool.NLSEnabled)
	return &licence
}

func gdsOf(spec *v1.GDSSpec, nodePool *v1.NodePoolModuleSpec) *v1.GDSSpec {
	if nodePool == nil {
		return spec
	}
	own := *spec
	overrideModule(&own.ImageSpec, &own.Enabled, &own.Args, &own.Env, *nodePool)
	return &own
}

func gdrcopyOf(spec *v1.GDRCopySpec, nodePool *v1.NodePoolModuleSpec) *v1.GDRCopySpec {
	if nodePool == nil {
		return spec
	}
	own := *spec
	overrideModule(&own.ImageSpec, &own.Enabled, &own.Args, &own.Env, *nodePool)
	return &own
}

// overrideModule overrides what the sidecars with modules have in common.
func overrideModule(
	image *v1.ImageSpec, enabled **bool, args *[]string, env *[]v1.EnvVar, nodePool v1.NodePoolModuleSpec,
) {
	*image = imageOf(*image, nodePool.ImageSpec)
	override(enabled, nodePool.Enabled)
	overrideList(args, nodePool.Args)
	overrideList(env, nodePool.Env)
}

func upgradePolicyOf(policy v1.DriverUpgradePolicySpec, nodePool v1.NodePoolUpgradePolicySpec,
) *v1.DriverUpgradePolicySpec {
	override(&policy.AutoUpgrade, nodePool.AutoUpgrade)
	override(&policy.Paused, nodePool.Paused)
	override(&policy.MaxParallelUpgrades, nodePool.MaxParallelUpgrades)
	override(&policy.MaxUnavailable, number(nodePool.MaxUnavailable))
	override(&policy.PullImages, nodePool.PullImages)
	overrideBlock(&policy.Timeouts, nodePool.Timeouts, func(own *v1.UpgradeTimeoutsSpec, timeouts v1.UpgradeTimeoutsSpec) {
		override(&own.ImagePullSeconds, timeouts.ImagePullSeconds)
		override(&own.DriverSeconds, timeouts.DriverSeconds)
		override(&own.ValidationSeconds, timeouts.ValidationSeconds)
	})
	overrideBlock(&policy.WaitForCompletion, nodePool.WaitForCompletion,
		func(own *v1.WaitForCompletionSpec, wait v1.WaitForCompletionSpec) {
			override(&own.PodSelector, wait.PodSelector)
			override(&own.TimeoutSeconds, wait.TimeoutSeconds)
		})
	overrideBlock(&policy.PodDeletion, nodePool.PodDeletion, func(own *v1.PodDeletionSpec, deletion v1.PodDeletionSpec) {
		override(&own.Force, deletion.Force)
		override(&own.TimeoutSeconds, deletion.TimeoutSeconds)
		override(&own.DeleteEmptyDir, deletion.DeleteEmptyDir)
	})
	overrideBlock(&policy.Drain, nodePool.Drain, func(own *v1.DrainSpec, drain v1.DrainSpec) {
		override(&own.Enable, drain.Enable)
		override(&own.Force, drain.Force)
		override(&own.PodSelector, drain.PodSelector)
		override(&own.TimeoutSeconds, drain.TimeoutSeconds)
		override(&own.DeleteEmptyDir, drain.DeleteEmptyDir)
	})
	return &policy
}

// imageOf is the image with the overrides of a node pool. A full reference replaces repository and version too.
func imageOf(image, nodePool v1.ImageSpec) v1.ImageSpec {
	if nodePool.IsFullReference() {
		image.Repository, image.Version = "", ""
	}
	override(&image.Repository, nodePool.Repository)
	override(&image.Image, nodePool.Image)
	override(&image.Version, nodePool.Version)
	override(&image.ImagePullPolicy, nodePool.ImagePullPolicy)
	if len(nodePool.ImagePullSecrets) > 0 {
		image.ImagePullSecrets = nodePool.ImagePullSecrets
	}
	return image
}

// pluginConfigOf drops the default of the spec with its ConfigMap: another ConfigMap has other keys.
func pluginConfigOf(config v1.DevicePluginConfigSpec, nodePool v1.NodePoolPluginConfigSpec) *v1.DevicePluginConfigSpec {
	if nodePool.Name != "" {
		return &v1.DevicePluginConfigSpec{Name: nodePool.Name, Default: nodePool.Default}
	}
	override(&config.Default, nodePool.Default)
	return &config
}

// override sets the field to the node pool's value, unless that is empty.
func override[T comparable](field *T, value T) {
	if value != *new(T) {
		*field = value
	}
}

// overrideBlock replaces the block by a copy with the fields that are set in the node pool's.
func overrideBlock[T any](block **T, nodePool *T, fields func(own *T, nodePool T)) {
	if nodePool == nil {
		return
	}
	own := **block
	fields(&own, *nodePool)
	*block = &own
}

// overrideList sets the list to that of the node pool, unless that is empty.
func overrideList[T any](field *[]T, value []T) {
	if len(value) > 0 {
		*field = value
	}
}

// added returns the entries of both maps; those of the node pool take precedence.
func added[M ~map[string]V, V any](base, nodePool M) M {
	if len(nodePool) == 0 {
		return base
	}
	merged := make(M, len(base)+len(nodePool))
	maps.Copy(merged, base)
	maps.Copy(merged, nodePool)
	return merged
}
