package nodeinfo_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

func TestStandIn(t *testing.T) {
	for variant, test := range map[string]struct {
		want  nodeinfo.Facts
		known bool
	}{
		"":                        {known: true},
		"k3s":                     {nodeinfo.Facts{Layout: "k3s"}, true},
		"ubuntu24.04-arm64":       {nodeinfo.Facts{Pool: "ubuntu24.04-arm64", Architecture: "arm64"}, true},
		"ubuntu24.04-amd64-6.8.0": {nodeinfo.Facts{Pool: "ubuntu24.04-amd64-6.8.0", Architecture: "6.8.0"}, false},
		"amd64":                   {nodeinfo.Facts{Pool: "amd64"}, false},
	} {
		g := NewWithT(t)
		test.want.StandsIn, test.want.HasGPU = true, true
		got, known := nodeinfo.StandIn(variant)
		g.Expect(got).To(Equal(test.want), variant)
		g.Expect(known).To(Equal(test.known), variant)
	}
}

func TestStandInsLike(t *testing.T) {
	g := NewWithT(t)
	ubuntu := nodeinfo.Facts{
		StandsIn: true, HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", OSTree: "tree", OSImage: "image", Kernel: "6.8.0",
		Architecture: "amd64", Runtime: "containerd", Distribution: "k3s",
	}
	existing, excluded, unknown, arm := ubuntu, ubuntu, ubuntu, ubuntu
	existing.StandsIn, existing.Product = false, "H100"
	excluded.ExcludedByLabel, excluded.Kernel = true, "6.9.0"
	unknown.OSID = ""
	arm.Architecture = "arm64"
	g.Expect(nodeinfo.StandInsLike([]nodeinfo.Facts{excluded, existing, existing, unknown, arm})).
		To(Equal([]nodeinfo.Facts{ubuntu, arm}))
}

func TestEqual(t *testing.T) {
	facts := func(pool, label, deploy string) nodeinfo.Facts {
		return nodeinfo.Facts{
			Pool: pool, Labels: map[string]string{"a": label}, Deploy: map[string]string{"driver": deploy},
		}
	}
	for _, other := range []nodeinfo.Facts{facts("q", "1", "1"), facts("p", "2", "1"), facts("p", "1", "2")} {
		if facts("p", "1", "1").Equal(other) {
			t.Errorf("%v is equal", other)
		}
	}
	empty := nodeinfo.Facts{Labels: map[string]string{}}
	if !facts("p", "1", "1").Equal(facts("p", "1", "1")) || !empty.Equal(nodeinfo.Facts{}) {
		t.Error("not equal")
	}
}
