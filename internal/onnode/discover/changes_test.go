package discover

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	kernel  = labels.DiscoveryKernel
	present = labels.DiscoveryPCIPresent
	threeD  = labels.DiscoveryPCI3D
	count   = "nvidia.com/gpu.count"
)

// apply returns the result of a patch.
func apply(to map[string]string, changes map[string]*string) map[string]string {
	result := union(to)
	for key, value := range changes {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = *value
		}
	}
	return result
}

func TestPlan(t *testing.T) {
	type strs = map[string]string
	findings := func(all strs) Findings { return Findings{Labels: all} }
	tests := map[string]struct {
		mode        Mode // ModeAuto if empty.
		labels      strs
		annotations strs
		findings    Findings

		wantLabels strs // As before if nil.
		wantOwn    string
		silent     bool
		withNFD    bool
		stale      []string
	}{
		"labels a new node": {
			labels: strs{"a": "b"}, findings: findings(strs{kernel: "6.8", present: "true"}),
			wantLabels: strs{"a": "b", kernel: "6.8", present: "true"}, wantOwn: kernel + "," + present,
		},
		"is silent when nothing has changed": {
			labels: strs{kernel: "6.8", present: "true"}, annotations: strs{labels.DiscoveredLabels: kernel + "," + present},
			findings: findings(strs{kernel: "6.8", present: "true"}), wantOwn: kernel + "," + present, silent: true,
		},
		"is silent on a node without findings": {labels: strs{"a": "b"}, silent: true},
		"replaces another value": {
			labels: strs{kernel: "5.15", count: "1"}, findings: findings(strs{kernel: "6.8", count: "8"}),
			wantLabels: strs{kernel: "6.8", count: "8"}, wantOwn: kernel + "," + count,
		},
		"takes over a label with the right value": {
			labels: strs{kernel: "6.8"}, findings: findings(strs{kernel: "6.8"}), wantOwn: kernel,
		},
		"removes own labels that are no longer true, and no other": {
			labels:      strs{kernel: "6.8", present: "true", threeD: "true", count: "8", "a": "b"},
			annotations: strs{labels.DiscoveredLabels: kernel + "," + present + "," + count},
			findings:    findings(strs{kernel: "6.8"}),
			wantLabels:  strs{kernel: "6.8", threeD: "true", "a": "b"}, wantOwn: kernel,
		},
		"removes the annotation with the last own label": {
			labels: strs{kernel: "6.8"}, annotations: strs{labels.DiscoveredLabels: kernel}, wantLabels: strs{},
		},
		"removes an own label from the list that another client has removed": {
			annotations: strs{labels.DiscoveredLabels: present}, wantLabels: strs{},
		},
		"removes nothing that it may not write, even if the annotation lists it": {
			labels:      strs{"nvidia.com/gpu.deploy.driver": "false", "kubernetes.io/os": "linux"},
			annotations: strs{labels.DiscoveredLabels: "nvidia.com/gpu.deploy.driver,kubernetes.io/os,,x"},
		},
		"keeps own labels whose value cannot be read": {
			labels: strs{kernel: "6.8", present: "true"}, annotations: strs{labels.DiscoveredLabels: kernel + "," + present},
			findings: Findings{Labels: strs{kernel: "6.8"}, Unknown: map[string]bool{present: true}},
			wantOwn:  kernel + "," + present, silent: true,
		},
		"keeps own labels of GPU Feature Discovery while its file is missing": {
			labels: strs{present: "true", count: "8"}, annotations: strs{labels.DiscoveredLabels: present + "," + count},
			findings: Findings{KeepFeatures: true}, wantLabels: strs{count: "8"}, wantOwn: count,
		},
		"a new timestamp alone is not written": {
			labels:      strs{count: "8", labels.FeatureTimestamp: "1"},
			annotations: strs{labels.DiscoveredLabels: labels.FeatureTimestamp + "," + count},
			findings:    findings(strs{count: "8", labels.FeatureTimestamp: "2"}),
			wantOwn:     labels.FeatureTimestamp + "," + count, silent: true,
		},
		"a new timestamp is written with a change": {
			labels:      strs{count: "8", labels.FeatureTimestamp: "1"},
			annotations: strs{labels.DiscoveredLabels: labels.FeatureTimestamp + "," + count},
			findings:    findings(strs{count: "7", labels.FeatureTimestamp: "2"}),
			wantLabels:  strs{count: "7", labels.FeatureTimestamp: "2"}, wantOwn: labels.FeatureTimestamp + "," + count,
		},
		"the first timestamp is written": {
			findings:   findings(strs{labels.FeatureTimestamp: "1"}),
			wantLabels: strs{labels.FeatureTimestamp: "1"}, wantOwn: labels.FeatureTimestamp,
		},
		"NFD: labels that it lists are left alone": {
			labels:      strs{kernel: "6.8", present: "true"},
			annotations: strs{labels.NFDFeatureLabels: "kernel-version.full,pci-10de.present"},
			findings:    findings(strs{kernel: "6.8", present: "true", threeD: "true"}), silent: true, withNFD: true,
		},
		"NFD: labels that it lists are no longer own ones": {
			labels: strs{kernel: "6.8", present: "true", count: "8"},
			annotations: strs{
				labels.DiscoveredLabels: kernel + "," + present + "," + count,
				labels.NFDFeatureLabels: "cpu-model.family,kernel-version.full,pci-10de.present,nvidia.com/gpu.count",
			},
			findings: findings(strs{kernel: "6.8", present: "true", count: "8"}), withNFD: true,
		},
		"NFD: an own label that it does not list stays one, and is kept current": {
			labels: strs{kernel: "6.8", present: "true", threeD: "true", count: "8"},
			annotations: strs{
				labels.DiscoveredLabels: kernel + "," + present + "," + threeD + "," + count,
				labels.NFDFeatureLabels: "kernel-version.full,pci-10de.present",
			},
			findings:   findings(strs{kernel: "6.8", present: "true", count: "7"}),
			wantLabels: strs{kernel: "6.8", present: "true", count: "7"}, wantOwn: count, withNFD: true,
		},
		"NFD: labels that it does not list are discovery's": {
			labels:      strs{kernel: "6.8"},
			annotations: strs{labels.NFDFeatureLabels: "kernel-version.full"},
			findings:    findings(strs{kernel: "6.8", present: "true", threeD: "true", labels.DiscoveryOSTree: "418"}),
			wantLabels:  strs{kernel: "6.8", present: "true", threeD: "true", labels.DiscoveryOSTree: "418"},
			wantOwn:     threeD + "," + present + "," + labels.DiscoveryOSTree, withNFD: true,
		},
		"NFD: a stale label of it is named, and left alone": {
			labels:      strs{kernel: "5.15", count: "1"},
			annotations: strs{labels.NFDFeatureLabels: "kernel-version.full,system-os_release.ID,nvidia.com/gpu.count"},
			findings:    findings(strs{kernel: "6.8", labels.DiscoveryOSID: "ubuntu", count: "8"}), silent: true, withNFD: true,
			stale: []string{kernel, labels.DiscoveryOSID},
		},
		"NFD: a named instance counts too": {
			labels: strs{kernel: "6.8"}, annotations: strs{"blue." + labels.NFDFeatureLabels: "kernel-version.full"},
			findings: findings(strs{kernel: "6.8"}), silent: true, withNFD: true,
		},
		"NFD: its other annotations, and similar ones of other programs, are ignored": {
			annotations: strs{
				labels.NFDPrefix + "worker.version": "v0.14", "xnfd.node.kubernetes.io/feature-labels": "kernel-version.full",
				labels.NFDFeatureLabels: "",
			},
			findings: findings(strs{kernel: "6.8"}), wantLabels: strs{kernel: "6.8"}, wantOwn: kernel,
		},
		"builtin ignores NFD": {
			mode: ModeBuiltin, labels: strs{kernel: "5.15"},
			annotations: strs{labels.NFDFeatureLabels: "kernel-version.full,pci-10de.present"},
			findings:    findings(strs{kernel: "6.8", threeD: "true"}),
			wantLabels:  strs{kernel: "6.8", threeD: "true"}, wantOwn: kernel + "," + threeD,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			mode := tc.mode
			if mode == "" {
				mode = ModeAuto
			}
			node := nodeapi.NodeMetadata{Labels: tc.labels, Annotations: tc.annotations, ResourceVersion: "7"}
			got := newChanges(mode, node, tc.findings)
			if tc.wantLabels == nil {
				tc.wantLabels = union(tc.labels)
			}
			after := nodeapi.NodeMetadata{
				Labels: apply(tc.labels, got.patch.Labels), Annotations: apply(tc.annotations, got.patch.Annotations),
			}
			g.Expect(after.Labels).To(Equal(tc.wantLabels))
			g.Expect(after.Annotations[labels.DiscoveredLabels]).To(Equal(tc.wantOwn))
			if tc.wantOwn == "" {
				g.Expect(after.Annotations).NotTo(HaveKey(labels.DiscoveredLabels))
			}
			g.Expect(got.empty()).To(Equal(tc.silent))
			g.Expect(got.withNFD).To(Equal(tc.withNFD))
			g.Expect(got.stale).To(Equal(tc.stale))
			g.Expect(got.patch.ResourceVersion).To(Equal("7"))
			// A second comparison changes nothing.
			g.Expect(newChanges(mode, after, tc.findings).empty()).To(BeTrue())
		})
	}
}

// The number of GPUs stays while no driver is loaded, and is removed once there is no GPU.
func TestTheNumberOfGPUs(t *testing.T) {
	tests := map[string]struct {
		now      string
		findings Findings
		want     string
		silent   bool
	}{
		"the driver is loaded":         {findings: Findings{GPUsOnBus: 8}, want: "8"},
		"nothing has changed":          {now: "8", findings: Findings{GPUsOnBus: 8}, want: "8", silent: true},
		"a GPU is unbound":             {now: "8", findings: Findings{GPUsOnBus: 7}, want: "7"},
		"the driver is unloaded":       {now: "8", want: "8", silent: true},
		"there is no GPU any more":     {now: "8", findings: Findings{NoGPU: true}},
		"there has never been any GPU": {findings: Findings{NoGPU: true}, silent: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := nodeapi.NodeMetadata{Annotations: map[string]string{}}
			if test.now != "" {
				node.Annotations[labels.GPUsOnBus] = test.now
			}
			got := newChanges(ModeAuto, node, test.findings)
			g.Expect(apply(node.Annotations, got.patch.Annotations)[labels.GPUsOnBus]).To(Equal(test.want))
			g.Expect(got.empty()).To(Equal(test.silent))
		})
	}
}

func TestParseMode(t *testing.T) {
	g := NewWithT(t)
	for _, mode := range []Mode{ModeAuto, ModeBuiltin} {
		g.Expect(ParseMode(string(mode))).To(Equal(mode))
	}
	_, err := ParseMode("nfd")
	g.Expect(err).To(MatchError(`unknown discovery mode "nfd"; use auto or builtin`))
}
