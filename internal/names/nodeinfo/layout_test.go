package nodeinfo_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// nodeTraits are the properties of a node of some distribution.
type nodeTraits struct {
	runtime, version, kubelet, image string
	labels                           []string
}

func (n nodeTraits) facts() nodeinfo.Facts {
	traits := nodeinfo.Traits{Kubelet: n.kubelet, OSImage: n.image, RuntimeVersion: n.version, Labels: map[string]string{}}
	for _, key := range n.labels {
		traits.Labels[key] = "true"
	}
	return nodeinfo.Facts{
		HasGPU: true, Runtime: n.runtime, RuntimeVersion: n.version, Distribution: nodeinfo.DistributionOf(traits),
	}
}

func TestExpectedLayout(t *testing.T) {
	tests := map[string]struct {
		nodeTraits
		// layout is empty if there is none.
		layout, config, socket string
	}{
		"kubeadm": {
			nodeTraits{runtime: "containerd", version: "1.7.27", kubelet: "v1.33.4", image: "Ubuntu 24.04.3 LTS"},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"EKS": {
			nodeTraits{
				runtime: "containerd", version: "1.7.27", kubelet: "v1.33.3-eks-3abbec1", image: "Amazon Linux 2023.8.20250915",
				labels: []string{"eks.amazonaws.com/nodegroup"},
			},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"AKS": {
			nodeTraits{
				runtime: "containerd", version: "1.7.27-1", kubelet: "v1.33.3", image: "Ubuntu 22.04.5 LTS",
				labels: []string{"kubernetes.azure.com/cluster"},
			},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"GKE before 1.33": {
			nodeTraits{
				runtime: "containerd",
				version: "1.7.24",
				kubelet: "v1.32.8-gke.1134000",
				labels:  []string{"cloud.google.com/gke-nodepool"},
			},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"GKE": {
			nodeTraits{
				runtime: "containerd",
				version: "2.0.4",
				kubelet: "v1.33.4-gke.1245000",
				labels:  []string{"cloud.google.com/gke-nodepool"},
			},
			"gke", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"k3s": {
			nodeTraits{runtime: "containerd", version: "2.1.4-k3s1", kubelet: "v1.34.1+k3s1"},
			"k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/run/k3s/containerd/containerd.sock",
		},
		"k3s on Docker": {
			nodeTraits{runtime: "docker", version: "28.3.3", kubelet: "v1.34.1+k3s1"},
			"docker", "/etc/docker/daemon.json", "/var/run/docker.sock",
		},
		"RKE2, which has the engine of k3s": {
			nodeTraits{runtime: "containerd", version: "2.1.4-k3s2", kubelet: "v1.34.1+rke2r1"},
			"rke2", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "/run/k3s/containerd/containerd.sock",
		},
		"k0s": {
			nodeTraits{runtime: "containerd", version: "1.7.28", kubelet: "v1.33.4+k0s"},
			"k0s", "/run/nvidia/toolkit/k0s-unused.toml", "/run/k0s/containerd.sock",
		},
		"MicroK8s": {
			nodeTraits{runtime: "containerd", version: "1.6.36", kubelet: "v1.33.4", labels: []string{"microk8s.io/cluster"}},
			"microk8s",
			"/var/snap/microk8s/current/args/containerd-template.toml",
			"/var/snap/microk8s/common/run/containerd.sock",
		},
		"OpenShift": {
			nodeTraits{
				runtime: "cri-o",
				version: "1.32.9-2.rhaos4.19",
				kubelet: "v1.32.9",
				labels:  []string{"node.openshift.io/os_id"},
			},
			"openshift", "/etc/crio/config.toml", "",
		},
		"CRI-O": {nodeTraits{runtime: "cri-o", version: "1.34.0", kubelet: "v1.34.1"}, "crio", "/etc/crio/config.toml", ""},
		"Docker": {
			nodeTraits{runtime: "docker", version: "28.3.3", kubelet: "v1.34.1"},
			"docker",
			"/etc/docker/daemon.json",
			"/var/run/docker.sock",
		},
		"Talos": {
			nodeTraits{runtime: "containerd", version: "2.1.4", kubelet: "v1.34.1", image: "Talos (v1.11.2)"}, "talos", "", "",
		},
		"Bottlerocket": {
			nodeTraits{
				runtime: "containerd",
				version: "1.7.28+bottlerocket",
				kubelet: "v1.33.4-eks-e386d34",
				image:   "Bottlerocket OS 1.47.0 (aws-k8s-1.33-nvidia)",
			}, "bottlerocket", "", "",
		},
		"the engine of k3s in another distribution": {
			nodeTraits{runtime: "containerd", version: "2.1.4-k3s1", kubelet: "v1.34.1"}, "k3s-engine", "", "",
		},
		"containerd that refuses drop-ins of a newer version": {
			nodeTraits{
				runtime: "containerd", version: "2.3.2-1", kubelet: "v1.36.1", image: "Ubuntu 24.04.4 LTS",
				labels: []string{"kubernetes.azure.com/cluster"},
			},
			"containerd-file", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"containerd just before that": {
			nodeTraits{runtime: "containerd", version: "2.2.9", kubelet: "v1.36.1"},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"a kubelet of GKE with an invalid version": {
			nodeTraits{runtime: "containerd", version: "2.0.4", kubelet: "-gke.1"},
			"containerd", "/etc/containerd/config.toml", "/run/containerd/containerd.sock",
		},
		"another runtime":                   {nodeTraits: nodeTraits{runtime: "isulad", version: "2", kubelet: "v1.34.1"}},
		"a node without a reported runtime": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			layout, known := test.facts().LayoutByFacts()
			g.Expect(known).To(Equal(test.layout != ""))
			g.Expect([]string{layout.Name, layout.Config, layout.Socket}).
				To(Equal([]string{test.layout, test.config, test.socket}))
			g.Expect(validation.IsValidLabelValue(layout.Name)).To(BeEmpty())
			hooks, dropIn := "/run/containers/oci/hooks.d", "/etc/containerd/conf.d/99-nvidia.toml"
			source, executable := "", ""
			switch test.layout {
			case "":
				hooks, dropIn = "", ""
			case "microk8s":
				source = "file=/host/var/snap/microk8s/current/args/containerd.toml"
			case "gke", "containerd-file":
				source = "file"
			case "docker":
				dropIn = ""
			case "crio":
				hooks, dropIn = "/usr/share/containers/oci/hooks.d", "/etc/crio/crio.conf.d/99-nvidia.conf"
			case "openshift":
				dropIn = "/etc/crio/crio.conf.d/99-nvidia.conf"
			case "k0s":
				dropIn, executable = "/etc/k0s/containerd.d/nvidia.toml", "/var/lib/k0s/bin/containerd"
			case "k3s", "rke2":
				dropIn = "/var/lib/rancher/" + test.layout + "/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml"
				source = "file=/host" + test.config
			}
			g.Expect([]string{layout.HooksDir, layout.DropIn, layout.ConfigSource, layout.Executable}).
				To(Equal([]string{hooks, dropIn, source, executable}))
			g.Expect(layout.FindsToolkit).To(Equal(test.layout == "k3s" || test.layout == "rke2"))
		})
	}
}

// The label of the layout is only used until the kubelet has reported the runtime.
func TestEffectiveLayout(t *testing.T) {
	tests := map[string]struct {
		facts nodeinfo.Facts
		want  string
	}{
		"a reported runtime":  {facts: nodeinfo.Facts{Runtime: "cri-o", Layout: "k3s"}, want: "crio"},
		"no reported runtime": {facts: nodeinfo.Facts{Layout: "k3s"}, want: "k3s"},
		"an unknown label":    {facts: nodeinfo.Facts{Layout: "mine"}},
		"neither":             {},
		"an unknown runtime":  {facts: nodeinfo.Facts{Runtime: "isulad", Layout: "k3s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			layout, known := test.facts.KnownLayout()
			g.Expect(layout.Name).To(Equal(test.want))
			g.Expect(known).To(Equal(test.want != ""))
		})
	}
}

func TestLayouts(t *testing.T) {
	g := NewWithT(t)
	node := func(runtime string, change func(*nodeinfo.Facts)) nodeinfo.Facts {
		facts := nodeTraits{runtime: runtime}.facts()
		change(&facts)
		return facts
	}
	plain := func(*nodeinfo.Facts) {}
	nodes := []nodeinfo.Facts{
		node("cri-o", plain), node("containerd", plain), node("containerd", plain), node("isulad", plain),
		node("docker", func(f *nodeinfo.Facts) { f.HasGPU = false }),
		node("docker", func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }),
	}
	var names []string
	for _, layout := range nodeinfo.Layouts(nodes) {
		names = append(names, layout.Name)
	}
	g.Expect(names).To(Equal([]string{"containerd", "crio"}))
	slices.Reverse(nodes)
	g.Expect(nodeinfo.Layouts(nodes)).To(HaveLen(2))
}
