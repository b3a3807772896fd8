package operands_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/golden"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// What each operand is, and what it makes of a policy that enables all of them, each with a version and resources.
func TestOperandsOfAWholePolicy(t *testing.T) {
	g := NewWithT(t)
	in := operand.Input{
		Spec: effective.Of(withVersions(specgen.AllEnabled())), Namespace: "gpu-operator",
		OperatorImage: "example.com/gpu-operator:v1",
		Layouts: nodeinfo.Layouts([]nodeinfo.Facts{
			{HasGPU: true, Runtime: nodeinfo.RuntimeContainerd}, {HasGPU: true, Runtime: nodeinfo.RuntimeCRIO},
		}),
	}
	pools := []nodeinfo.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}}
	described := map[string]any{}
	for i, o := range catalogue(t) {
		made, err := o.Instances(in, pools)
		g.Expect(err).NotTo(HaveOccurred())
		of := map[string]any{
			"0 order": i, "1 operand": withoutFunctions(o), "2 decision": o.Decide(in), "3 instances": made,
		}
		if o.References != nil {
			of["4 references"] = o.References(in)
		}
		if o.HostRuntime != nil {
			of["5 host runtime"] = o.HostRuntime(in)
		}
		described[string(o.Name)] = pruned(t, of)
	}
	text, err := yaml.Marshal(described)
	g.Expect(err).NotTo(HaveOccurred())
	golden.Compare(t, filepath.Join("testdata", "wholepolicy.golden.yaml"), string(text))
}

// withVersions returns the spec with a version, a pull secret and resources in each block that has these fields.
func withVersions(spec v1.ClusterPolicySpec) v1.ClusterPolicySpec {
	resources := &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
	for _, block := range reflect.ValueOf(&spec).Elem().Fields() {
		if block.Kind() != reflect.Pointer || block.IsNil() || block.Elem().Kind() != reflect.Struct {
			continue
		}
		if version := block.Elem().FieldByName("Version"); version.IsValid() && version.Kind() == reflect.String {
			version.SetString("v9.9.9")
			block.Elem().FieldByName("ImagePullSecrets").Set(reflect.ValueOf([]string{"registry"}))
		}
		if field := block.Elem().FieldByName("Resources"); field.IsValid() && field.Type() == reflect.TypeOf(resources) {
			field.Set(reflect.ValueOf(resources))
		}
	}
	spec.Health.Agent.Resources = resources
	return spec
}

// withoutFunctions returns the fields of a struct but its functions.
func withoutFunctions(of any) map[string]any {
	fields := map[string]any{}
	for kind, value := range reflect.ValueOf(of).Fields() {
		if value.Kind() != reflect.Func {
			fields[kind.Name] = value.Interface()
		}
	}
	return fields
}

// pruned returns the value as JSON has it, without what is empty.
func pruned(t *testing.T, of any) any {
	t.Helper()
	text, err := json.Marshal(of)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var decoded any
	NewWithT(t).Expect(json.Unmarshal(text, &decoded)).To(Succeed())
	return prune(decoded)
}

func prune(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		for key, inner := range typed {
			typed[key] = prune(inner)
		}
		maps.DeleteFunc(typed, func(_ string, inner any) bool { return inner == nil })
		if len(typed) == 0 {
			return nil
		}
	case []any:
		for i := range typed {
			typed[i] = prune(typed[i])
		}
		if len(typed) == 0 {
			return nil
		}
	case string:
		if typed == "" {
			return nil
		}
	case bool:
		if !typed {
			return nil
		}
	}
	return value
}
