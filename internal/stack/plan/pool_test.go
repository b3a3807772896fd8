package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestCheckPoolKnown(t *testing.T) {
	precompiled, toolkit := nodeinfo.PoolCriteria{Kernel: true}, nodeinfo.PoolCriteria{CoreOS: true}
	coreOS := nodeinfo.Facts{HasGPU: true, OSID: "rhcos", OSVersion: "4.18", Architecture: "amd64"}
	const system = "no discovery labels for the operating system, which select the driver image"
	const kernel = "no discovery label for the kernel, which selects the precompiled driver image"
	const release = "no discovery label for the release of Red Hat CoreOS, which selects the image of the driver toolkit"
	known := nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	tests := map[string]struct {
		facts nodeinfo.Facts
		key   nodeinfo.PoolCriteria
		want  string
	}{
		"all facts":                          {facts: known},
		"no facts, but labelled with a pool": {facts: nodeinfo.Facts{Pool: "ubuntu24.04-amd64"}},
		"no facts":                           {want: system},
		"no facts, precompiled":              {key: precompiled, want: system},
		"no kernel":                          {facts: known, key: precompiled, want: kernel},
		"no release of CoreOS":               {facts: coreOS, key: toolkit, want: release},
		"no release of another system":       {facts: known, key: toolkit},
		"no release, and no toolkit":         {facts: coreOS},
		"no facts, with the toolkit":         {key: toolkit, want: system},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := operand.Decision{}
			if test.want != "" {
				want = operand.Refuse(v1.ReasonFactsMissing, test.want)
			}
			if diff := cmp.Diff(want, checkPoolKnown(test.facts, test.key)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
