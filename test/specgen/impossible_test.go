package specgen_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// impossible are values in JSON that Kubernetes refuses in pods, or whose pods cannot start, by the end of the paths of
// the fields that can have them.
var impossible = map[string][]string{
	"tolerations": {
		`[{"key":"a","operator":"Exists","value":"present"}]`, `[{"effect":"NoSchedule","tolerationSeconds":60}]`,
		`[{"key":"a","effect":"NoSchedule","tolerationSeconds":60}]`, `[{"value":"b"}]`, `[{"key":"a..b/c"}]`,
		`[{"key":"a","value":"b c"}]`, `[{"key":"a","operator":"In"}]`, `[{"key":"a","effect":"Never"}]`,
		`[{"key":"a","operator":"Lt","value":"01"}]`,
	},
	"podSecurityContext": {
		`{"runAsUser":-1}`, `{"fsGroup":4294967296}`, `{"runAsGroup":-1}`, `{"supplementalGroups":[-1]}`,
		`{"seccompProfile":{"type":"Localhost"}}`, `{"seccompProfile":{"type":"Localhost","localhostProfile":"/a"}}`,
		`{"seccompProfile":{"type":"RuntimeDefault","localhostProfile":"a"}}`, `{"seccompProfile":{"type":"Default"}}`,
		`{"appArmorProfile":{"type":"Localhost"}}`, `{"appArmorProfile":{"type":"Unconfined","localhostProfile":"a"}}`,
		`{"fsGroupChangePolicy":"Never"}`, `{"supplementalGroupsPolicy":"Never"}`, `{"seLinuxChangePolicy":"Never"}`,
		`{"sysctls":[{"name":"a b","value":"1"}]}`, `{"sysctls":[{"name":"a","value":"1"},{"name":"a","value":"2"}]}`,
		`{"runAsNonRoot":true,"runAsUser":0}`, `{"windowsOptions":{"hostProcess":true}}`,
	},
	"limits": {
		`{"cpu":"-1"}`, `{"gpus":"1"}`, `{"pods":"1"}`, `{"example.com/nic":"500m"}`, `{"hugepages-2Mi":"2Mi"}`,
		`{"hugepages-2Mi":"3Mi","cpu":"1"}`, `{"a b":"1"}`,
	},
	"requests": {
		`{"example.com/nic":"1"}`, `{"hugepages-2Mi":"2Mi","cpu":"1"}`, `{"memory":"-1Gi"}`, `{"gpus":"1"}`,
	},
	"labels":                           {`{"a..b/c":"d"}`, `{"-a":"b"}`, `{"a":"b c"}`, `{"a/b/c":"d"}`},
	"annotations":                      {`{"a..b/c":"d"}`, `{"a b":"c"}`, `{"kubernetes.io/config.mirror":"a"}`},
	"nodeSelector":                     {`{"a..b/c":"d"}`, `{"a":"b c"}`},
	"priorityClassName":                {`"a..b"`, `"A"`},
	"secretEnv":                        {`"a..b"`, `"a/b"`},
	"env[].name":                       {`""`, `"A=B"`},
	"startupProbe.successThreshold":    {`2`, `-1`},
	"livenessProbe.successThreshold":   {`2`, `-1`},
	"startupProbe.timeoutSeconds":      {`-1`},
	"livenessProbe.periodSeconds":      {`-1`},
	"readinessProbe.failureThreshold":  {`-1`},
	"readinessProbe.successThreshold":  {`-1`},
	"startupProbe.initialDelaySeconds": {`-1`},
	"caBundle.key":                     {`".."`, `"a/b"`, `"."`},
	"rollingUpdate.maxUnavailable":     {`0`, `"0%"`, `"101%"`, `-1`},
	"runtimeClass":                     {`"a.b"`, `"A"`},
	"taints":                           {`[{"key":"a..b/c","effect":"NoSchedule"}]`, `[{"key":"a","effect":"Never"}]`},
}

// What no pod can have is refused at admission, or by kubectl gpu validate with its path. If an operand has it, the
// operator refuses that operand with the path in its message, before the API server refuses its DaemonSet.
func TestImpossiblePartsOfPodsAreRefused(t *testing.T) {
	fields, err := specgen.Fields()
	if err != nil {
		t.Fatal(err)
	}
	checker, err := schemacheck.New(crd.ClusterPolicy, v1.GroupVersion.Version)
	if err != nil {
		t.Fatal(err)
	}
	counts, ends := map[string]int{}, map[string]bool{}
	for _, field := range fields {
		for end, values := range impossible {
			if field.String() != end && !strings.HasSuffix(field.String(), "."+end) {
				continue
			}
			ends[end] = true
			for _, value := range values {
				spec := field.Spec(jsonValue(t, value))
				counts[verdictOf(t, checker, field, spec)]++
			}
		}
	}
	t.Logf("impossible values in fields: %v", counts)
	if len(ends) != len(impossible) || counts["refused by the operator"] < 200 {
		t.Errorf("the walk reaches %d of %d kinds of fields, and %v", len(ends), len(impossible), counts)
	}
}

// verdictOf returns what becomes of a spec with an impossible value in a field, and fails the test for one that is
// found by nothing.
func verdictOf(t *testing.T, checker *schemacheck.Checker, field specgen.Field, spec map[string]any) string {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName("cluster-policy")
	if len(checker.Check(t.Context(), object).Refused) > 0 {
		return "refused at admission"
	}
	of := strings.ReplaceAll(field.String(), "[]", "[0]")
	found := podrules.Check(specOf(t, spec), "spec")
	if len(found) == 0 || !strings.HasPrefix("spec."+of+"[0]", found[0].Field) {
		t.Errorf("%v is admitted, and validate finds %v", spec, found)
		return "not found"
	}
	if field.Path[0] == "kataManager" || strings.HasSuffix(of, "odeSelector") {
		return "refused by validate" // No pod has it.
	}
	computed := planned(t, specgen.Merge(everything(t), spec))
	for _, step := range computed.Steps {
		if step.Reason == v1.ReasonInvalidSpec && strings.Contains(step.Message, found[0].Below+": "+found[0].Message) {
			return "refused by the operator"
		}
	}
	for _, pool := range computed.NodePools {
		if strings.Contains(pool.Decision.Message, found[0].Message) {
			return "refused by the operator"
		}
	}
	if !isInstalled(field.Path[0]) {
		return "refused by validate"
	}
	t.Errorf("%v is not refused by the operator: %v", spec, found)
	return "not found"
}

// everything is a spec that installs every operand.
func everything(t *testing.T) map[string]any {
	t.Helper()
	text, err := json.Marshal(specgen.AllEnabled())
	if err != nil {
		t.Fatal(err)
	}
	spec, isMap := jsonValue(t, string(text)).(map[string]any)
	if !isMap {
		t.Fatalf("a spec is %s", text)
	}
	return spec
}

// isInstalled reports whether the operator installs pods for a block of the spec.
func isInstalled(block string) bool {
	switch block {
	case "operator", "sandboxDevicePlugin", "vgpuManager", "vgpuDeviceManager", "vfioManager", "ccManager", "kataManager",
		"kataSandboxDevicePlugin", "gds", "gdrcopy":
		return false
	}
	return true
}

func jsonValue(t *testing.T, text string) any {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"A","value":%s}`, text)); err != nil {
		t.Fatal(err)
	}
	return object.Object["value"]
}
