package operand

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// PoolCriteria returns what nodes of one driver pool have in common, by this spec.
func (in Input) PoolCriteria() nodeinfo.PoolCriteria {
	precompiled := *in.Spec.Driver.UsePrecompiled
	criteria := nodeinfo.PoolCriteria{Kernel: precompiled, CoreOS: *in.Spec.Operator.UseOCPDriverToolkit && !precompiled}
	if in.NodePool != nil && VariesDriver(*in.NodePool) {
		criteria.NodePool = in.NodePool.Name
	}
	return criteria
}

// VariesDriver reports whether a node pool overrides the driver of its nodes.
func VariesDriver(nodePool v1.NodePoolSpec) bool {
	driver := nodePool.Driver
	return driver != nil && (image.IsSet(driver.ImageSpec) || driver.UsePrecompiled != nil ||
		driver.KernelModuleType != "" ||
		driver.KernelModuleConfig != nil && driver.KernelModuleConfig.Name != "")
}
