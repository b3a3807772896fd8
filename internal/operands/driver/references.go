package driver

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// references returns the ConfigMaps and Secrets that the driver's pods mount.
func references(in operand.Input) []operand.Use {
	spec := in.Spec.Driver
	uses := []operand.Use{
		operand.ConfigMapUse(in.Field("spec.driver.virtualTopology.config"),
			string(spec.VirtualTopology.Config), "nvidia-topologyd.conf"),
		operand.ConfigMapUse(in.Field("spec.driver.kernelModuleConfig.name"), string(spec.KernelModuleConfig.Name)),
		licenceOf(in).Use,
	}
	if in.PoolCriteria().Kernel {
		return uses
	}
	// A precompiled driver builds nothing and needs none of these.
	return append(uses,
		operand.ConfigMapUse(in.Field("spec.driver.repoConfig.configMapName"), repoConfig(in)),
		operand.ConfigMapUse(in.Field("spec.driver.certConfig.name"), certConfig(in)),
		operand.SecretUse(in.Field("spec.driver.secretEnv"), string(spec.SecretEnv)))
}
