package driver

import (
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// references returns the ConfigMaps and Secrets that the driver's pods mount.
func references(in operand.Input) []operand.Use {
	spec := in.Spec.Driver
	uses := []operand.Use{
		operand.ConfigMapUse(in.Field("spec.driver.virtualTopology.config"),
			string(spec.VirtualTopology.Config), "nvidia-topologyd.conf"),
		moduleConfig(in),
		licenceOf(in).Use,
	}
	if in.PoolCriteria().Kernel {
		return uses
	}
	// A precompiled driver builds nothing and needs none of these.
	uses = append(uses,
		operand.ConfigMapUse(in.Field("spec.driver.repoConfig.configMapName"), repoConfig(in)),
		operand.ConfigMapUse(in.Field("spec.driver.certConfig.name"), certConfig(in)),
		operand.SecretUse(in.Field("spec.driver.secretEnv"), string(spec.SecretEnv)))
	if trusted := in.TrustedCA(); trusted.Name != "" {
		uses = append(uses, trusted)
	}
	return uses
}

// moduleConfig is the use of the parameters of kernel modules. The driver container reads a file for each module, and
// none of others that are mounted beside them.
func moduleConfig(in operand.Input) operand.Use {
	use := operand.ConfigMapUse(in.Field("spec.driver.kernelModuleConfig.name"),
		string(in.Spec.Driver.KernelModuleConfig.Name))
	use.MayRead, use.Noted = labels.ModuleFiles(), []string{licenceFile, tokenDirectory}
	return use
}
