package nodeinfo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

func TestPoolOfFacts(t *testing.T) {
	ubuntu := nodeinfo.Pool{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}
	tests := map[string]struct {
		facts     nodeinfo.Facts
		tag       string
		expected  nodeinfo.Pool
		effective nodeinfo.Pool
	}{
		"Ubuntu has images per minor version": {
			facts:    nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"},
			tag:      "ubuntu24.04",
			expected: ubuntu, effective: ubuntu,
		},
		"RHEL has images per major version": {
			facts:     nodeinfo.Facts{OSID: "rhel", OSVersion: "9.6", Architecture: "amd64"},
			tag:       "rhel9",
			expected:  nodeinfo.Pool{Name: "rhel9-amd64", OSTag: "rhel9"},
			effective: nodeinfo.Pool{Name: "rhel9-amd64", OSTag: "rhel9"},
		},
		"Rocky has images per major version": {
			facts:     nodeinfo.Facts{OSID: "rocky", OSVersion: "8.10", Architecture: "arm64"},
			tag:       "rocky8",
			expected:  nodeinfo.Pool{Name: "rocky8-arm64", OSTag: "rocky8"},
			effective: nodeinfo.Pool{Name: "rocky8-arm64", OSTag: "rocky8"},
		},
		"Oracle Linux has images per major version": {
			facts:     nodeinfo.Facts{OSID: "ol", OSVersion: "8.9", Architecture: "amd64"},
			tag:       "ol8",
			expected:  nodeinfo.Pool{Name: "ol8-amd64", OSTag: "ol8"},
			effective: nodeinfo.Pool{Name: "ol8-amd64", OSTag: "ol8"},
		},
		"a major version without a minor one": {
			facts:     nodeinfo.Facts{OSID: "rhel", OSVersion: "10", Architecture: "amd64"},
			tag:       "rhel10",
			expected:  nodeinfo.Pool{Name: "rhel10-amd64", OSTag: "rhel10"},
			effective: nodeinfo.Pool{Name: "rhel10-amd64", OSTag: "rhel10"},
		},
		"the same system on another architecture is another pool": {
			facts:     nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "arm64"},
			tag:       "ubuntu24.04",
			expected:  nodeinfo.Pool{Name: "ubuntu24.04-arm64", OSTag: "ubuntu24.04"},
			effective: nodeinfo.Pool{Name: "ubuntu24.04-arm64", OSTag: "ubuntu24.04"},
		},
		"no ID":      {facts: nodeinfo.Facts{OSVersion: "24.04", Architecture: "amd64"}},
		"no version": {facts: nodeinfo.Facts{OSID: "ubuntu", Architecture: "amd64"}},
		"no architecture: a tag, but no pool": {
			facts: nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04"}, tag: "ubuntu24.04",
		},
		"no facts": {},
		"missing discovery labels leave the node in the pool that it is labelled with": {
			facts: nodeinfo.Facts{Pool: "ubuntu24.04-amd64"}, effective: ubuntu,
		},
		"another operating system leaves the node in its pool until an upgrade moves it": {
			facts:     nodeinfo.Facts{OSID: "ubuntu", OSVersion: "26.04", Architecture: "amd64", Pool: "ubuntu24.04-amd64"},
			tag:       "ubuntu26.04",
			expected:  nodeinfo.Pool{Name: "ubuntu26.04-amd64", OSTag: "ubuntu26.04"},
			effective: ubuntu,
		},
		"a label that names no pool is ignored": {
			facts:    nodeinfo.Facts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Pool: "nonsense"},
			tag:      "ubuntu24.04",
			expected: ubuntu, effective: ubuntu,
		},
		"a label that starts with the separator is ignored": {
			facts: nodeinfo.Facts{Pool: "-amd64"},
		},
		"a name with hyphens is split at the last one": {
			facts:     nodeinfo.Facts{Pool: "opensuse-leap15.6-amd64"},
			effective: nodeinfo.Pool{Name: "opensuse-leap15.6-amd64", OSTag: "opensuse-leap15.6"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.facts.OSTag(); got != test.tag {
				t.Errorf("OSTag %q, want %q", got, test.tag)
			}
			expected, complete := test.facts.PoolByFacts(nodeinfo.PoolCriteria{})
			if diff := cmp.Diff(test.expected, expected); diff != "" || complete != (test.expected.Name != "") {
				t.Errorf("ExpectedPool %v, -want +got:\n%s", complete, diff)
			}
			effective, complete := test.facts.PoolInUse(nodeinfo.PoolCriteria{})
			if diff := cmp.Diff(test.effective, effective); diff != "" || complete != (test.effective.Name != "") {
				t.Errorf("EffectivePool %v, -want +got:\n%s", complete, diff)
			}
		})
	}
}

func TestPools(t *testing.T) {
	ubuntu := nodeinfo.Facts{HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64"}
	rhel := nodeinfo.Facts{HasGPU: true, OSID: "rhel", OSVersion: "9.4", Architecture: "amd64"}
	minor := rhel
	minor.OSVersion = "9.6"
	noFacts := nodeinfo.Facts{WasGPU: true, Pool: "ubuntu24.04-amd64"}
	unknown := nodeinfo.Facts{HasGPU: true}
	cpuOnly := ubuntu
	cpuOnly.HasGPU = false
	excluded := ubuntu
	excluded.ExcludedByLabel = true
	tests := map[string]struct {
		nodes []nodeinfo.Facts
		want  []nodeinfo.Pool
	}{
		"no nodes": {want: []nodeinfo.Pool{}},
		"pools are sorted by name and count their nodes": {
			nodes: []nodeinfo.Facts{ubuntu, rhel, ubuntu},
			want: []nodeinfo.Pool{
				{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 1}, {Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 2},
			},
		},
		"minor versions of RHEL share a pool": {
			nodes: []nodeinfo.Facts{rhel, minor},
			want:  []nodeinfo.Pool{{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 2}},
		},
		"a node whose discovery labels are missing still counts": {
			nodes: []nodeinfo.Facts{ubuntu, noFacts},
			want:  []nodeinfo.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 2}},
		},
		"nodes without GPU, without facts or excluded make no pool": {
			nodes: []nodeinfo.Facts{cpuOnly, unknown, excluded}, want: []nodeinfo.Pool{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, nodeinfo.Pools(test.nodes, all(nodeinfo.PoolCriteria{}))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestManaged(t *testing.T) {
	tests := map[string]struct {
		facts nodeinfo.Facts
		want  bool
	}{
		"a node with a GPU":                 {nodeinfo.Facts{HasGPU: true}, true},
		"a node labelled with a GPU before": {nodeinfo.Facts{WasGPU: true}, true},
		"a node without labels":             {nodeinfo.Facts{}, false},
		"a discovered node without GPU":     {nodeinfo.Facts{HasDiscoveryLabels: true}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.facts.Managed(); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
