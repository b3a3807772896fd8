package specgen

import (
	"reflect"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// EnableAll turns on every operand that a field of the spec turns on or off, and returns the names of these blocks.
func EnableAll(spec *v1.ClusterPolicySpec) []string {
	var names []string
	blocks := reflect.ValueOf(spec).Elem()
	for i := range blocks.NumField() {
		field := blocks.Field(i)
		if !isOperandBlock(field.Type()) {
			continue
		}
		if field.IsNil() {
			field.Set(reflect.New(field.Type().Elem()))
		}
		field.Elem().FieldByName("Enabled").Set(reflect.ValueOf(new(true)))
		names = append(names, jsonName(blocks.Type().Field(i)))
	}
	enableHealthAgent(spec)
	return names
}

// enableHealthAgent turns on the only operand whose block is in another one.
func enableHealthAgent(spec *v1.ClusterPolicySpec) {
	if spec.Health == nil {
		spec.Health = &v1.HealthSpec{}
	}
	if spec.Health.Agent == nil {
		spec.Health.Agent = &v1.HealthAgentSpec{}
	}
	spec.Health.Agent.Enabled = new(true)
}

// AllEnabled is a spec that turns on every operand.
func AllEnabled() v1.ClusterPolicySpec {
	spec := v1.ClusterPolicySpec{}
	EnableAll(&spec)
	return spec
}

// isOperandBlock reports whether a field of the spec with this type configures an operand that can be turned off: it
// has a field Enabled and places pods.
func isOperandBlock(block reflect.Type) bool {
	if block.Kind() != reflect.Pointer || block.Elem().Kind() != reflect.Struct {
		return false
	}
	enabled, hasEnabled := block.Elem().FieldByName("Enabled")
	_, places := block.Elem().FieldByName("PlacementSpec")
	return places && hasEnabled && enabled.Type == reflect.TypeFor[*bool]()
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
