package operand_test

import (
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var precompiled, toolkit = operand.PoolKey{Kernel: true}, operand.PoolKey{CoreOS: true}

// all is the same key for each node.
func all(key operand.PoolKey) func(operand.NodeFacts) operand.PoolKey {
	return func(operand.NodeFacts) operand.PoolKey { return key }
}

func TestPoolKeyFollowsTheSpec(t *testing.T) {
	tests := map[string]struct {
		driver  *v1.DriverSpec
		toolkit *bool
		want    operand.PoolKey
	}{
		"no driver block":    {want: toolkit},
		"nothing said":       {driver: &v1.DriverSpec{}, want: toolkit},
		"built":              {driver: &v1.DriverSpec{UsePrecompiled: new(false)}, toolkit: new(true), want: toolkit},
		"built by itself":    {toolkit: new(false)},
		"precompiled":        {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, want: precompiled},
		"precompiled anyway": {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, toolkit: new(true), want: precompiled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{Driver: test.driver, Operator: &v1.OperatorSpec{UseOCPDriverToolkit: test.toolkit}}
			if got := (operand.Input{Spec: effective.Of(spec)}).PoolKey(); got != test.want {
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
	for _, pool := range operand.Pools(nodes, all(precompiled)) {
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
	const release = "no discovery label for the release of Red Hat CoreOS, which the image of the driver toolkit is chosen by"
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
		"no release of CoreOS":                 {facts: coreOS(""), key: toolkit, want: release},
		"no release of another system":         {facts: known, key: toolkit},
		"no release, and no toolkit":           {facts: coreOS("")},
		"no facts, with the toolkit":           {key: toolkit, want: system},
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

// coreOS is a node of OpenShift up to 4.18.
func coreOS(release string) operand.NodeFacts {
	return operand.NodeFacts{HasGPU: true, OSID: "rhcos", OSVersion: "4.18", Architecture: "amd64", OSTree: release}
}

func TestPoolsByReleaseOfCoreOS(t *testing.T) {
	const release = "418.94.202501221327-0"
	long := "418." + strings.Repeat("9", 57)
	pool := operand.Pool{Name: "rhcos4.18-amd64-" + release, OSTag: "rhcos4.18", CoreOS: release}
	plain := operand.Pool{Name: "rhcos4.18-amd64", OSTag: "rhcos4.18"}
	newer := operand.NodeFacts{
		OSID: "rhel", OSVersion: "9.6", Architecture: "arm64", OSTree: "9.6.20260504-0",
		OSImage: "Red Hat Enterprise Linux CoreOS 9.6.20260504-0 (Plow)",
	}
	rhel := newer
	rhel.OSImage = "Red Hat Enterprise Linux 9.6 (Plow)"
	labelled := func(facts operand.NodeFacts, pool operand.Pool) operand.NodeFacts {
		facts.Pool, facts.PoolCoreOS, facts.PoolKernel = pool.Name, pool.CoreOS, pool.Kernel
		return facts
	}
	tests := map[string]struct {
		facts operand.NodeFacts
		key   operand.PoolKey
		want  operand.Pool
	}{
		"the release is part of the name":       {coreOS(release), toolkit, pool},
		"but not where the node builds alone":   {coreOS(release), operand.PoolKey{}, plain},
		"no release, no pool":                   {coreOS(""), toolkit, operand.Pool{}},
		"CoreOS with the ID of RHEL":            {newer, toolkit, operand.Pool{Name: "rhel9-arm64-9.6.20260504-0", OSTag: "rhel9", CoreOS: "9.6.20260504-0"}},
		"RHEL of image mode, which has one too": {rhel, toolkit, operand.Pool{Name: "rhel9-arm64", OSTag: "rhel9"}},
		"a release too long for a label":        {coreOS(long), toolkit, operand.Pool{Name: "rhcos4.18-amd64-79da5c5e1916575f", OSTag: "rhcos4.18", CoreOS: long}},
		"another release leaves it there":       {labelled(coreOS("418.94.202502000000-0"), pool), toolkit, pool},
		"lost facts leave it there":             {labelled(operand.NodeFacts{}, pool), toolkit, pool},
		"a switch to the toolkit leaves it":     {labelled(coreOS(release), plain), toolkit, plain},
		"and so does one back":                  {labelled(coreOS(release), pool), operand.PoolKey{}, pool},
		"a switch to precompiled leaves it":     {labelled(coreOS(release), pool), precompiled, pool},
		"a label without its release":           {labelled(coreOS("418.94.202502000000-0"), operand.Pool{Name: pool.Name}), operand.PoolKey{}, plain},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, complete := test.facts.EffectivePool(test.key)
			if diff := cmp.Diff(test.want, got); diff != "" || complete != (test.want.Name != "") {
				t.Errorf("%v, -want +got:\n%s", complete, diff)
			}
		})
	}
}

func TestTheDriverToolkitIsUsedWhereANodeNeedsIt(t *testing.T) {
	const release = "418.94.202501221327-0"
	off := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(false)}}
	inPool, excluded, cpuOnly := coreOS(release), coreOS(release), coreOS(release)
	inPool.Pool, inPool.PoolCoreOS = "rhcos4.18-amd64-"+release, release
	excluded.Excluded = true
	cpuOnly.HasGPU = false
	ubuntu := operand.NodeFacts{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []operand.NodeFacts
		want  bool
	}{
		"no nodes":                                {},
		"another system":                          {nodes: []operand.NodeFacts{ubuntu}},
		"one of many":                             {nodes: []operand.NodeFacts{ubuntu, coreOS(release)}, want: true},
		"a release that is not known":             {nodes: []operand.NodeFacts{coreOS("")}},
		"a node without GPU, and one of nobody":   {nodes: []operand.NodeFacts{cpuOnly, excluded}},
		"turned off":                              {spec: off, nodes: []operand.NodeFacts{coreOS(release)}},
		"turned off, and it runs still":           {spec: off, nodes: []operand.NodeFacts{inPool}, want: true},
		"precompiled":                             {spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: new(true)}}, nodes: []operand.NodeFacts{coreOS(release)}},
		"a driver of the host, for all the nodes": {spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}, nodes: []operand.NodeFacts{coreOS(release)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (operand.Input{Spec: effective.Of(test.spec)}).UsesDriverToolkit(each(test.nodes)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func each(nodes []operand.NodeFacts) iter.Seq[*operand.NodeFacts] {
	return func(yield func(*operand.NodeFacts) bool) {
		for i := range nodes {
			if !yield(&nodes[i]) {
				return
			}
		}
	}
}
