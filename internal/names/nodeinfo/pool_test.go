package nodeinfo_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

var precompiled, toolkit = nodeinfo.PoolCriteria{Kernel: true}, nodeinfo.PoolCriteria{CoreOS: true}

// all returns the same key for each node.
func all(key nodeinfo.PoolCriteria) func(nodeinfo.Facts) nodeinfo.PoolCriteria {
	return func(nodeinfo.Facts) nodeinfo.PoolCriteria { return key }
}

func TestPoolsByKernel(t *testing.T) {
	const kernel = "6.8.0-51-generic"
	long := "6.8.0-" + strings.Repeat("9", 57)
	ubuntu := nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Kernel: kernel}
	pool := nodeinfo.Pool{Name: "ubuntu24.04-amd64-" + kernel, OSTag: "ubuntu24.04", Kernel: kernel}
	hashed := nodeinfo.Pool{Name: "ubuntu24.04-amd64-73382b2d47bd7fbe", OSTag: "ubuntu24.04", Kernel: long}
	in := func(pool nodeinfo.Pool, change func(*nodeinfo.Facts)) nodeinfo.Facts {
		facts := ubuntu
		facts.Pool, facts.PoolKernel = pool.Name, pool.Kernel
		change(&facts)
		return facts
	}
	built := nodeinfo.Pool{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}
	tests := map[string]struct {
		facts nodeinfo.Facts
		key   nodeinfo.PoolCriteria
		want  nodeinfo.Pool
	}{
		"the kernel is part of the name": {ubuntu, precompiled, pool},
		"not if the driver is built":     {ubuntu, nodeinfo.PoolCriteria{}, built},
		"a kernel too long for a label is hashed": {
			in(nodeinfo.Pool{}, func(f *nodeinfo.Facts) { f.Kernel = long }),
			precompiled,
			hashed,
		},
		"no kernel, no pool": {
			in(nodeinfo.Pool{}, func(f *nodeinfo.Facts) { f.Kernel = "" }),
			precompiled,
			nodeinfo.Pool{},
		},
		"the pool by the facts": {in(pool, func(*nodeinfo.Facts) {}), precompiled, pool},
		"missing facts leave the node in its pool": {
			nodeinfo.Facts{Pool: pool.Name, PoolKernel: kernel},
			precompiled,
			pool,
		},
		"missing facts and a hashed kernel": {
			nodeinfo.Facts{Pool: hashed.Name, PoolKernel: long},
			precompiled,
			hashed,
		},
		"another kernel leaves the node in its pool": {
			in(pool, func(f *nodeinfo.Facts) { f.Kernel = "6.8.0-52-generic" }),
			precompiled,
			pool,
		},
		"another kernel than the hashed one":            {in(hashed, func(*nodeinfo.Facts) {}), precompiled, hashed},
		"a switch to precompiled leaves it in its pool": {in(built, func(*nodeinfo.Facts) {}), precompiled, built},
		"so does a switch back":                         {in(pool, func(*nodeinfo.Facts) {}), nodeinfo.PoolCriteria{}, pool},
		"a kernel with an architecture in its name": {
			nodeinfo.Facts{Architecture: "amd64", Pool: "debian12-amd64-6.1.0-13-amd64", PoolKernel: "6.1.0-13-amd64"},
			precompiled, nodeinfo.Pool{Name: "debian12-amd64-6.1.0-13-amd64", OSTag: "debian12", Kernel: "6.1.0-13-amd64"},
		},
		"a label without its kernel is ignored": {
			in(nodeinfo.Pool{Name: pool.Name}, func(f *nodeinfo.Facts) { f.Kernel = "6.8.0-52-generic" }), precompiled,
			nodeinfo.Pool{Name: "ubuntu24.04-amd64-6.8.0-52-generic", OSTag: "ubuntu24.04", Kernel: "6.8.0-52-generic"},
		},
		"so is one with another kernel": {nodeinfo.Facts{Pool: pool.Name, PoolKernel: "other"}, precompiled, nodeinfo.Pool{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, complete := test.facts.PoolInUse(test.key)
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
func TestPoolsSeparateNodes(t *testing.T) {
	node := func(id, version, architecture, kernel string) nodeinfo.Facts {
		return nodeinfo.Facts{HasGPU: true, OSID: id, OSVersion: version, Architecture: architecture, Kernel: kernel}
	}
	nodes := []nodeinfo.Facts{
		node("rhel", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"), node("rhel", "9.6", "arm64", "5.14.0-503.el9_5.aarch64"),
		node("rhel", "9.6", "amd64", "5.14.0-570.el9_6.x86_64"), node("rocky", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"),
		node("rhel", "9.6", "amd64", "5.14.0-503.el9_5.x86_64"),
	}
	var names []string
	for _, pool := range nodeinfo.Pools(nodes, all(precompiled)) {
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

// coreOS is a node of OpenShift 4.18 or older.
func coreOS(release string) nodeinfo.Facts {
	return nodeinfo.Facts{HasGPU: true, OSID: "rhcos", OSVersion: "4.18", Architecture: "amd64", OSTree: release}
}

func TestPoolsByReleaseOfCoreOS(t *testing.T) {
	const release = "418.94.202501221327-0"
	long := "418." + strings.Repeat("9", 57)
	pool := nodeinfo.Pool{Name: "rhcos4.18-amd64-" + release, OSTag: "rhcos4.18", CoreOS: release}
	plain := nodeinfo.Pool{Name: "rhcos4.18-amd64", OSTag: "rhcos4.18"}
	newer := nodeinfo.Facts{
		OSID: "rhel", OSVersion: "9.6", Architecture: "arm64", OSTree: "9.6.20260504-0",
		OSImage: "Red Hat Enterprise Linux CoreOS 9.6.20260504-0 (Plow)",
	}
	rhel := newer
	rhel.OSImage = "Red Hat Enterprise Linux 9.6 (Plow)"
	labelled := func(facts nodeinfo.Facts, pool nodeinfo.Pool) nodeinfo.Facts {
		facts.Pool, facts.PoolCoreOS, facts.PoolKernel = pool.Name, pool.CoreOS, pool.Kernel
		return facts
	}
	tests := map[string]struct {
		facts nodeinfo.Facts
		key   nodeinfo.PoolCriteria
		want  nodeinfo.Pool
	}{
		"the release is part of the name": {coreOS(release), toolkit, pool},
		"not without the driver toolkit":  {coreOS(release), nodeinfo.PoolCriteria{}, plain},
		"no release, no pool":             {coreOS(""), toolkit, nodeinfo.Pool{}},
		"CoreOS with the ID of RHEL": {
			newer,
			toolkit,
			nodeinfo.Pool{Name: "rhel9-arm64-9.6.20260504-0", OSTag: "rhel9", CoreOS: "9.6.20260504-0"},
		},
		"RHEL in image mode, which also has a release": {rhel, toolkit, nodeinfo.Pool{Name: "rhel9-arm64", OSTag: "rhel9"}},
		"a release too long for a label": {
			coreOS(long),
			toolkit,
			nodeinfo.Pool{Name: "rhcos4.18-amd64-79da5c5e1916575f", OSTag: "rhcos4.18", CoreOS: long},
		},
		"another release leaves it in its pool": {labelled(coreOS("418.94.202502000000-0"), pool), toolkit, pool},
		"missing facts leave it in its pool":    {labelled(nodeinfo.Facts{}, pool), toolkit, pool},
		"a switch to the toolkit does, too":     {labelled(coreOS(release), plain), toolkit, plain},
		"so does a switch back":                 {labelled(coreOS(release), pool), nodeinfo.PoolCriteria{}, pool},
		"a switch to precompiled does, too":     {labelled(coreOS(release), pool), precompiled, pool},
		"a label without its release is ignored": {
			labelled(coreOS("418.94.202502000000-0"), nodeinfo.Pool{Name: pool.Name}),
			nodeinfo.PoolCriteria{},
			plain,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, complete := test.facts.PoolInUse(test.key)
			if diff := cmp.Diff(test.want, got); diff != "" || complete != (test.want.Name != "") {
				t.Errorf("%v, -want +got:\n%s", complete, diff)
			}
		})
	}
}

// The labels of a node identify its driver pool whatever its current facts are, and no two pools have the same name.
func TestDriverPoolsOfNodePools(t *testing.T) {
	plain := nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Kernel: "6.8.0-51-generic"}
	arm := plain
	arm.Architecture = "arm64"
	release := coreOS("418.94.202501221327-0")
	names := map[string]nodeinfo.Pool{}
	for _, nodePool := range []string{"", "a100", "a100-generic", "generic", strings.Repeat("a", 40)} {
		for _, facts := range []nodeinfo.Facts{plain, arm, release} {
			for _, key := range []nodeinfo.PoolCriteria{{}, {Kernel: true}, {CoreOS: true}} {
				key.NodePool = nodePool
				pool, complete := facts.PoolByFacts(key)
				if !complete {
					continue // CoreOS has no kernel here.
				}
				if other, taken := names[pool.Name]; taken && other != pool {
					t.Errorf("%+v and %+v have the same name", pool, other)
				}
				names[pool.Name] = pool
				moved := facts
				moved.Pool, moved.PoolKernel = pool.Name, pool.Kernel
				moved.PoolCoreOS, moved.PoolNodePool = pool.CoreOS, pool.NodePool
				moved.OSVersion = "26.04"
				if got, _ := moved.PoolInUse(nodeinfo.PoolCriteria{}); got != pool {
					t.Errorf("the labels of %+v name %+v", pool, got)
				}
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("%d pools are too few", len(names))
	}
	if got := names["ubuntu24.04-amd64-a100-6.8.0-51-generic"]; got.NodePool != "a100" {
		t.Errorf("no pool has that name: %+v", got)
	}
}
