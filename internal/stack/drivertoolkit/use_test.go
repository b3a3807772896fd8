package drivertoolkit_test

import (
	"iter"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/drivertoolkit"
)

func TestIsUsed(t *testing.T) {
	const release = "418.94.202501221327-0"
	off := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(false)}}
	inPool, excluded, cpuOnly := coreOS(release), coreOS(release), coreOS(release)
	inPool.Pool, inPool.PoolCoreOS = "rhcos4.18-amd64-"+release, release
	excluded.ExcludedByLabel = true
	cpuOnly.HasGPU = false
	ubuntu := nodeinfo.Facts{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []nodeinfo.Facts
		want  bool
	}{
		"no nodes":           {},
		"another system":     {nodes: []nodeinfo.Facts{ubuntu}},
		"one of many":        {nodes: []nodeinfo.Facts{ubuntu, coreOS(release)}, want: true},
		"an unknown release": {nodes: []nodeinfo.Facts{coreOS("")}},
		"a node without GPU, and an excluded one": {nodes: []nodeinfo.Facts{cpuOnly, excluded}},
		"disabled":                    {spec: off, nodes: []nodeinfo.Facts{coreOS(release)}},
		"disabled, and still running": {spec: off, nodes: []nodeinfo.Facts{inPool}, want: true},
		"precompiled": {
			spec:  v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: new(true)}},
			nodes: []nodeinfo.Facts{coreOS(release)},
		},
		"drivers on the hosts": {
			spec:  v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			nodes: []nodeinfo.Facts{coreOS(release)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := drivertoolkit.IsUsed(operand.Input{Spec: effective.Of(test.spec)}, each(test.nodes)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestUseOf(t *testing.T) {
	const release, other = "418.94.202501221327-0", "419.96.202601010000-0"
	off := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(false)}}
	unknownInPool := coreOS("")
	unknownInPool.Pool, unknownInPool.PoolCoreOS = "rhcos4.18-amd64-"+release, release
	one := []nodeinfo.Facts{coreOS(release)}
	tests := map[string]struct {
		spec   v1.ClusterPolicySpec
		images map[string]string
		nodes  []nodeinfo.Facts
		want   drivertoolkit.Use
	}{
		"no nodes": {},
		"another system, and no ImageStream": {
			nodes: []nodeinfo.Facts{{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}},
		},
		"complete": {
			nodes: one, images: map[string]string{release: "quay.io/a", "latest": ""},
			want: drivertoolkit.Use{Needed: true},
		},
		"no ImageStream": {nodes: one, want: drivertoolkit.Use{Needed: true, StreamMissing: true}},
		"no tag for one of two releases": {
			nodes: []nodeinfo.Facts{coreOS(release), coreOS(other)}, images: map[string]string{other: "quay.io/a"},
			want: drivertoolkit.Use{Needed: true, TagMissing: true},
		},
		"a tag without an image": {
			nodes: one, images: map[string]string{release: ""}, want: drivertoolkit.Use{Needed: true, StreamBroken: true},
		},
		"a tag without a name": {
			nodes: one, images: map[string]string{release: "quay.io/a", "": ""},
			want: drivertoolkit.Use{Needed: true, StreamBroken: true},
		},
		"an unknown release": {
			nodes: []nodeinfo.Facts{coreOS("")}, want: drivertoolkit.Use{Needed: true, ReleaseUnknown: true},
		},
		"an unknown release of a node that has a driver": {
			nodes: []nodeinfo.Facts{unknownInPool}, images: map[string]string{release: "quay.io/a"},
			want: drivertoolkit.Use{Needed: true, ReleaseUnknown: true},
		},
		"turned off": {spec: off, nodes: []nodeinfo.Facts{coreOS(release), coreOS("")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), DriverToolkit: test.images}
			if got := drivertoolkit.UseOf(in, each(test.nodes)); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// coreOS is a node of OpenShift 4.18 or older.
func coreOS(release string) nodeinfo.Facts {
	return nodeinfo.Facts{HasGPU: true, OSID: "rhcos", OSVersion: "4.18", Architecture: "amd64", OSTree: release}
}

func each(nodes []nodeinfo.Facts) iter.Seq[*nodeinfo.Facts] {
	return func(yield func(*nodeinfo.Facts) bool) {
		for i := range nodes {
			if !yield(&nodes[i]) {
				return
			}
		}
	}
}
