package render_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

var (
	placementOfAll = &v1.DaemonSetsSpec{
		Labels: v1.Labels{"team": "all", "site": "a"}, Annotations: v1.Annotations{"note": "all", "more": "a"},
		Tolerations: []corev1.Toleration{{Key: "all", Operator: corev1.TolerationOpExists}}, PriorityClassName: "all",
	}
	placementOfOne = v1.PlacementSpec{
		Labels: v1.Labels{
			"team":                         "one",
			"app":                          "mine",
			"app.kubernetes.io/managed-by": "mine",
		}, Annotations: v1.Annotations{"note": "one"},
		Tolerations: []corev1.Toleration{{Key: "one", Operator: corev1.TolerationOpExists}}, PriorityClassName: "one",
	}
)

// placed returns a spec with this placement in the block of every operand.
func placed(placement v1.PlacementSpec) v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{
		DaemonSets:    placementOfAll.DeepCopy(),
		NodeDiscovery: &v1.NodeDiscoverySpec{PlacementSpec: placement},
		Driver:        &v1.DriverSpec{PlacementSpec: placement},
		Toolkit:       &v1.ToolkitSpec{PlacementSpec: placement},
		DevicePlugin: &v1.DevicePluginSpec{
			PlacementSpec: placement,
			Config:        &v1.DevicePluginConfigSpec{Name: "configs"},
		},
		GFD:                &v1.GFDSpec{PlacementSpec: placement},
		DCGM:               &v1.DCGMSpec{Enabled: new(true), PlacementSpec: placement},
		DCGMExporter:       &v1.DCGMExporterSpec{PlacementSpec: placement},
		MIGManager:         &v1.MIGManagerSpec{PlacementSpec: placement},
		NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true), PlacementSpec: placement},
		Validator:          &v1.ValidatorSpec{PlacementSpec: placement},
	}
}

// The block of an operand takes precedence over spec.daemonsets. Neither replaces keys that the operator sets.
func TestPlacementOfEveryOperand(t *testing.T) {
	before := situation{spec: placed(v1.PlacementSpec{}), nodes: []nodeinfo.Facts{mpsNode()}}.daemonSets(t)
	after := situation{spec: placed(placementOfOne), nodes: []nodeinfo.Facts{mpsNode()}}.daemonSets(t)
	if len(after) != 11 {
		t.Errorf("%d operands have DaemonSets, want 11", len(after))
	}
	for name, sets := range after {
		for i, ds := range sets {
			pod := ds.Spec.Template
			if diff := cmp.Diff(placementOfOne.Tolerations, pod.Spec.Tolerations); diff != "" ||
				pod.Spec.PriorityClassName != "one" {
				t.Errorf("%s: priority class %s, tolerations, -want +got:\n%s", name, pod.Spec.PriorityClassName, diff)
			}
			own := before[name][i]
			for where, pair := range map[string][2]map[string]string{
				"DaemonSet": {own.Labels, ds.Labels}, "pod": {own.Spec.Template.Labels, pod.Labels},
			} {
				want := with(pair[0], "team", "one")
				if diff := cmp.Diff(want, pair[1]); diff != "" {
					t.Errorf("%s: labels of its %s, -want +got:\n%s", name, where, diff)
				}
			}
			for where, pair := range map[string][2]map[string]string{
				"DaemonSet": {own.Annotations, ds.Annotations}, "pod": {own.Spec.Template.Annotations, pod.Annotations},
			} {
				want := with(pair[0], "note", "one")
				if name == "dcgm-exporter" && where == "DaemonSet" {
					want = pair[0] // Its annotations are those of its pods.
				}
				delete(want, digestKey)
				delete(pair[1], digestKey)
				if diff := cmp.Diff(want, pair[1]); diff != "" {
					t.Errorf("%s: annotations of its %s, -want +got:\n%s", name, where, diff)
				}
			}
		}
	}
}

func with(all map[string]string, key, value string) map[string]string {
	result := map[string]string{key: value}
	for k, v := range all {
		if k != key {
			result[k] = v
		}
	}
	return result
}

// No placement makes a driver look outdated.
func TestTheTemplateDigestOfAPlacement(t *testing.T) {
	tests := map[string]struct{ placement v1.PlacementSpec }{
		"labels":           {placement: v1.PlacementSpec{Labels: placementOfOne.Labels}},
		"annotations":      {placement: v1.PlacementSpec{Annotations: placementOfOne.Annotations}},
		"a node selector":  {placement: v1.PlacementSpec{NodeSelector: v1.Labels{"a": "b"}}},
		"tolerations":      {placement: v1.PlacementSpec{Tolerations: placementOfOne.Tolerations}},
		"a priority class": {placement: v1.PlacementSpec{PriorityClassName: "one"}},
		"resources":        {placement: v1.PlacementSpec{ContainerResources: bounded("k8s-driver-manager")}},
	}
	selected := node("ubuntu", "24.04")
	selected.Labels = map[string]string{"a": "b"}
	render := func(placement v1.PlacementSpec) situation {
		return situation{
			spec:  v1.ClusterPolicySpec{Driver: &v1.DriverSpec{PlacementSpec: placement}},
			nodes: []nodeinfo.Facts{selected},
		}
	}
	before := digest(t, render(v1.PlacementSpec{}), "driver")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if digest(t, render(test.placement), "driver") != before {
				t.Error("the digest has changed")
			}
		})
	}
}

func bounded(names ...string) []v1.ContainerResources {
	var all []v1.ContainerResources
	for _, name := range names {
		all = append(all, v1.ContainerResources{Name: name, ResourceRequirements: v1.ResourceRequirements{
			Limits: corev1.ResourceList{
				"memory": resource.MustParse("64Mi"),
			}, Requests: corev1.ResourceList{"cpu": resource.MustParse("10m")},
		}})
	}
	return all
}

// Resources of single containers replace those of all main containers, and also apply to the init containers that the
// operator adds.
func TestResourcesOfSingleContainers(t *testing.T) {
	all := v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
	s := situation{
		spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{
			ContainerSpec: v1.ContainerSpec{Resources: &all},
			PlacementSpec: v1.PlacementSpec{
				ContainerResources: bounded(
					"gpu-node-wait",
					"nvidia-device-plugin",
					"config-manager-init",
					"mps-control-daemon-mounts",
				),
			},
			Config: &v1.DevicePluginConfigSpec{Name: "configs"},
		}},
		nodes: []nodeinfo.Facts{mpsNode()},
	}
	want := map[operand.Name]map[string]string{
		"device-plugin": {
			"gpu-node-wait":        "64Mi",
			"config-manager-init":  "64Mi",
			"nvidia-device-plugin": "64Mi",
			"config-manager":       "",
		},
		"mps-control-daemon": {
			"gpu-node-wait":             "64Mi",
			"config-manager-init":       "64Mi",
			"mps-control-daemon-mounts": "64Mi",
			"mps-control-daemon-ctr":    "1Gi",
			"config-manager":            "",
		},
	}
	for name, want := range want {
		got := map[string]string{}
		for _, c := range containers(&s.daemonSet(t, name).Spec.Template.Spec) {
			got[c.Name] = ""
			if limit, limited := c.Resources.Limits["memory"]; limited {
				got[c.Name] = limit.String()
			}
			if c.Name == "config-manager" {
				got[c.Name], want[c.Name] = "", "" // The spec's resources are those of all main containers; it is one.
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

func TestResourcesOfAnUnknownContainerAreRefused(t *testing.T) {
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		name operand.Name
		want string
	}{
		"of the exporter": {
			v1.ClusterPolicySpec{
				DCGMExporter: &v1.DCGMExporterSpec{
					PlacementSpec: v1.PlacementSpec{ContainerResources: bounded("nvidia-dcgm-exporter", "exporter")},
				},
			},
			"dcgm-exporter",
			"spec.dcgmExporter.containerResources: there is no container exporter, only gpu-node-wait, nvidia-dcgm-exporter",
		},
		"of a sidecar that does not exist": {
			v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{PlacementSpec: v1.PlacementSpec{ContainerResources: bounded("nvidia-peermem-ctr")}},
			},
			"driver",
			"spec.driver.containerResources: there is no container nvidia-peermem-ctr, " +
				"only gpu-node-copy, k8s-driver-manager, nvidia-driver-ctr",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := situation{spec: test.spec}.plan(t)
			found := false
			for _, step := range p.Steps {
				if step.Action != plan.Apply {
					continue
				}
				found = found || step.Operand.Name == test.name
				_, err := render.Step(p, step, owner, nil)
				if step.Operand.Name != test.name {
					if err != nil {
						t.Errorf("%s: %v", step.Operand.Name, err)
					}
					continue
				}
				if err == nil || err.Error() != test.want || !errors.As(err, new(operand.InvalidSpec)) {
					t.Errorf("got %v, want %s", err, test.want)
				}
			}
			if !found {
				t.Errorf("%s is not rendered", test.name)
			}
		})
	}
}

// A DaemonSet has no node selector of the spec: its controller would immediately delete the pods of a node that stops
// matching. Node discovery is the exception, as the plan does not select its nodes.
func TestNodeSelectorsOfGPUNodesAreLeftToThePlan(t *testing.T) {
	spec := placed(v1.PlacementSpec{NodeSelector: v1.Labels{"tier": "gpu"}})
	spec.DaemonSets.NodeSelector = v1.Labels{"pool": "gpu"}
	facts := mpsNode()
	facts.Labels = map[string]string{"tier": "gpu"}
	for name, sets := range (situation{spec: spec, nodes: []nodeinfo.Facts{facts}}).daemonSets(t) {
		for _, ds := range sets {
			selector := ds.Spec.Template.Spec.NodeSelector
			if name == "node-discovery" {
				if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux", "tier": "gpu"}, selector); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				continue
			}
			for key := range selector {
				if !strings.HasPrefix(key, "nvidia.com/gpu") {
					t.Errorf("%s selects nodes by %s", name, key)
				}
			}
		}
	}
}

// The containers that the device plugin's block may name in other pods exist.
func TestContainersOfTheDevicePluginsBlock(t *testing.T) {
	s := situation{
		spec:  v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}}},
		nodes: []nodeinfo.Facts{mpsNode()},
	}
	uses := map[string]int{}
	for _, name := range []operand.Name{"device-plugin", "mps-control-daemon"} {
		for _, c := range containers(&s.daemonSet(t, name).Spec.Template.Spec) {
			uses[c.Name]++
		}
	}
	var exclusive []string
	for name, count := range uses {
		if count == 1 {
			exclusive = append(exclusive, name)
		}
	}
	plugin, _ := catalogue(t).Find("device-plugin")
	named := slices.Clone(plugin.Placement(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).OtherContainers)
	slices.Sort(exclusive)
	slices.Sort(named)
	if diff := cmp.Diff(exclusive, named); diff != "" {
		t.Errorf("containers that only one of the two has, -want +got:\n%s", diff)
	}
}
