package render_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

const poolLabel = "nvidia.com/gpu-operator.node-pool"

// inTeam returns the node with the label that the pools of these tests select.
func inTeam(team string, facts nodeinfo.Facts) nodeinfo.Facts {
	facts.Name += "-" + team
	facts.Labels = map[string]string{"example.com/team": team}
	return facts
}

// differingPools override the driver, the toolkit and how GPUs are advertised.
var differingPools = []v1.NodePoolSpec{
	{
		Name: "a100", NodeSelector: v1.NodePoolSelector{"example.com/team": "a"},
		MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
		Driver: &v1.NodePoolDriverSpec{
			ImageSpec: v1.ImageSpec{Version: "590"}, KernelModuleType: v1.KernelModuleOpen,
			PodSecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(2))},
		},
	},
	{
		Name:         "shared",
		NodeSelector: v1.NodePoolSelector{"example.com/team": "b"},
		DevicePlugin: &v1.NodePoolDevicePluginSpec{
			Config: &v1.NodePoolPluginConfigSpec{Name: "shares", Default: "four"},
		},
	},
	{
		Name:         "pinned",
		NodeSelector: v1.NodePoolSelector{"example.com/team": "c"},
		Toolkit:      &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.17.8"}},
	},
}

// nodesOfEveryVariant is a cluster with a node of each combination of operating system, kernel, architecture and
// container runtime, in no team and in each of these.
func nodesOfEveryVariant(teams ...string) []nodeinfo.Facts {
	var nodes []nodeinfo.Facts
	for _, system := range [][2]string{{"ubuntu", "22.04"}, {"ubuntu", "24.04"}, {"rhel", "9.6"}, {"sles", "15.7"}} {
		for _, kernel := range []string{"6.8.0-51-generic", "6.8.0-60-generic"} {
			for _, architecture := range []string{"amd64", "arm64"} {
				for _, runtime := range []string{"containerd", "cri-o"} {
					facts := runs(runtime, "")
					facts.OSID, facts.OSVersion, facts.Kernel, facts.Architecture = system[0], system[1], kernel, architecture
					facts.Name, facts.MPSCapable = strings.Join(
						[]string{system[0], system[1], kernel, architecture, runtime},
						"-",
					), "true"
					nodes = append(nodes, facts)
					for _, team := range teams {
						nodes = append(nodes, inTeam(team, facts))
					}
				}
			}
		}
	}
	return nodes
}

// byKindAndName returns the objects as JSON, a field a line.
func byKindAndName(t *testing.T, s situation) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, objects := range s.objects(t) {
		for _, object := range objects {
			text, err := json.MarshalIndent(object, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			found[object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName()] = string(text)
		}
	}
	return found
}

func everyVariantWith(pools []v1.NodePoolSpec) situation {
	return situation{
		spec: v1.ClusterPolicySpec{
			Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}}, NodePools: pools,
		},
		nodes: nodesOfEveryVariant("a", "b", "c"),
	}
}

// 4 operating systems, 2 kernels, 2 architectures and 2 runtimes in one cluster, with 3 node pools: the right objects
// are rendered, in whatever order the nodes are listed.
func TestAClusterWithEveryVariantIsStable(t *testing.T) {
	s := everyVariantWith(differingPools)
	want := byKindAndName(t, s)
	counts := map[string]int{}
	for name, sets := range s.daemonSets(t) {
		for _, ds := range sets {
			counts[fmt.Sprintf("%s of %q", name, ds.Labels[poolLabel])]++
			context := ds.Spec.Template.Spec.SecurityContext
			if own := name == "driver" && ds.Labels[poolLabel] == "a100"; own != (context != nil && context.FSGroup != nil) {
				t.Errorf("%s of %q has the security context %v", name, ds.Labels[poolLabel], context)
			}
		}
	}
	wanted := map[string]int{
		`node-discovery of ""`: 1, `driver of ""`: 16, `driver of "a100"`: 16, `container-toolkit of ""`: 2,
		`container-toolkit of "pinned"`: 2,
		`device-plugin of ""`:           1, `device-plugin of "a100"`: 1, `device-plugin of "shared"`: 1,
		`gpu-feature-discovery of ""`:     1,
		`gpu-feature-discovery of "a100"`: 1, `gpu-feature-discovery of "shared"`: 1, `mps-control-daemon of "shared"`: 1,
		`operator-validator of ""`: 1, `operator-validator of "a100"`: 1, `dcgm-exporter of ""`: 1, `mig-manager of ""`: 1,
	}
	if diff := cmp.Diff(wanted, counts); diff != "" {
		t.Errorf("DaemonSets, -want +got:\n%s", diff)
	}
	random := chance.Of(t, t.Name())
	for range 50 {
		random.Shuffle(len(s.nodes), func(i, j int) { s.nodes[i], s.nodes[j] = s.nodes[j], s.nodes[i] })
		if diff := cmp.Diff(want, byKindAndName(t, s)); diff != "" {
			t.Fatalf("another order of the nodes, -want +got:\n%s", diff)
		}
	}
}

// Adding, changing or removing a node pool changes only the objects with its name.
func TestAPoolTouchesOnlyItsOwn(t *testing.T) {
	for i, pool := range differingPools {
		t.Run(pool.Name, func(t *testing.T) {
			others := slices.Delete(slices.Clone(differingPools), i, i+1)
			before, after := byKindAndName(t, everyVariantWith(others)), byKindAndName(t, everyVariantWith(differingPools))
			changed := slices.Clone(differingPools)
			changed[i].Toolkit = &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.18.0"}}
			again := byKindAndName(t, everyVariantWith(changed))
			added := 0
			for name, object := range after {
				if strings.Contains(name, pool.Name) {
					added++
					continue
				}
				if before[name] != object || again[name] != object {
					t.Errorf("%s has changed:\n%s\n%s", name, cmp.Diff(before[name], object), cmp.Diff(object, again[name]))
				}
			}
			if added == 0 || len(before) != len(after)-added {
				t.Errorf("%d objects were added with the pool, the total changed from %d to %d", added, len(before), len(after))
			}
		})
	}
}

// No node is selected by two DaemonSets of an operand, whatever its labels, and no pod matches the selectors of two.
func TestDaemonSetsOfAnOperandShareNothing(t *testing.T) {
	for name, sets := range everyVariantWith(differingPools).daemonSets(t) {
		for i, a := range sets {
			for _, b := range sets[i+1:] {
				if selectsByAnchor(name) {
					continue // See TestANodeThatHasLostLabelsKeepsItsPod.
				}
				if !disjoint(a, b) {
					t.Errorf("%s and %s select the same nodes", a.Name, b.Name)
				}
			}
		}
		for _, ds := range sets {
			pool := ds.Labels[poolLabel]
			if !selectsByAnchor(name) && ds.Spec.Selector.MatchLabels[poolLabel] != pool ||
				ds.Spec.Template.Labels[poolLabel] != pool {
				t.Errorf(
					"%s of %s selects pods by %v, which have %v",
					ds.Name,
					name,
					ds.Spec.Selector.MatchLabels,
					ds.Spec.Template.Labels,
				)
			}
		}
	}
}

// disjoint reports whether no node can have a pod of both: one requires another value of a label, or excludes a label
// that the other requires.
func disjoint(a, b *appsv1.DaemonSet) bool {
	for key, value := range a.Spec.Template.Spec.NodeSelector {
		other, exists := b.Spec.Template.Spec.NodeSelector[key]
		if exists && other != value || excludesLabel(b, key) {
			return true
		}
	}
	for key := range b.Spec.Template.Spec.NodeSelector {
		if excludesLabel(a, key) {
			return true
		}
	}
	return false
}

func excludesLabel(ds *appsv1.DaemonSet, key string) bool {
	affinity := ds.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return terms[0].MatchExpressions[0].Key == key
}

// The DaemonSet of the other nodes excludes those of node pools from the start, so that a pool does not change it.
func TestANodePoolDoesNotChangeTheDaemonSetOfOthers(t *testing.T) {
	const set = "nvidia-device-plugin-daemonset"
	find := func(pools ...v1.NodePoolSpec) *appsv1.DaemonSet {
		for _, ds := range (situation{spec: v1.ClusterPolicySpec{NodePools: pools}}).daemonSets(t)["device-plugin"] {
			if ds.Name == set {
				return ds
			}
		}
		t.Fatalf("there is no %s", set)
		return nil
	}
	plain, pooled := find(), find(differingPools[0])
	if !excludesLabel(plain, poolLabel+".device-plugin") {
		t.Error("without a pool it does not exclude the nodes of pools")
	}
	if diff := cmp.Diff(plain.Spec, pooled.Spec); diff != "" {
		t.Errorf("a pool changes it: -without +with:\n%s", diff)
	}
}
