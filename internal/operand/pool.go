package operand

import (
	"reflect"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
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

// Field returns the path of a field of the driver or its modules, such as spec.driver.env: as given, or that of the
// node pool if it overrides the field, or that of the NVIDIADriver object.
func (in Input) Field(path string) string {
	if in.OfNVIDIADriver {
		return objectField(path)
	}
	if in.NodePool == nil || in.NodePool.Driver == nil {
		return path
	}
	own := strings.TrimPrefix(strings.TrimPrefix(path, "spec."), "driver.")
	if !isSetAt(reflect.ValueOf(*in.NodePool.Driver), strings.Split(own, ".")) {
		return path
	}
	return "spec.nodePools[].driver." + own
}

// ImageField is Field of a block whose repository, image and version name an image.
func (in Input) ImageField(block string) string {
	if in.OfNVIDIADriver {
		return objectField(block)
	}
	for _, key := range []string{".repository", ".image", ".version"} {
		if field := in.Field(block + key); field != block+key {
			return strings.TrimSuffix(field, key)
		}
	}
	return block
}

// objectFields are the fields of a policy that have another name in NVIDIADriver objects.
var objectFields = map[string]string{
	"spec.driver.repoConfig.configMapName":      "spec.repoConfig.name",
	"spec.driver.licensingConfig.configMapName": "spec.licensingConfig.name",
	"spec.driver.virtualTopology.config":        "spec.virtualTopologyConfig.name",
}

// objectField returns the path in an NVIDIADriver object of a field of the driver or its modules.
func objectField(path string) string {
	if renamed := objectFields[path]; renamed != "" {
		return renamed
	}
	if own, isOfDriver := strings.CutPrefix(path, "spec.driver"); isOfDriver {
		return "spec" + own
	}
	return path
}

// isSetAt reports whether the field at a path of JSON names is set.
func isSetAt(value reflect.Value, path []string) bool {
	found := fieldAt(value, path)
	return found.IsValid() && isSet(found)
}

// fieldAt returns the field at a path of JSON names; an invalid value if there is none, or a block above it is nil.
func fieldAt(value reflect.Value, path []string) reflect.Value {
	if len(path) == 0 {
		return value
	}
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for _, field := range reflect.VisibleFields(value.Type()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == path[0] {
			return fieldAt(value.FieldByIndex(field.Index), path[1:])
		}
	}
	return reflect.Value{}
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
