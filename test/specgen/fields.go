package specgen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// element is the path segment for the elements of a list.
const element = "[]"

// nodePools is the list whose elements each select nodes.
const nodePools = "nodePools"

// PoolLabels are those of the nodes that the pools of generated specs select.
var PoolLabels = map[string]any{"example.com/pool": "own"}

// Field is a leaf of the spec.
type Field struct {
	// Path has the names below the spec; "[]" is an element of a list.
	Path   []string
	Schema *apiextensionsv1.JSONSchemaProps
}

// String returns the dotted path: driver.env[].name.
func (f Field) String() string {
	return strings.ReplaceAll(strings.Join(f.Path, "."), "."+element, element)
}

// Name returns the last name in the path.
func (f Field) Name() string { return f.Path[len(f.Path)-1] }

// Fields returns all fields of the spec of ClusterPolicy, sorted by path.
func Fields() ([]Field, error) { return fieldsOf(crd.ClusterPolicy) }

// DriverFields returns all fields of the spec of NVIDIADriver, sorted by path.
func DriverFields() ([]Field, error) { return fieldsOf(crd.NVIDIADriver) }

func fieldsOf(text []byte) ([]Field, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := walk(nil, &spec)
	slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.String(), b.String()) })
	return fields, nil
}

// whole are the fields whose types Kubernetes defines; they are leaves.
var whole = []string{"tolerations", "podSecurityContext", "nodeAffinity", "taints"}

func walk(path []string, schema *apiextensionsv1.JSONSchemaProps) []Field {
	if len(path) > 0 && slices.Contains(whole, path[len(path)-1]) {
		return []Field{{path, schema}}
	}
	if schema.Items != nil && len(schema.Items.Schema.Properties) > 0 {
		return walk(append(slices.Clone(path), element), schema.Items.Schema)
	}
	if len(schema.Properties) == 0 {
		return []Field{{path, schema}}
	}
	var fields []Field
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		fields = append(fields, walk(append(slices.Clone(path), name), &property)...)
	}
	return fields
}

// Spec returns a spec with only this field. An element of a list also gets its name if that is the key.
func (f Field) Spec(value any) map[string]any {
	for i := len(f.Path) - 1; i >= 0; i-- {
		if f.Path[i] == element {
			value = []any{value}
			continue
		}
		parent := map[string]any{f.Path[i]: value}
		if i > 0 && f.Path[i-1] == element && f.Path[i] != "name" && hasNames(f.Path[:i-1]) {
			parent["name"] = elementName(f.Path[:i-1])
		}
		if i > 1 && f.Path[i-2] == nodePools && f.Path[i] != "nodeSelector" {
			parent["nodeSelector"] = PoolLabels
		}
		value = parent
	}
	spec, _ := value.(map[string]any)
	return spec
}

// hasNames reports whether the name is the key of the list's elements.
func hasNames(list []string) bool { return list[len(list)-1] != "relabelings" }

// elementName returns the name of the only element of a list.
func elementName(list []string) string {
	switch list[len(list)-1] {
	case "containerResources":
		return containerOf[list[0]]
	case nodePools:
		return "own"
	}
	return "NAME"
}

// containerOf are the main containers of the operands, by the blocks of the spec.
var containerOf = map[string]string{
	"driver": "nvidia-driver-ctr", "toolkit": "nvidia-container-toolkit-ctr", "devicePlugin": "nvidia-device-plugin",
	"gfd": "gpu-feature-discovery", "dcgm": "nvidia-dcgm-ctr", "dcgmExporter": "nvidia-dcgm-exporter",
	"migManager": "nvidia-mig-manager", "nodeStatusExporter": "nvidia-node-status-exporter",
	"validator": "nvidia-operator-validator", "nodeDiscovery": "node-discovery",
	"health": "nvidia-gpu-health",
}

// Merge merges b into a copy of a, block by block. Lists of b replace those of a.
func Merge(a, b map[string]any) map[string]any {
	merged := maps.Clone(a)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range b {
		inner, isMap := value.(map[string]any)
		have, hadMap := merged[key].(map[string]any)
		if isMap && hadMap {
			merged[key] = Merge(have, inner)
			continue
		}
		merged[key] = value
	}
	return merged
}
