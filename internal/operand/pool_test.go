package operand_test

import (
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var precompiled, toolkit = nodeinfo.PoolCriteria{Kernel: true}, nodeinfo.PoolCriteria{CoreOS: true}

func TestPoolKeyFollowsTheSpec(t *testing.T) {
	tests := map[string]struct {
		driver  *v1.DriverSpec
		toolkit *bool
		want    nodeinfo.PoolCriteria
	}{
		"no driver block":           {want: toolkit},
		"an empty block":            {driver: &v1.DriverSpec{}, want: toolkit},
		"built":                     {driver: &v1.DriverSpec{UsePrecompiled: new(false)}, toolkit: new(true), want: toolkit},
		"built without the toolkit": {toolkit: new(false)},
		"precompiled":               {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, want: precompiled},
		"precompiled anyway": {
			driver:  &v1.DriverSpec{UsePrecompiled: new(true)},
			toolkit: new(true),
			want:    precompiled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{Driver: test.driver, Operator: &v1.OperatorSpec{UseOCPDriverToolkit: test.toolkit}}
			if got := (operand.Input{Spec: effective.Of(spec)}).PoolCriteria(); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCheckPool(t *testing.T) {
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
		"no release of CoreOS":               {facts: coreOS(""), key: toolkit, want: release},
		"no release of another system":       {facts: known, key: toolkit},
		"no release, and no toolkit":         {facts: coreOS("")},
		"no facts, with the toolkit":         {key: toolkit, want: system},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := operand.Decision{}
			if test.want != "" {
				want = operand.Refuse(v1.ReasonFactsMissing, test.want)
			}
			if diff := cmp.Diff(want, operand.CheckPool(test.facts, test.key)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
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
