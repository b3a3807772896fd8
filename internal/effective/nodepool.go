package effective

import (
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// ForPool is the spec for the nodes of a node pool: this spec with the overrides of the node pool.
func (s Spec) ForPool(pool v1.NodePoolSpec) Spec {
	if pool.Driver != nil {
		s.Driver = driverOf(*s.Driver, *pool.Driver)
	}
	if pool.Toolkit != nil {
		own := *s.Toolkit
		own.ImageSpec = imageOf(own.ImageSpec, pool.Toolkit.ImageSpec)
		s.Toolkit = &own
	}
	if pool.DevicePlugin != nil && pool.DevicePlugin.Config != nil {
		own := *s.DevicePlugin
		own.Config = pluginConfigOf(*own.Config, *pool.DevicePlugin.Config)
		s.DevicePlugin = &own
	}
	if pool.MIG != nil && pool.MIG.Strategy != "" {
		s.MIG = pool.MIG
	}
	if pool.MIGManager != nil && pool.MIGManager.Config != nil && pool.MIGManager.Config.Default != nil {
		own := *s.MIGManager
		config := v1.MIGManagerConfigSpec{Name: MIGLayouts}
		if own.Config != nil {
			config = *own.Config
		}
		config.Default = pool.MIGManager.Config.Default
		own.Config = &config
		s.MIGManager = &own
	}
	return s
}

func driverOf(driver v1.DriverSpec, pool v1.NodePoolDriverSpec) *v1.DriverSpec {
	driver.ImageSpec = imageOf(driver.ImageSpec, pool.ImageSpec)
	if pool.UsePrecompiled != nil {
		driver.UsePrecompiled = pool.UsePrecompiled
	}
	if pool.KernelModuleType != "" {
		driver.KernelModuleType = pool.KernelModuleType
	}
	if pool.KernelModuleConfig != nil && pool.KernelModuleConfig.Name != "" {
		driver.KernelModuleConfig = pool.KernelModuleConfig
	}
	return &driver
}

// imageOf is the image with the overrides of a node pool. A full reference replaces repository and version too.
func imageOf(image, pool v1.ImageSpec) v1.ImageSpec {
	if strings.ContainsAny(pool.Image, "/:@") {
		image.Repository, image.Version = "", ""
	}
	override(&image.Repository, pool.Repository)
	override(&image.Image, pool.Image)
	override(&image.Version, pool.Version)
	override(&image.ImagePullPolicy, pool.ImagePullPolicy)
	if len(pool.ImagePullSecrets) > 0 {
		image.ImagePullSecrets = pool.ImagePullSecrets
	}
	return image
}

// pluginConfigOf drops the default of the spec with its ConfigMap: another ConfigMap has other keys.
func pluginConfigOf(config v1.DevicePluginConfigSpec, pool v1.NodePoolPluginConfigSpec) *v1.DevicePluginConfigSpec {
	if pool.Name != "" {
		return &v1.DevicePluginConfigSpec{Name: pool.Name, Default: pool.Default}
	}
	override(&config.Default, pool.Default)
	return &config
}

// override sets the field to the node pool's value, unless that is empty.
func override[T comparable](field *T, pool T) {
	if pool != *new(T) {
		*field = pool
	}
}
