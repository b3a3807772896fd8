package nodeinfo_test

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// Discovery may remove all labels or some of them, or rename them.
func TestMissingLabels(t *testing.T) {
	const feature = "feature.node.kubernetes.io/"
	whole := map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64",
		feature + "pci-10de.present": "true", feature + "kernel-version.full": "6.8.0-60-generic",
		feature + "system-os_release.ID": "ubuntu", feature + "system-os_release.VERSION_ID": "24.04",
	}
	tests := map[string]struct {
		without []string
		with    map[string]string
		want    string
	}{
		"all labels": {},
		"discovery restarts": {
			without: []string{"pci-10de.present", "kernel-version.full", "system-os_release.ID", "system-os_release.VERSION_ID"},
			want:    "no discovery labels",
		},
		"all but the GPU": {without: []string{"pci-10de.present"}, want: "discovery labels show no GPU"},
		"the GPU label is false": {
			with: map[string]string{feature + "pci-10de.present": "false"},
			want: "discovery labels show no GPU",
		},
		"one label is back, but not that of the GPU": {
			without: []string{
				"pci-10de.present",
				"system-os_release.ID",
				"system-os_release.VERSION_ID",
			}, want: "discovery labels show no GPU",
		},
		"the GPU label has a device class": {
			without: []string{"pci-10de.present"}, with: map[string]string{feature + "pci-0302_10de.present": "true"},
		},
		"the GPU label has an unknown format": {
			without: []string{
				"pci-10de.present",
			}, with: map[string]string{feature + "pci-0302_10de_2330.present": "true"}, want: "discovery labels show no GPU",
		},
		"the GPU without the operating system": {
			without: []string{"system-os_release.VERSION_ID"},
			want:    "discovery labels show no operating system",
		},
		"no kernel, which the pool does not have": {without: []string{"kernel-version.full"}},
		"no kernel, which the pool has": {
			without: []string{
				"kernel-version.full",
			}, with: map[string]string{"nvidia.com/gpu-operator.pool-kernel": "6.8.0-60-generic"},
			want: "discovery labels show no kernel",
		},
		"no release, which the pool has": {
			with: map[string]string{
				"nvidia.com/gpu-operator.pool-coreos": "418.94.202501221327-0",
			}, want: "discovery labels show no release of Red Hat CoreOS",
		},
		"a node that never had a driver pool": {
			without: []string{"system-os_release.ID"},
			with:    map[string]string{"nvidia.com/gpu-operator.pool": ""},
		},
		"a node without the label of GPU nodes": {
			without: []string{"pci-10de.present"},
			with:    map[string]string{"nvidia.com/gpu.present": ""},
		},
		"a released node": {
			without: []string{"pci-10de.present"},
			with:    map[string]string{"nvidia.com/gpu.present": "false"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			labels := maps.Clone(whole)
			for _, key := range test.without {
				g.Expect(labels).To(HaveKey(feature + key))
				delete(labels, feature+key)
			}
			maps.Copy(labels, test.with)
			g.Expect(observe.Facts(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}).DescribeMissingLabels()).
				To(Equal(test.want))
		})
	}
}
