package simulator

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestNodeDiscovery(t *testing.T) {
	const kernel = "feature.node.kubernetes.io/kernel-version.full"
	tests := map[string]struct {
		spec     NodeSpec
		labelled bool
		features string
		by       string
	}{
		"Node Feature Discovery, with its annotation": {
			spec: NodeSpec{}, labelled: true,
			features: "kernel-version.full,pci-0302_10de.present,pci-10de.present,system-os_release.ID," +
				"system-os_release.VERSION_ID", by: "nfd"},
		"Node Feature Discovery, on a node without a GPU": {
			spec: NodeSpec{NoGPU: true}, labelled: true,
			features: "kernel-version.full,system-os_release.ID,system-os_release.VERSION_ID", by: "nfd"},
		"gpu-node, later": {spec: NodeSpec{Undiscovered: true}, by: "gpu-node"},
		"never, whatever runs there": {
			spec: NodeSpec{Undiscovered: true, NeverDiscovered: true}, by: "never"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := tc.spec.withDefaults(0).node(0)
			_, labelled := node.Labels[kernel]
			g.Expect(labelled).To(Equal(tc.labelled))
			g.Expect(node.Annotations["nfd.node.kubernetes.io/feature-labels"]).To(Equal(tc.features))
			g.Expect(node.Annotations["simulator.gpu-operator/discovery"]).To(Equal(tc.by))
		})
	}
}

func TestAdvertisedGPUsAreAllocatableFromTheBeginning(t *testing.T) {
	g := NewWithT(t)
	allocatable := func(spec NodeSpec) int64 {
		quantity := spec.withDefaults(0).node(0).Status.Allocatable["nvidia.com/gpu"]
		return quantity.Value()
	}
	g.Expect(allocatable(NodeSpec{})).To(BeZero())
	g.Expect(allocatable(NodeSpec{Advertised: true})).To(Equal(int64(8)))
	g.Expect(allocatable(NodeSpec{Advertised: true, GPUs: 2})).To(Equal(int64(2)))
}
