package effective

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// ForNodePool is the spec for the nodes of a node pool: this spec with the overrides of the node pool.
func (s Spec) ForNodePool(nodePool v1.NodePoolSpec) Spec {
	if nodePool.Driver != nil {
		s.Driver = driverOf(*s.Driver, *nodePool.Driver)
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
	if nodePool.MIG != nil && nodePool.MIG.Strategy != "" {
		s.MIG = nodePool.MIG
	}
	if nodePool.MIGManager != nil && nodePool.MIGManager.Config != nil && nodePool.MIGManager.Config.Default != nil {
		own := *s.MIGManager
		config := v1.MIGManagerConfigSpec{Name: MIGLayouts}
		if own.Config != nil {
			config = *own.Config
		}
		config.Default = nodePool.MIGManager.Config.Default
		own.Config = &config
		s.MIGManager = &own
	}
	return s
}

func driverOf(driver v1.DriverSpec, nodePool v1.NodePoolDriverSpec) *v1.DriverSpec {
	driver.ImageSpec = imageOf(driver.ImageSpec, nodePool.ImageSpec)
	if nodePool.UsePrecompiled != nil {
		driver.UsePrecompiled = nodePool.UsePrecompiled
	}
	if nodePool.KernelModuleType != "" {
		driver.KernelModuleType = nodePool.KernelModuleType
	}
	if nodePool.KernelModuleConfig != nil && nodePool.KernelModuleConfig.Name != "" {
		driver.KernelModuleConfig = nodePool.KernelModuleConfig
	}
	if nodePool.UpgradePolicy != nil {
		driver.UpgradePolicy = upgradePolicyOf(*driver.UpgradePolicy, *nodePool.UpgradePolicy)
	}
	return &driver
}

func upgradePolicyOf(policy v1.DriverUpgradePolicySpec, nodePool v1.NodePoolUpgradePolicySpec,
) *v1.DriverUpgradePolicySpec {
	override(&policy.AutoUpgrade, nodePool.AutoUpgrade)
	override(&policy.Paused, nodePool.Paused)
	override(&policy.MaxParallelUpgrades, nodePool.MaxParallelUpgrades)
	override(&policy.MaxUnavailable, nodePool.MaxUnavailable)
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
