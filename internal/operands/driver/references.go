package driver

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// references returns the ConfigMaps and Secrets that the driver's pods mount.
func references(in operand.Input) []operand.Use {
	spec := in.Spec.Driver
	licensing := spec.LicensingConfig
	keys := []string{"gridd.conf"}
	if *licensing.NLSEnabled {
		keys = append(keys, "client_configuration_token.tok")
	}
	uses := []operand.Use{
		operand.ConfigMapUse("spec.driver.virtualTopology.config",
			string(spec.VirtualTopology.Config), "nvidia-topologyd.conf"),
		operand.ConfigMapUse("spec.driver.kernelModuleConfig.name", string(spec.KernelModuleConfig.Name)),
	}
	if licensing.SecretName != "" {
		uses = append(uses,
			operand.SecretUse("spec.driver.licensingConfig.secretName", string(licensing.SecretName), keys...))
	} else {
		uses = append(uses,
			operand.ConfigMapUse("spec.driver.licensingConfig.configMapName", string(licensing.ConfigMapName), keys...))
	}
	if in.PoolCriteria().Kernel {
		return uses
	}
	// A precompiled driver builds nothing and needs none of these.
	return append(uses,
		operand.ConfigMapUse("spec.driver.repoConfig.configMapName", repoConfig(in)),
		operand.ConfigMapUse("spec.driver.certConfig.name", certConfig(in)),
		operand.SecretUse("spec.driver.secretEnv", string(spec.SecretEnv)))
}
