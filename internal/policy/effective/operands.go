package effective

import (
	"reflect"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// undecided are the fields of operands' blocks for which another block decides, see doc.go.
var undecided = map[string]bool{
	"NodeStatusExporter.ImageSpec": true,
	"DCGMExporter.ContainerSpec":   true,
}

// operandBlocks fills in what the blocks of all operands have in common. A block is an operand's if it has a
// PlacementSpec. An operand that no table here turns on is off by default.
func operandBlocks(spec *v1.ClusterPolicySpec) {
	blocks := reflect.ValueOf(spec).Elem()
	for i := range blocks.NumField() {
		field, name := blocks.Field(i), blocks.Type().Field(i).Name
		if !isOperandBlock(field.Type()) {
			continue
		}
		if field.IsNil() {
			field.Set(reflect.New(field.Type().Elem()))
		}
		if enabled, is := part[*bool](field, "Enabled"); is {
			option(enabled, false)
		}
		if spec, is := part[v1.ImageSpec](field, "ImageSpec"); is && !undecided[name+".ImageSpec"] {
			image(spec)
		}
		if spec, is := part[v1.ContainerSpec](field, "ContainerSpec"); is && !undecided[name+".ContainerSpec"] {
			container(spec)
		}
	}
}

func isOperandBlock(block reflect.Type) bool {
	if block.Kind() != reflect.Pointer || block.Elem().Kind() != reflect.Struct {
		return false
	}
	placement, has := block.Elem().FieldByName("PlacementSpec")
	return has && placement.Type == reflect.TypeFor[v1.PlacementSpec]()
}

// part returns the field of that name and type in a block.
func part[T any](block reflect.Value, name string) (*T, bool) {
	field := block.Elem().FieldByName(name)
	if !field.IsValid() {
		return nil, false
	}
	typed, is := field.Addr().Interface().(*T)
	return typed, is
}
