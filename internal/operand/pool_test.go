package operand_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var precompiled = operand.PoolKey{Kernel: true}

func TestPoolKeyFollowsTheSpec(t *testing.T) {
	tests := map[string]struct {
		driver *v1.DriverSpec
		want   operand.PoolKey
	}{
		"no driver block": {},
		"nothing said":    {driver: &v1.DriverSpec{}},
		"built":           {driver: &v1.DriverSpec{UsePrecompiled: new(false)}},
		"precompiled":     {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, want: precompiled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (operand.Input{Spec: v1.ClusterPolicySpec{Driver: test.driver}}).PoolKey(); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestPoolsByKernel(t *testing.T) {
	const kernel = "6.8.0-51-generic"
	long := "6.8.0-" + strings.Repeat("9", 57)
	ubuntu := operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Kernel: kernel}
	pool := operand.Pool{Name: "ubuntu24.04-amd64-" + kernel, OSTag: "ubuntu24.04", Kernel: kernel}
	hashed := operand.Pool{Name: "ubuntu24.04-amd64-73382b2d47bd7fbe", OSTag: "ubuntu24.04", Kernel: long}
	in := func(pool operand.Pool, change func(*operand.NodeFacts)) operand.NodeFacts {
		facts := ubuntu
		facts.Pool, facts.PoolKernel = pool.Name, pool.Kernel
		change(&facts)
		return facts
	}
	built := operand.Pool{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}
	tests := map[string]struct {
		facts operand.NodeFacts
		key   operand.PoolKey
		want  operand.Pool
	}{
		"the kernel is part of the name":             {ubuntu, precompiled, pool},
		"but not of a driver that is built":          {ubuntu, operand.PoolKey{}, built},
		"a kernel too long for a label is hashed":    {in(operand.Pool{}, func(f *operand.NodeFacts) { f.Kernel = long }), precompiled, hashed},
		"no kernel, no pool":                         {in(operand.Pool{}, func(f *operand.NodeFacts) { f.Kernel = "" }), precompiled, operand.Pool{}},
		"lost facts leave the node in its pool":      {operand.NodeFacts{Pool: pool.Name, PoolKernel: kernel}, precompiled, pool},
		"the same of a hashed kernel":                {operand.NodeFacts{Pool: hashed.Name, PoolKernel: long}, precompiled, hashed},
		"another kernel leaves the node in its pool": {in(pool, func(f *operand.NodeFacts) { f.Kernel = "6.8.0-52-generic" }), precompiled, pool},
		"the same from a hashed kernel":              {in(hashed, func(*operand.NodeFacts) {}), precompiled, hashed},
		"a switch to precompiled leaves it there":    {in(built, func(*operand.NodeFacts) {}), precompiled, built},
		"and so does one back":                       {in(pool, func(*operand.NodeFacts) {}), operand.PoolKey{}, pool},
		"a kernel with an architecture in its name": {
			operand.NodeFacts{Architecture: "amd64", Pool: "debian12-amd64-6.1.0-13-amd64", PoolKernel: "6.1.0-13-amd64"},
			precompiled, operand.Pool{Name: "debian12-amd64-6.1.0-13-amd64", OSTag: "debian12", Kernel: "6.1.0-13-amd64"},
		},
		"a label without its kernel says nothing": {
			in(operand.Pool{Name: pool.Name}, func(f *operand.NodeFacts) { f.Kernel = "6.8.0-52-generic" }), precompiled,
			operand.Pool{Name: "ubuntu24.04-amd64-6.8.0-52-generic", OSTag: "ubuntu24.04", Kernel: "6.8.0-52-generic"},
		},
		"nor does one with the kernel of another": {operand.NodeFacts{Pool: pool.Name, PoolKernel: "other"}, precompiled, operand.Pool{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, complete := test.facts.EffectivePool(test.key)
			if diff := cmp.Diff(test.want, got); diff != "" || complete != (test.want.Name != "") {
				t.Errorf("%v, -want +got:\n%s", complete, diff)
			}
			if len(got.Name) > 63 {
				t.Errorf("%q is too long for a label", got.Name)
			}
		})
	}
}

// Nodes that differ in system, kernel or architecture never share a driver.
func TestPoolsTellNodesApart(t *testing.T) {
	node := func(id, version, architecture, kernel string) operand.NodeFacts {
		return operand.NodeFacts{HasGPU: true, OSID: id, OSVersion: version, Architecture: architecture, Kernel: kernel}
	}
	nodes := []operand.NodeFacts{
		node("rhel", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"), node("rhel", "9.6", "arm64", "5.14.0-503.el9_5.aarch64"),
		node("rhel", "9.6", "amd64", "5.14.0-570.el9_6.x86_64"), node("rocky", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"),
		node("rhel", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"),
	}
	var names []string
	for _, pool := range operand.Pools(nodes, precompiled) {
		names = append(names, pool.Name)
	}
	want := []string{
		"rhel9-amd64-5.14.0-503.el9_5.x86_64", "rhel9-amd64-5.14.0-570.el9_6.x86_64",
		"rhel9-arm64-5.14.0-503.el9_5.aarch64", "rocky9-amd64-5.14.0-503.el9_5.x86_64",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHasPool(t *testing.T) {
	const system = "no discovery labels for the operating system, which the driver image is chosen by"
	const kernel = "no discovery label for the kernel, which the precompiled driver image is chosen by"
	known := operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	tests := map[string]struct {
		facts operand.NodeFacts
		key   operand.PoolKey
		want  string
	}{
		"all facts":                            {facts: known},
		"facts lost, but labelled with a pool": {facts: operand.NodeFacts{Pool: "ubuntu24.04-amd64"}},
		"no facts":                             {want: system},
		"no facts, precompiled":                {key: precompiled, want: system},
		"no kernel":                            {facts: known, key: precompiled, want: kernel},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := operand.Decision{}
			if test.want != "" {
				want = operand.Refused(v1.ReasonFactsMissing, test.want)
			}
			if diff := cmp.Diff(want, test.facts.HasPool(test.key)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
