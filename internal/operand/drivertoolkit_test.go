package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestUsesDriverToolkit(t *testing.T) {
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
			if got := (operand.Input{Spec: effective.Of(test.spec)}).UsesDriverToolkit(each(test.nodes)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestDriverToolkitUse(t *testing.T) {
	const release, other = "418.94.202501221327-0", "419.96.202601010000-0"
	off := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(false)}}
	unknownInPool := coreOS("")
	unknownInPool.Pool, unknownInPool.PoolCoreOS = "rhcos4.18-amd64-"+release, release
	one := []nodeinfo.Facts{coreOS(release)}
	tests := map[string]struct {
		spec   v1.ClusterPolicySpec
		images map[string]string
		nodes  []nodeinfo.Facts
		want   operand.DriverToolkitUse
	}{
		"no nodes": {},
		"another system, and no ImageStream": {
			nodes: []nodeinfo.Facts{{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}},
		},
		"complete": {
			nodes: one, images: map[string]string{release: "quay.io/a", "latest": ""},
			want: operand.DriverToolkitUse{Needed: true},
		},
		"no ImageStream": {nodes: one, want: operand.DriverToolkitUse{Needed: true, StreamMissing: true}},
		"no tag for one of two releases": {
			nodes: []nodeinfo.Facts{coreOS(release), coreOS(other)}, images: map[string]string{other: "quay.io/a"},
			want: operand.DriverToolkitUse{Needed: true, TagMissing: true},
		},
		"a tag without an image": {
			nodes: one, images: map[string]string{release: ""}, want: operand.DriverToolkitUse{Needed: true, StreamBroken: true},
		},
		"a tag without a name": {
			nodes: one, images: map[string]string{release: "quay.io/a", "": ""},
			want: operand.DriverToolkitUse{Needed: true, StreamBroken: true},
		},
		"an unknown release": {
			nodes: []nodeinfo.Facts{coreOS("")}, want: operand.DriverToolkitUse{Needed: true, ReleaseUnknown: true},
		},
		"an unknown release of a node that has a driver": {
			nodes: []nodeinfo.Facts{unknownInPool}, images: map[string]string{release: "quay.io/a"},
			want: operand.DriverToolkitUse{Needed: true, ReleaseUnknown: true},
		},
		"turned off": {spec: off, nodes: []nodeinfo.Facts{coreOS(release), coreOS("")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), DriverToolkit: test.images}
			if got := in.DriverToolkitUse(each(test.nodes)); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
