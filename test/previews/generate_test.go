package previews

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// scenario is a case: a cluster for a first installation and an edit.
type scenario struct {
	generator
	nodes []*corev1.Node
	// named are the objects that the policy may name. given: they are in its file, too.
	named []*unstructured.Unstructured
	given bool
	// running: the drivers are ready before the second edit, which upgrades none by itself.
	running bool
}

// edit is what a user applies.
type edit struct {
	spec    map[string]any
	drivers []*unstructured.Unstructured
}

// generator makes a case.
type generator struct {
	dice   *rand.Rand
	fields []specgen.Field
}

// newScenario returns the case of a seed.
func newScenario(seed uint64, fields []specgen.Field) *scenario {
	g := generator{rand.New(rand.NewPCG(seed, 0)), fields}
	s := &scenario{generator: g, given: g.chance(0.97), running: g.chance(0.5)}
	s.nodes = g.cluster(g.chance(0.3))
	if g.chance(0.97) {
		s.named = g.references()
	}
	return s
}

func (g *generator) chance(p float64) bool { return g.dice.Float64() < p }

func pick[T any](g *generator, values ...T) T { return values[g.dice.IntN(len(values))] }

// systems are operating systems of nodes, by the labels of a discovery.
var systems = [][2]string{
	{"ubuntu", "22.04"}, {"ubuntu", "24.04"}, {"rhel", "9.6"}, {"rocky", "9.6"}, {"sles", "15.6"}, {"debian", "12"},
}

// cluster returns nodes; used: an operator has labelled some of them before.
func (g *generator) cluster(used bool) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range 1 + g.dice.IntN(4) {
		node := &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{}},
		}
		info := &node.Status.NodeInfo
		info.Architecture = pick(g, "amd64", "amd64", "arm64")
		info.ContainerRuntimeVersion = pick(g, "containerd://2.2.1", "containerd://1.7.27", "cri-o://1.34.0")
		info.KubeletVersion = pick(g, "v1.36.0", "v1.34.1+k3s1")
		g.label(node.Labels)
		if used && g.chance(0.5) {
			g.labelAsBefore(node.Labels, info.Architecture)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// label sets the labels of a node that discoveries and users write.
func (g *generator) label(all map[string]string) {
	set := func(p float64, key, value string) {
		if g.chance(p) {
			all[key] = value
		}
	}
	system := pick(g, systems...)
	const feature = "feature.node.kubernetes.io/"
	set(0.9, feature+"pci-10de.present", "true")
	if g.chance(0.95) {
		all[feature+"system-os_release.ID"], all[feature+"system-os_release.VERSION_ID"] = system[0], system[1]
	}
	set(0.8, feature+"kernel-version.full", pick(g, "6.8.0-51-generic", "5.14.0-570.el9.x86_64"))
	set(0.5, "zone", pick(g, "front", "rear"))
	set(0.4, "team", "hpc")
	set(0.4, "nvidia.com/gpu.product", pick(g, "NVIDIA-H100-80GB-HBM3", "Tesla-T4"))
	set(0.4, "nvidia.com/mig.capable", pick(g, "true", "false"))
	set(0.05, "nvidia.com/gpu.workload.config", pick(g, "container", "vm-passthrough"))
	set(0.05, "nvidia.com/gpu.deploy.operands", "false")
	set(0.05, "nvidia.com/gpu.deploy.driver", pick(g, "pre-installed", "false"))
	maps.Copy(all, specgenPool(g))
}

// specgenPool returns the labels of the node pools of generated specs, for some nodes.
func specgenPool(g *generator) map[string]string {
	found := map[string]string{}
	if g.chance(0.3) {
		for key, value := range specgen.PoolLabels {
			found[key] = fmt.Sprint(value)
		}
	}
	return found
}

// labelAsBefore sets labels that an operator has written for another policy.
func (g *generator) labelAsBefore(all map[string]string, architecture string) {
	system := pick(g, systems...)
	pool := system[0] + system[1] + "-" + architecture
	if own := g.dice.IntN(3); own > 0 {
		name := []string{"rear", "a"}[own-1]
		all["nvidia.com/gpu-operator.pool-node-pool"] = name
		pool += "-" + name
	}
	all["nvidia.com/gpu.present"] = "true"
	all["nvidia.com/gpu-operator.pool"], all["clusterpolicy.github.io/driver"] = pool, pool
	for key, value := range map[string]string{
		"nvidia.com/gpu-operator.layout":            "containerd",
		"clusterpolicy.github.io/container-toolkit": "containerd",
		"nvidia.com/gpu-operator.node-pool":         "rear",
		"nvidia.com/gpu-operator.driver.owner":      "a",
		"nvidia.com/gpu.deploy.device-plugin":       "true",
	} {
		if g.chance(0.5) {
			all[key] = value
		}
	}
	if _, set := all["nvidia.com/gpu.deploy.driver"]; !set && g.chance(0.7) {
		all["nvidia.com/gpu.deploy.driver"] = "true"
	}
}

// references returns the objects that generated policies name.
func (g *generator) references() []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, name := range []string{"example", "modules", "repos", "certs"} {
		configMap := object("v1", "ConfigMap", name)
		data := map[string]any{"ca-bundle.crt": "certificate"}
		for _, key := range []string{"example", "nvidia.conf", "mirror.list", "config.yaml", "dcgm-metrics.csv"} {
			if g.chance(0.8) {
				data[key] = pick[any](g, "text", "other text")
			}
		}
		configMap.Object["data"] = data
		found = append(found, configMap)
	}
	secret := object("v1", "Secret", "example")
	secret.Object["stringData"] = map[string]any{"KEY": pick[any](g, "a", "b")}
	class := object("scheduling.k8s.io/v1", "PriorityClass", "example")
	class.Object["value"] = int64(1000)
	return append(found, secret, class)
}

// edit returns a policy with its NVIDIADrivers. Those of an earlier edit get other versions; some of them are not in
// the file. held: no driver is upgraded by itself.
func (g *generator) edit(earlier []*unstructured.Unstructured, held bool) edit {
	e := edit{spec: specgen.Random(g.dice, g.fields)}
	merge := func(p float64, more map[string]any) {
		if g.chance(p) {
			e.spec = specgen.Merge(e.spec, more)
		}
	}
	driver := func(p float64, fields map[string]any) { merge(p, map[string]any{"driver": fields}) }
	driver(0.5, map[string]any{"version": pick(g, "580.1", "580.2")})
	driver(0.3, map[string]any{"kernelModuleConfig": map[string]any{"name": "modules"}})
	driver(0.3, map[string]any{"repoConfig": map[string]any{"configMapName": "repos"}})
	driver(0.2, map[string]any{"certConfig": map[string]any{"name": "certs"}})
	driver(0.1, map[string]any{"nodeSelector": map[string]any{"zone": "rear"}})
	driver(0.2, map[string]any{"usePrecompiled": true, "version": "580"})
	driver(0.9, map[string]any{"enabled": true})
	merge(0.9, map[string]any{"paused": false})
	if g.chance(0.4) {
		e.spec = specgen.Merge(e.spec, map[string]any{"nodePools": g.nodePools()})
	}
	driver(1, map[string]any{"useNvidiaDriverCRD": g.chance(0.4)})
	if g.chance(0.7) {
		e.serveDrivers(g.chance(0.3))
	}
	e.drivers = g.drivers(earlier)
	if held {
		e.hold()
	}
	return e
}

// serveDrivers removes what often keeps all nodes from getting a driver, which is precompiled or not.
func (e *edit) serveDrivers(precompiled bool) {
	driver, _ := e.spec["driver"].(map[string]any)
	for _, field := range []string{"image", "licensingConfig", "virtualTopology", "nodeSelector", "usePrecompiled"} {
		delete(driver, field)
	}
	driver["version"] = "580.1"
	if precompiled {
		driver["version"], driver["usePrecompiled"] = "580", true
	}
	if driver["useNvidiaDriverCRD"] != true {
		return
	}
	pools, _ := e.spec["nodePools"].([]any)
	for _, pool := range pools {
		fields, _ := pool.(map[string]any)
		delete(fields, "driver")
	}
}

// hold keeps the operator from upgrading drivers by itself.
func (e *edit) hold() {
	off := map[string]any{"upgradePolicy": map[string]any{"autoUpgrade": false}}
	e.spec = specgen.Merge(e.spec, map[string]any{"driver": off})
	pools, _ := e.spec["nodePools"].([]any)
	for i := range pools {
		pool, _ := pools[i].(map[string]any)
		if driver, has := pool["driver"].(map[string]any); has {
			pool["driver"] = specgen.Merge(driver, off)
		}
	}
	for _, driver := range e.drivers {
		spec, _ := driver.Object["spec"].(map[string]any)
		driver.Object["spec"] = specgen.Merge(spec, off)
	}
}

func (g *generator) nodePools() []any {
	var pools []any
	for _, name := range []string{"rear", "front"}[:1+g.dice.IntN(2)] {
		pool := map[string]any{"name": name, "nodeSelector": map[string]any{"zone": name}}
		if g.chance(0.8) {
			driver := map[string]any{"version": pick(g, "570.1", "580.1")}
			if g.chance(0.2) {
				driver = map[string]any{"version": "580", "usePrecompiled": true}
			}
			if g.chance(0.1) {
				driver = map[string]any{"image": "example.com/driver:1", "version": "2"}
			}
			pool["driver"] = driver
		}
		pools = append(pools, pool)
	}
	return pools
}

// drivers returns NVIDIADriver objects.
func (g *generator) drivers(earlier []*unstructured.Unstructured) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, driver := range earlier {
		if g.chance(0.7) {
			again := driver.DeepCopy()
			_ = unstructured.SetNestedField(again.Object, pick(g, "570.1", "580.1", "580.2"), "spec", "version")
			if precompiled, _, _ := unstructured.NestedBool(again.Object, "spec", "usePrecompiled"); precompiled {
				_ = unstructured.SetNestedField(again.Object, pick(g, "570", "580"), "spec", "version")
			}
			found = append(found, again)
		}
	}
	for _, name := range []string{"a", "b", "c"}[:g.dice.IntN(4)] {
		taken := func(other *unstructured.Unstructured) bool { return other.GetName() == name }
		if slices.ContainsFunc(earlier, taken) || slices.ContainsFunc(found, taken) {
			continue
		}
		driver := object(v1alpha1.GroupVersion.String(), v1alpha1.NVIDIADriverKind.Kind, name)
		driver.Object["spec"] = g.driverSpec()
		found = append(found, driver)
	}
	return found
}

func (g *generator) driverSpec() map[string]any {
	spec := map[string]any{"driverType": "gpu", "version": pick(g, "570.1", "580.1", "580.2")}
	switch g.dice.IntN(4) {
	case 0:
		spec["nodeSelector"] = map[string]any{"zone": pick[any](g, "front", "rear")}
	case 1:
		spec["nodeSelector"] = map[string]any{
			"feature.node.kubernetes.io/system-os_release.ID": pick[any](g, "ubuntu", "rhel"),
		}
	case 2:
		spec["default"] = true
	}
	if g.chance(0.2) {
		spec["usePrecompiled"], spec["version"] = true, "580"
	}
	if g.chance(0.1) {
		spec["image"] = "example.com/driver:1"
	}
	if g.chance(0.05) {
		spec["driverType"] = pick(g, "physical", "vgpu-host-manager")
	}
	if g.chance(0.2) {
		spec["kernelModuleConfig"] = map[string]any{"name": "modules"}
	}
	return spec
}

func object(version, kind, name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetAPIVersion(version)
	made.SetKind(kind)
	made.SetName(name)
	return made
}
