package operand_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestPoolOfANode(t *testing.T) {
	ubuntu := operand.Pool{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}
	tests := map[string]struct {
		facts     operand.NodeFacts
		tag       string
		wanted    operand.Pool
		effective operand.Pool
	}{
		"Ubuntu has images per minor version": {
			facts:  operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"},
			tag:    "ubuntu24.04",
			wanted: ubuntu, effective: ubuntu,
		},
		"RHEL has images per major version": {
			facts:     operand.NodeFacts{OSID: "rhel", OSVersion: "9.6", Architecture: "amd64"},
			tag:       "rhel9",
			wanted:    operand.Pool{Name: "rhel9-amd64", OSTag: "rhel9"},
			effective: operand.Pool{Name: "rhel9-amd64", OSTag: "rhel9"},
		},
		"Rocky has images per major version": {
			facts:     operand.NodeFacts{OSID: "rocky", OSVersion: "8.10", Architecture: "arm64"},
			tag:       "rocky8",
			wanted:    operand.Pool{Name: "rocky8-arm64", OSTag: "rocky8"},
			effective: operand.Pool{Name: "rocky8-arm64", OSTag: "rocky8"},
		},
		"Oracle Linux has images per major version": {
			facts:     operand.NodeFacts{OSID: "ol", OSVersion: "8.9", Architecture: "amd64"},
			tag:       "ol8",
			wanted:    operand.Pool{Name: "ol8-amd64", OSTag: "ol8"},
			effective: operand.Pool{Name: "ol8-amd64", OSTag: "ol8"},
		},
		"a major version without a minor one": {
			facts:     operand.NodeFacts{OSID: "rhel", OSVersion: "10", Architecture: "amd64"},
			tag:       "rhel10",
			wanted:    operand.Pool{Name: "rhel10-amd64", OSTag: "rhel10"},
			effective: operand.Pool{Name: "rhel10-amd64", OSTag: "rhel10"},
		},
		"the same system on another architecture is another pool": {
			facts:     operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "arm64"},
			tag:       "ubuntu24.04",
			wanted:    operand.Pool{Name: "ubuntu24.04-arm64", OSTag: "ubuntu24.04"},
			effective: operand.Pool{Name: "ubuntu24.04-arm64", OSTag: "ubuntu24.04"},
		},
		"no ID":      {facts: operand.NodeFacts{OSVersion: "24.04", Architecture: "amd64"}},
		"no version": {facts: operand.NodeFacts{OSID: "ubuntu", Architecture: "amd64"}},
		"no architecture gives no pool, though a tag": {
			facts: operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04"}, tag: "ubuntu24.04",
		},
		"nothing known": {},
		"lost discovery labels leave the node in the pool that it is labelled with": {
			facts: operand.NodeFacts{Pool: "ubuntu24.04-amd64"}, effective: ubuntu,
		},
		"another system leaves the node in its pool until an upgrade moves it": {
			facts:     operand.NodeFacts{OSID: "ubuntu", OSVersion: "26.04", Architecture: "amd64", Pool: "ubuntu24.04-amd64"},
			tag:       "ubuntu26.04",
			wanted:    operand.Pool{Name: "ubuntu26.04-amd64", OSTag: "ubuntu26.04"},
			effective: ubuntu,
		},
		"a label that names no pool is as good as none": {
			facts:  operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Pool: "nonsense"},
			tag:    "ubuntu24.04",
			wanted: ubuntu, effective: ubuntu,
		},
		"a label that starts with the separator is as good as none": {
			facts: operand.NodeFacts{Pool: "-amd64"},
		},
		"a name with hyphens is cut at the last one": {
			facts:     operand.NodeFacts{Pool: "opensuse-leap15.6-amd64"},
			effective: operand.Pool{Name: "opensuse-leap15.6-amd64", OSTag: "opensuse-leap15.6"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.facts.OSTag(); got != test.tag {
				t.Errorf("OSTag %q, want %q", got, test.tag)
			}
			wanted, complete := test.facts.WantedPool(operand.PoolKey{})
			if diff := cmp.Diff(test.wanted, wanted); diff != "" || complete != (test.wanted.Name != "") {
				t.Errorf("WantedPool %v, -want +got:\n%s", complete, diff)
			}
			effective, complete := test.facts.EffectivePool(operand.PoolKey{})
			if diff := cmp.Diff(test.effective, effective); diff != "" || complete != (test.effective.Name != "") {
				t.Errorf("EffectivePool %v, -want +got:\n%s", complete, diff)
			}
		})
	}
}

func TestPools(t *testing.T) {
	ubuntu := operand.NodeFacts{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	rhel := operand.NodeFacts{HasGPU: true, OSID: "rhel", OSVersion: "9.4", Architecture: "amd64"}
	minor := rhel
	minor.OSVersion = "9.6"
	lost := operand.NodeFacts{WasGPU: true, Pool: "ubuntu24.04-amd64"}
	unknown := operand.NodeFacts{HasGPU: true}
	cpuOnly := ubuntu
	cpuOnly.HasGPU = false
	excluded := ubuntu
	excluded.Excluded = true
	tests := map[string]struct {
		nodes []operand.NodeFacts
		want  []operand.Pool
	}{
		"no nodes": {want: []operand.Pool{}},
		"pools are sorted by name and count their nodes": {
			nodes: []operand.NodeFacts{ubuntu, rhel, ubuntu},
			want: []operand.Pool{
				{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 1}, {Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 2},
			},
		},
		"minor versions of RHEL share a pool": {
			nodes: []operand.NodeFacts{rhel, minor},
			want:  []operand.Pool{{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 2}},
		},
		"a node that lost its discovery labels still counts": {
			nodes: []operand.NodeFacts{ubuntu, lost},
			want:  []operand.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 2}},
		},
		"nodes without GPU, without facts or excluded make no pool": {
			nodes: []operand.NodeFacts{cpuOnly, unknown, excluded}, want: []operand.Pool{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, operand.Pools(test.nodes, all(operand.PoolKey{}))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestManaged(t *testing.T) {
	tests := map[string]struct {
		facts operand.NodeFacts
		want  bool
	}{
		"a node with a GPU":                      {operand.NodeFacts{HasGPU: true}, true},
		"a node that once had one":               {operand.NodeFacts{WasGPU: true}, true},
		"a node of which nothing is known":       {operand.NodeFacts{}, false},
		"a node that is discovered and has none": {operand.NodeFacts{Discovered: true}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.facts.Managed(); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
