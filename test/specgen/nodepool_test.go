package specgen_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// ownDriver is a node pool that has a driver of its own. All its modules are enabled, so that their fields have an
// effect.
const ownDriver = `{nodePools: [{name: own, nodeSelector: {example.com/pool: own}, driver: {
	secretEnv: other, gds: {enabled: true}, gdrcopy: {enabled: true}}}]}`

// poolContexts are the further fields of the node pool's driver that a field needs, by path.
var poolContexts = map[string]string{
	"rdma.useHostMofed":          `{rdma: {enabled: true}}`,
	"licensingConfig.nlsEnabled": `{licensingConfig: {secretName: licence}}`,
	"usePrecompiled":             `{version: "595", gds: {enabled: false}, gdrcopy: {enabled: false}}`,
	"livenessProbe":              `{livenessProbe: {periodSeconds: 30}}`,
	"readinessProbe":             `{readinessProbe: {periodSeconds: 30}}`,
}

// TestEachDriverFieldOfANodePoolChangesItsDriverOnly: a field of nodePools[].driver changes the DaemonSet of the node
// pool, and no other DaemonSet; a value that is refused removes it from the plan. Fields of upgradePolicy change no
// DaemonSet, but the upgrade policy of the node pool.
func TestEachDriverFieldOfANodePoolChangesItsDriverOnly(t *testing.T) {
	checked := 0
	for _, field := range fields(t) {
		if name, isDriver := strings.CutPrefix(field.String(), "nodePools[].driver."); isDriver {
			checked++
			checkDriverField(t, field, name)
		}
	}
	const least = 70
	if checked < least {
		t.Errorf("checked %d fields only", checked)
	}
	t.Logf("checked %d fields", checked)
}

// checkDriverField checks a field by its name below driver.
func checkDriverField(t *testing.T, field specgen.Field, name string) {
	t.Helper()
	base := decoded(t, ownDriver)
	if context, found := within(name, poolContexts); found {
		base = inPool(base, decoded(t, context))
	}
	before, changed := daemonSets(t, base), false
	if len(before.own) == 0 || len(before.others) == 0 {
		t.Fatalf("%v: %d DaemonSets of the node pool, %d others", base, len(before.own), len(before.others))
	}
	ofUpgrades := strings.HasPrefix(name, "upgradePolicy.")
	for _, value := range field.Values() {
		spec := inPool(base, driverOf(field.Spec(value)))
		after := daemonSets(t, spec)
		otherDriver := !maps.Equal(before.own, after.own)
		otherPolicy := !reflect.DeepEqual(upgradePolicy(t, base), upgradePolicy(t, spec))
		wanted, unwanted := otherDriver, otherPolicy
		if ofUpgrades {
			wanted, unwanted = otherPolicy, otherDriver
		}
		if unwanted || !maps.Equal(before.others, after.others) {
			t.Errorf("%s: %v changes more than it should", field, value)
		}
		changed = changed || wanted
	}
	if !changed {
		t.Errorf("%s changes nothing", field)
	}
}

// driverOf returns the driver of the only node pool.
func driverOf(spec map[string]any) map[string]any {
	pools, _ := spec["nodePools"].([]any)
	pool, _ := pools[0].(map[string]any)
	driver, _ := pool["driver"].(map[string]any)
	return driver
}

// inPool merges fields into the driver of the only node pool.
func inPool(spec, driver map[string]any) map[string]any {
	pools, _ := spec["nodePools"].([]any)
	pool, _ := pools[0].(map[string]any)
	return map[string]any{"nodePools": []any{specgen.Merge(pool, map[string]any{"driver": driver})}}
}

func upgradePolicy(t *testing.T, value map[string]any) any {
	t.Helper()
	spec := effective.Of(specOf(t, value))
	return spec.ForNodePool(spec.NodePools[0]).Driver.UpgradePolicy
}

// rendered are DaemonSets as JSON, by name: the driver of the node pool, and all others.
type rendered struct{ own, others map[string]string }

func daemonSets(t *testing.T, value map[string]any) rendered {
	t.Helper()
	computed := planned(t, value)
	found := rendered{map[string]string{}, map[string]string{}}
	for _, step := range computed.Steps {
		if step.Action != plan.Apply {
			continue
		}
		objects, err := render.Step(computed, step, render.Owner{Name: "cluster-policy", UID: "1"}, nil)
		if err != nil {
			t.Fatalf("%v: %v", value, err)
		}
		for _, object := range objects {
			ds, isDaemonSet := object.(*appsv1.DaemonSet)
			if !isDaemonSet {
				continue
			}
			text, err := json.Marshal(ds)
			if err != nil {
				t.Fatal(err)
			}
			if step.Operand.Name == "driver" && ds.Labels[labels.NodePool] == "own" {
				found.own[ds.Name] = string(text)
			} else {
				found.others[ds.Name] = string(text)
			}
		}
	}
	return found
}
