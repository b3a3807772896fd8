package nvidiadriver_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// driverOf returns the object with the name a.
func driverOf(t *testing.T, spec map[string]any) v1alpha1.NVIDIADriver {
	t.Helper()
	driver := v1alpha1.NVIDIADriver{}
	driver.Name = "a"
	text, err := json.Marshal(spec)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &driver.Spec)
	}
	if err != nil {
		t.Fatalf("%v: %v", spec, err)
	}
	return driver
}

func driverFields(t *testing.T) []specgen.Field {
	t.Helper()
	fields, err := specgen.DriverFields()
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// withoutEffect are the fields that a node pool does not have, and why.
var withoutEffect = map[string]string{
	"default":              "the order of the node pools expresses it",
	"driverType":           "gpu and vgpu differ in their images only",
	"nodeAffinity":         "a problem reports it",
	"useOpenKernelModules": "a problem reports it",
}

// namesInPool replaces the names of fields that a node pool calls otherwise.
var namesInPool = strings.NewReplacer(`"repoConfig":{"name"`, `"repoConfig":{"configMapName"`,
	`"virtualTopologyConfig":{"name"`, `"virtualTopology":{"config"`,
	`"licensingConfig":{"name"`, `"licensingConfig":{"configMapName"`)

// The values of each field of an object are in its node pool, or the field is listed.
func TestEveryFieldIsInTheNodePool(t *testing.T) {
	covered := 0
	for _, field := range driverFields(t) {
		is := true
		for _, value := range field.Values() {
			driver := driverOf(t, field.Spec(value))
			pool, _ := nvidiadriver.Pool(driver)
			got := fieldsOf(t, pool.Driver)
			got["nodeSelector"] = fieldsOf(t, pool.NodeSelector)
			is = is && contains(got, fieldsOf(t, driver.Spec))
		}
		if _, listed := withoutEffect[field.String()]; is == listed {
			t.Errorf("%s is in the node pool: %v, and listed: %v", field, is, listed)
		}
		covered++
	}
	const least = 80
	if covered < least {
		t.Errorf("%d fields only", covered)
	}
}

// fieldsOf returns the fields of a part of an object, by their names in a node pool.
func fieldsOf(t *testing.T, part any) map[string]any {
	t.Helper()
	text, err := json.Marshal(part)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal([]byte(namesInPool.Replace(string(text))), &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// contains reports whether a value has the fields of another, and at its end the elements of its lists.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := got.(map[string]any)
		for name, value := range want {
			if !contains(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		list, _ := got.([]any)
		return len(list) >= len(want) && reflect.DeepEqual(list[len(list)-len(want):], want)
	}
	return reflect.DeepEqual(got, want)
}

// An object that is converted into a node pool and back describes the same driver.
func TestRoundTrip(t *testing.T) {
	fields := driverFields(t)
	for seed := range uint64(300) {
		random := specgen.Random(rand.New(rand.NewPCG(seed, 1)), fields)
		delete(random, "driverType")
		dropThresholds(random)
		original := driverOf(t, random)
		pool, _ := nvidiadriver.Pool(original)
		policy := v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{pool}}
		back := nvidiadriver.Drivers(policy)
		again, problems := nvidiadriver.Pool(back[0])
		if len(problems) > 0 || again.Name != pool.Name {
			t.Errorf("seed %d: %v %s", seed, problems, again.Name)
		}
		if diff := cmp.Diff(pool.NodeSelector, again.NodeSelector); diff != "" {
			t.Errorf("seed %d: the nodes differ: -want +got:\n%s", seed, diff)
		}
		if diff := cmp.Diff(pool.Driver.PodSecurityContext, again.Driver.PodSecurityContext); diff != "" {
			t.Errorf("seed %d: the security contexts differ: -want +got:\n%s", seed, diff)
		}
		base := effective.Of(v1.ClusterPolicySpec{})
		if diff := cmp.Diff(base.ForNodePool(pool), base.ForNodePool(again)); diff != "" {
			t.Errorf("seed %d: the drivers differ: -want +got:\n%s", seed, diff)
		}
	}
}

// An object without fields becomes an object without fields.
func TestDefaultsAreNotWritten(t *testing.T) {
	pool, _ := nvidiadriver.Pool(driverOf(t, nil))
	got := nvidiadriver.Drivers(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{pool}})
	want := driverOf(t, map[string]any{"default": true})
	want.SetGroupVersionKind(v1alpha1.NVIDIADriverKind)
	if diff := cmp.Diff([]v1alpha1.NVIDIADriver{want}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDriversOfAPolicy(t *testing.T) {
	policy := func(text string) (spec v1.ClusterPolicySpec) {
		if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		return spec
	}
	tests := map[string]struct{ policy, want string }{
		"no driver": {"driver: {enabled: false}", ""},
		"spec.driver, which has no automatic upgrades by default": {
			"driver: {version: '595', usePrecompiled: true}",
			"cluster.default: {default: true, usePrecompiled: true, version: '595', upgradePolicy: {autoUpgrade: false}}",
		},
		"the placement of all DaemonSets": {
			`{driver: {upgradePolicy: {autoUpgrade: true, drain: {enable: true}}, labels: {a: b, c: own}},
			daemonsets: {labels: {c: d, e: f}, tolerations: [{key: x, operator: Exists}], nodeSelector: {team: a},
			podSecurityContext: {runAsUser: 1}}}`,
			`cluster.default: {nodeSelector: {team: a}, labels: {a: b, c: own, e: f}, podSecurityContext: {runAsUser: 1},
			tolerations: [{key: x, operator: Exists}], upgradePolicy: {drain: {enable: true}}}`,
		},
		"node pools": {
			`{driver: {upgradePolicy: {autoUpgrade: true}, version: "1"}, gds: {enabled: true}, nodePools: [
			{name: a, nodeSelector: {team: a}, driver: {version: "2", gds: {enabled: false}}},
			{name: b, nodeSelector: {team: b}}, {name: c, nodeSelector: {team: c}, driver: {kernelModuleType: open}}]}`,
			`a: {nodeSelector: {team: a}, version: "2"}
c: {nodeSelector: {team: c}, version: "1", kernelModuleType: open, gds: yes}
cluster.default: {default: true, version: "1", gds: yes}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]any{}
			for _, driver := range nvidiadriver.Drivers(policy(test.policy)) {
				got[driver.Name] = summary(t, driver)
			}
			want := map[string]any{}
			if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// summary returns the fields of an object, with the value of enabled for GDS.
func summary(t *testing.T, driver v1alpha1.NVIDIADriver) map[string]any {
	t.Helper()
	fields := fieldsOf(t, driver.Spec)
	if driver.Spec.GDS != nil {
		fields["gds"] = *driver.Spec.GDS.Enabled
	}
	return fields
}

// Any name of an object becomes a valid name of a node pool, and different names stay different.
func TestPoolNames(t *testing.T) {
	long := strings.Repeat("a", 300)
	seen := map[string]string{}
	for object, want := range map[string]string{
		"default": "default", "a": "a", "h100-2": "h100-2", long[:40]: long[:40],
		long[:41]: "*", long[:42]: "*", long[:253]: "*", "a.b": "*", "a-b": "a-b", "a..b": "*", "1": "*", "1a": "*",
		"4.5": "*", "driver-1": "driver-1", "9" + long[:100]: "*", strings.Repeat("a.", 100) + "a": "*",
	} {
		got := nvidiadriver.PoolName(object)
		if want != "*" && got != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
		if len(got) > 40 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			strings.Trim(got, "-") != got || got[0] < 'a' || got[0] > 'z' {
			t.Errorf("%s: %s is not the name of a node pool", object, got)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%s and %s both become %s", object, other, got)
		}
		seen[got] = object
	}
}

// An object with what no pod can have is refused alone, with the path of the field.
func TestObjectsThatNoPodCanFollow(t *testing.T) {
	for path, spec := range map[string]map[string]any{
		"spec.tolerations[0].operator":    {"tolerations": []any{map[string]any{"key": "a", "operator": "In"}}},
		"spec.podSecurityContext.fsGroup": {"podSecurityContext": map[string]any{"fsGroup": int64(-1)}},
		"spec.resources.requests[example.com/a]": {
			"resources": map[string]any{"requests": map[string]any{"example.com/a": "1"}},
		},
		"spec.priorityClassName": {"priorityClassName": "a..b"},
	} {
		_, problems := nvidiadriver.Pool(driverOf(t, spec))
		if len(problems) != 1 || problems[0].Field != path || !problems[0].Refused ||
			problems[0].Message == "" {
			t.Errorf("%s: %+v", path, problems)
		}
	}
}

// Fields that have no effect are noted, and not those because of which the object is refused.
func TestNotes(t *testing.T) {
	got := nvidiadriver.Notes(driverOf(t, map[string]any{
		"nodeAffinity": map[string]any{}, "useOpenKernelModules": true, "priorityClassName": "a..b",
	}))
	want := []string{
		"spec.nodeAffinity has no effect, as in NVIDIA's operator: use nodeSelector",
		"spec.useOpenKernelModules is deprecated and has no effect: use kernelModuleType",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
