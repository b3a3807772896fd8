package nvidiadriver_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// policyOf returns the policy p with a spec in YAML.
func policyOf(t *testing.T, spec string) *v1.ClusterPolicy {
	t.Helper()
	policy := &v1.ClusterPolicy{}
	policy.Name = "p"
	if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	return policy
}

// objectsOf returns objects by their names, with their specs in YAML.
func objectsOf(t *testing.T, text string) []v1alpha1.NVIDIADriver {
	t.Helper()
	specs := map[string]v1alpha1.NVIDIADriverSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), &specs); err != nil {
		t.Fatal(err)
	}
	var objects []v1alpha1.NVIDIADriver
	for name, spec := range specs {
		object := v1alpha1.NVIDIADriver{Spec: spec}
		object.Name = name
		objects = append(objects, object)
	}
	return objects
}

// expectYAML compares a value with YAML.
func expectYAML(t *testing.T, got any, want string) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var left, right any
	if err := yaml.Unmarshal(text, &left); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &right); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(right, left); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const gpuToleration = "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]"

func TestToNodePools(t *testing.T) {
	const auto = "upgradePolicy: {autoUpgrade: true}"
	for name, test := range map[string]struct{ policy, objects, want string }{
		"an object with another driver, and one with that of the spec": {
			"{driver: {useNvidiaDriverCRD: true}, toolkit: {version: v1}}",
			`{b: {version: "2", nodeSelector: {team: b}}, a: {nodeSelector: {team: a}}}`,
			`{driver: {}, toolkit: {version: v1}, nodePools: [
			{name: a, nodeSelector: {team: a}, driver: {` + auto + `}},
			{name: b, nodeSelector: {team: b}, driver: {version: "2", ` + auto + `, ` + gpuToleration + `}}]}`,
		},
		"the default comes last": {
			"{driver: {useNvidiaDriverCRD: true, enabled: true, nodeSelector: {ignored: x}}}",
			`{all: {default: true, version: "2"}, z: {version: "1", nodeSelector: {team: b}}}`,
			`{driver: {enabled: true}, nodePools: [
			{name: z, nodeSelector: {team: b}, driver: {version: "1", ` + auto + `, ` + gpuToleration + `}},
			{name: all, nodeSelector: {nvidia.com/gpu.present: "true"},
			driver: {version: "2", ` + auto + `, ` + gpuToleration + `}}]}`,
		},
		"the default has the driver and the upgrades of the spec": {
			"{driver: {useNvidiaDriverCRD: true, version: '9', upgradePolicy: {autoUpgrade: true}}}",
			`{all: {default: true, version: "9"}}`,
			"{driver: {version: '9', upgradePolicy: {autoUpgrade: true}}}",
		},
		"an object with the driver and the upgrades of the spec": {
			"{driver: {useNvidiaDriverCRD: true, upgradePolicy: {autoUpgrade: true}}}",
			"{all: {default: true}, a: {nodeSelector: {team: a}}}",
			"{driver: {upgradePolicy: {autoUpgrade: true}}, nodePools: [{name: a, nodeSelector: {team: a}}]}",
		},
		"a driver of the spec that no object has": {
			"{driver: {useNvidiaDriverCRD: true, enabled: true, version: '9', secretEnv: s}, gds: {enabled: true}}",
			`{all: {default: true, kernelModuleType: open}}`,
			`{driver: {enabled: true}, nodePools: [{name: all, nodeSelector: {nvidia.com/gpu.present: "true"},
			driver: {kernelModuleType: open, ` + auto + `, ` + gpuToleration + `}}]}`,
		},
		"node pools of the policy": {
			`{driver: {useNvidiaDriverCRD: true}, nodePools: [{name: t, nodeSelector: {team: b}, toolkit: {version: v1}},
			{name: u, nodeSelector: {team: u}, toolkit: {version: v2}}]}`,
			`{b: {version: "2", nodeSelector: {team: b}}, all: {version: "3", default: true}}`,
			`{driver: {}, nodePools: [
			{name: t, nodeSelector: {team: b}, toolkit: {version: v1},
			driver: {version: "2", ` + auto + `, ` + gpuToleration + `}},
			{name: u, nodeSelector: {team: u}, toolkit: {version: v2},
			driver: {version: "3", ` + auto + `, ` + gpuToleration + `}},
			{name: all, nodeSelector: {nvidia.com/gpu.present: "true"},
			driver: {version: "3", ` + auto + `, ` + gpuToleration + `}}]}`,
		},
		"a node pool that no object selects": {
			`{driver: {useNvidiaDriverCRD: true}, nodePools: [{name: t, nodeSelector: {team: b}, toolkit: {version: v1}}]}`,
			`{a: {version: "2", nodeSelector: {team: a}}}`,
			`{driver: {}, nodePools: [{name: t, nodeSelector: {team: b}, toolkit: {version: v1}},
			{name: a, nodeSelector: {team: a}, driver: {version: "2", ` + auto + `, ` + gpuToleration + `}}]}`,
		},
		"the priority class of all DaemonSets": {
			"{driver: {useNvidiaDriverCRD: true}, daemonsets: {priorityClassName: mine}}", `{all: {default: true}}`,
			`{driver: {}, daemonsets: {priorityClassName: mine}, nodePools: [
			{name: all, nodeSelector: {nvidia.com/gpu.present: "true"},
			driver: {priorityClassName: system-node-critical, ` + auto + `, ` + gpuToleration + `}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			deleted := objectsOf(t, "{deleted: {nodeSelector: {team: a}}}")
			deleted[0].DeletionTimestamp = new(metav1.Now())
			got, err := nvidiadriver.ToNodePools(policyOf(t, test.policy), append(deleted, objectsOf(t, test.objects)...))
			if err != nil {
				t.Fatal(err)
			}
			expectYAML(t, got.Spec, test.want)
			if got := nvidiadriver.SelectAll(objectsOf(t, test.objects)); got != strings.Contains(test.objects, "all: ") {
				t.Errorf("the objects select all nodes: %v", got)
			}
		})
	}
}

func TestWhatIsNoNodePool(t *testing.T) {
	const uses = "{driver: {useNvidiaDriverCRD: true}"
	for name, test := range map[string]struct{ policy, objects, want string }{
		"objects that are not used": {
			"{}", "{}", "ClusterPolicy p: spec.driver.useNvidiaDriverCRD is not true, so that it uses no NVIDIADriver: set it",
		},
		"fields without effect": {
			uses + "}", "{a: {nodeAffinity: {}, useOpenKernelModules: true}}",
			"NVIDIADriver a: spec.nodeAffinity has no effect, as in NVIDIA's operator: use nodeSelector\n" +
				"NVIDIADriver a: spec.useOpenKernelModules is deprecated and has no effect: use kernelModuleType",
		},
		"a type that is not supported": {
			uses + "}", "{a: {driverType: vgpu-host-manager}}",
			"NVIDIADriver a: spec.driverType vgpu-host-manager is not supported yet: " +
				"remove the object, or set gpu or vgpu in another one",
		},
		"two objects for the same nodes": {
			uses + "}", "{a: {nodeSelector: {team: a}}, b: {nodeSelector: {team: a, x: z}}}",
			"NVIDIADriver b: spec.nodeSelector selects nodes of NVIDIADriver a too: change one of them",
		},
		"two defaults": {
			uses + "}", "{a: {default: true}, b: {default: true}}",
			"NVIDIADriver b: spec.nodeSelector selects nodes of NVIDIADriver a too: change one of them",
		},
		"an object of all nodes that is not the default": {
			uses + "}", "{a: {}, b: {nodeSelector: {team: a}}}",
			"NVIDIADriver a: spec.nodeSelector selects nodes of NVIDIADriver b too: change one of them",
		},
		"what all DaemonSets have": {
			uses + ", daemonsets: {labels: {a: b}, annotations: {e: f}, nodeSelector: {x: z}}}",
			"{a: {default: true, labels: {c: d}}}",
			"ClusterPolicy p: spec.daemonsets.annotations.e differs for NVIDIADriver a, " +
				"and a node pool cannot have another value: remove it\n" +
				"ClusterPolicy p: spec.daemonsets.labels.a differs for NVIDIADriver a, " +
				"and a node pool cannot have another value: remove it\n" +
				"ClusterPolicy p: spec.daemonsets.nodeSelector applies to the drivers of node pools, " +
				"and not to those of NVIDIADrivers: remove it",
		},
		"a node pool that may overlap": {
			uses + ", nodePools: [{name: t, nodeSelector: {x: z}}]}", "{a: {nodeSelector: {team: a}}}",
			"ClusterPolicy p: spec.nodePools[0].nodeSelector may select nodes of NVIDIADriver a, and a node has one node " +
				"pool only: give it the same labels, or another value of one of them",
		},
		"a node pool with a driver": {
			uses + ", nodePools: [{name: t, nodeSelector: {team: b}, driver: {version: '1'}}]}",
			"{a: {nodeSelector: {team: a}}}",
			"ClusterPolicy p: spec.nodePools[0].driver excludes spec.driver.useNvidiaDriverCRD: remove it",
		},
		"a name that is taken": {
			uses + ", nodePools: [{name: a, nodeSelector: {team: b}}]}", "{a: {nodeSelector: {team: a}}}",
			"NVIDIADriver a: metadata.name is a as a node pool, which the policy has for other nodes: rename that",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nvidiadriver.ToNodePools(policyOf(t, test.policy), objectsOf(t, test.objects))
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v, %+v\nwant %s", err, got, test.want)
			}
		})
	}
}

func TestWhatNoObjectHas(t *testing.T) {
	for name, test := range map[string]struct{ policy, want string }{
		"nothing, of a policy without fields": {"{}", ""},
		"nothing, of node pools without drivers, which may overlap": {
			"{driver: {nodeSelector: {x: z}}, nodePools: [{name: a, nodeSelector: {team: a}}, " +
				"{name: b, nodeSelector: {x: z}}]}", "",
		},
		"a field of spec.driver, which a node pool of all nodes has": {
			"{driver: {containerResources: [{name: nvidia-driver-ctr, limits: {memory: 1Gi}}]}, " +
				"nodePools: [{name: all, nodeSelector: {nvidia.com/gpu.present: 'true'}, toolkit: {version: v1}}]}",
			"ClusterPolicy p: spec.driver.containerResources is no field of NVIDIADriver, " +
				"and its value would be lost for all: remove it",
		},
		"a field of spec.driver": {
			"{driver: {containerResources: [{name: nvidia-driver-ctr, limits: {memory: 1Gi}}]}}",
			"ClusterPolicy p: spec.driver.containerResources is no field of NVIDIADriver, " +
				"and its value would be lost for cluster.default: remove it",
		},
		"no driver": {
			"{driver: {enabled: false}}",
			"ClusterPolicy p: spec.driver.enabled is false, so that there is no driver to declare",
		},
		"objects already": {
			"{driver: {useNvidiaDriverCRD: true}}", "ClusterPolicy p: spec.driver.useNvidiaDriverCRD is true already",
		},
		"a field of the policy alone": {
			"{driver: {containerResources: [{name: nvidia-driver-ctr, limits: {memory: 1Gi}}]}, " +
				"nodePools: [{name: a, nodeSelector: {team: a}, driver: {version: '1'}}]}",
			"ClusterPolicy p: spec.driver.containerResources is no field of NVIDIADriver, " +
				"and its value would be lost for a: remove it",
		},
		"node pools with an order": {
			"{nodePools: [{name: a, nodeSelector: {team: a}}, {name: b, nodeSelector: {x: z}, driver: {version: '1'}}]}",
			"ClusterPolicy p: spec.nodePools[1].nodeSelector may select nodes of a, and NVIDIADrivers have no order: " +
				"give it another value of a label of a",
		},
		"a selector of all DaemonSets": {
			"{daemonsets: {nodeSelector: {x: z}}, nodePools: [{name: a, nodeSelector: {team: a}, driver: {version: '1'}}]}",
			"ClusterPolicy p: spec.daemonsets.nodeSelector applies to the drivers of all node pools, and to no NVIDIADriver: " +
				"add its labels to theirs, and remove it",
		},
		"a selector of all drivers": {
			"{driver: {nodeSelector: {x: z}}, nodePools: [{name: a, nodeSelector: {team: a}, driver: {version: '1'}}]}",
			"ClusterPolicy p: spec.driver.nodeSelector applies to the drivers of all node pools, and to no NVIDIADriver: " +
				"add its labels to theirs, and remove it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, objects, err := nvidiadriver.ToObjects(policyOf(t, test.policy))
			if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) {
				t.Errorf("got  %v, %+v %+v\nwant %s", err, got, objects, test.want)
			}
		})
	}
}

// What the order of node pools decides is lost, and nothing else: objects become node pools and objects again.
func TestObjectsBecomeNodePoolsAndObjects(t *testing.T) {
	const withPools = `{driver: {useNvidiaDriverCRD: true}, nodePools: [{name: a, nodeSelector: {team: a}},
		{name: rest, nodeSelector: {nvidia.com/gpu.present: "true"}}]}`
	fields := driverFields(t)
	converted := 0
	for seed := range uint64(300) {
		random := specgen.Random(rand.New(rand.NewPCG(seed, 2)), fields)
		for _, field := range []string{"driverType", "nodeAffinity", "useOpenKernelModules", "default"} {
			delete(random, field)
		}
		dropThresholds(random)
		random["nodeSelector"] = map[string]any{"team": "a"}
		original := []v1alpha1.NVIDIADriver{driverOf(t, random), objectsOf(t, "{rest: {default: true, version: '1'}}")[0]}
		uses := policyOf(t, "{driver: {useNvidiaDriverCRD: true}}")
		pools, err := nvidiadriver.ToNodePools(uses, original)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		again, objects, err := nvidiadriver.ToObjects(pools)
		if err != nil {
			t.Errorf("seed %d, back: %v", seed, err)
			continue
		}
		expectYAML(t, again.Spec, withPools)
		before := nvidiadriver.Declared(uses.Spec, original)
		after := nvidiadriver.Declared(again.Spec, objects)
		if diff := cmp.Diff(v1.NodePoolSelector{"team": "a"}, after[0].NodeSelector); diff != "" {
			t.Errorf("seed %d: the nodes differ: -want +got:\n%s", seed, diff)
		}
		if diff := cmp.Diff(before[0].Spec.Driver, after[0].Spec.Driver); diff != "" {
			t.Errorf("seed %d: the drivers differ: -want +got:\n%s", seed, diff)
		}
		converted++
	}
	if converted < 300 {
		t.Errorf("%d of 300 converted", converted)
	}
}

// dropThresholds removes the number of successes of probes that have to succeed once: another one is impossible.
func dropThresholds(driver map[string]any) {
	for _, kind := range []string{"startupProbe", "livenessProbe"} {
		if probe, has := driver[kind].(map[string]any); has {
			delete(probe, "successThreshold")
		}
	}
}
