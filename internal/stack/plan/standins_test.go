package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// TestKeepWithoutNodes: the DaemonSets in a cluster without a GPU node, by their variants.
func TestKeepWithoutNodes(t *testing.T) {
	plain := []string{"dcgm-exporter", "device-plugin", "gpu-feature-discovery", "operator-validator"}
	with := func(more ...string) []string { return slices.Sorted(slices.Values(slices.Concat(plain, more))) }
	ofDriver := func(driver v1.DriverSpec) v1.ClusterPolicySpec { return v1.ClusterPolicySpec{Driver: &driver} }
	withoutGPU := func(name string) nodeinfo.Facts {
		return changed(ubuntu(name), func(f *nodeinfo.Facts) { f.HasGPU = false })
	}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []nodeinfo.Facts
		live  []string
		want  []string
	}{
		"before the first node nothing is known of driver and toolkit": {want: plain},
		"GPU nodes are expected to have the systems of the other nodes": {
			nodes: []nodeinfo.Facts{
				withoutGPU("a"), withoutGPU("b"),
				changed(withoutGPU("c"), func(f *nodeinfo.Facts) { f.OSID, f.OSVersion, f.Runtime = "rhel", "9.6", "cri-o" }),
			},
			want: with(
				"container-toolkit containerd", "container-toolkit crio", "driver rhel9-amd64", "driver ubuntu24.04-amd64",
			),
		},
		"the kernels of the other nodes count for precompiled drivers": {
			spec: ofDriver(v1.DriverSpec{
				ImageSpec: v1.ImageSpec{Version: "580"}, UsePrecompiled: new(true),
			}),
			nodes: []nodeinfo.Facts{changed(withoutGPU("a"), func(f *nodeinfo.Facts) { f.Kernel = "6.8.0-60-generic" })},
			want:  with("container-toolkit containerd", "driver ubuntu24.04-amd64-6.8.0-60-generic"),
		},
		"a node that no discovery has seen shows nothing": {
			nodes: []nodeinfo.Facts{changed(withoutGPU("a"), func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "", "" })},
			want:  plain,
		},
		"what the last nodes had stays": {
			live: []string{"containerd", "rhel9-arm64", "ubuntu24.04-amd64"},
			want: with("container-toolkit containerd", "driver rhel9-arm64", "driver ubuntu24.04-amd64"),
		},
		"a variant that names no node is not installed again": {
			live: []string{"ubuntu24.04-amd64-6.8.0-60-generic", "ubuntu24.04-amd64-pool-a", "unknown"}, want: plain,
		},
		"a disabled operand does not stay": {
			spec: ofDriver(v1.DriverSpec{Enabled: new(false)}), live: []string{"ubuntu24.04-amd64"}, want: plain,
		},
		"the labels of nodes to come are unknown": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{PlacementSpec: v1.PlacementSpec{
				NodeSelector: v1.Labels{"zone": "a"},
			}}},
			want: plain,
		},
		"excluded nodes are none": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.ExcludedByLabel = true })},
			want:  plain,
		},
		"with a node its own facts decide": {
			nodes: []nodeinfo.Facts{ubuntu("a")}, live: []string{"rhel9-arm64"},
			want: with("container-toolkit containerd", "driver ubuntu24.04-amd64"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.spec.Operator = &v1.OperatorSpec{KeepWithoutNodes: new(true)}
			if diff := cmp.Diff(test.want, variants(t, test.spec, test.nodes, test.live)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			test.spec.Operator = nil
			if len(test.nodes) == 0 && len(variants(t, test.spec, test.nodes, test.live)) > 0 {
				t.Error("without the field nothing is to be installed")
			}
		})
	}
}

// variants returns the DaemonSets on GPU nodes that a plan applies, sorted: the operand, and the variant if it has any.
func variants(t *testing.T, spec v1.ClusterPolicySpec, nodes []nodeinfo.Facts, live []string) []string {
	t.Helper()
	d := plan.Decide(catalogue(t), operand.Input{Spec: effective.Of(spec), Namespace: "gpu-operator"})
	var found []string
	for _, step := range plan.Compute(d, nil, append(nodes, d.StandIns(nodes, live)...)).Steps {
		for _, instance := range step.Instances {
			if len(step.Operand.Workloads) == 0 {
				continue
			}
			name := string(step.Operand.Name)
			if variant := instance.Variant(); variant != "" {
				name += " " + variant
			}
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}
