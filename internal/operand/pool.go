package operand

import (
	"reflect"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
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

// VariesDriver reports whether a node pool overrides the driver of its nodes. Another upgradePolicy alone does not: it
// needs no DaemonSet of its own.
func VariesDriver(nodePool v1.NodePoolSpec) bool {
	if nodePool.Driver == nil {
		return false
	}
	driver := *nodePool.Driver
	driver.UpgradePolicy = nil
	return isSet(reflect.ValueOf(driver))
}

// isSet reports whether a block of the spec has a field that is set. An empty block, list or text is not.
func isSet(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Pointer:
		return !value.IsNil() && (value.Elem().Kind() != reflect.Struct || isSet(value.Elem()))
	case reflect.Slice, reflect.Map:
		return value.Len() > 0
	case reflect.Struct:
		for _, field := range value.Fields() {
			if isSet(field) {
				return true
			}
		}
		return false
	default:
		return !value.IsZero()
	}
}
