package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

const samplesDir = "../../config/samples"

// sampleNodes is an Ubuntu node and an OpenShift node, with GPUs that support MIG.
const sampleNodes = `
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata:
      name: ubuntu
      labels:
        feature.node.kubernetes.io/pci-10de.present: "true"
        feature.node.kubernetes.io/kernel-version.full: 6.8.0-60-generic
        feature.node.kubernetes.io/system-os_release.ID: ubuntu
        feature.node.kubernetes.io/system-os_release.VERSION_ID: "24.04"
        nvidia.com/mig.capable: "true"
        example.com/gpu-pool: a100
    status: {nodeInfo: {architecture: amd64, containerRuntimeVersion: "containerd://2.2.1"}}
  - apiVersion: v1
    kind: Node
    metadata:
      name: coreos
      labels:
        feature.node.kubernetes.io/pci-10de.present: "true"
        feature.node.kubernetes.io/kernel-version.full: 5.14.0-427.50.1.el9_4.x86_64
        feature.node.kubernetes.io/system-os_release.ID: rhcos
        feature.node.kubernetes.io/system-os_release.VERSION_ID: "4.18"
        feature.node.kubernetes.io/system-os_release.OSTREE_VERSION: 418.94.202501221327-0
        node.openshift.io/os_id: rhcos
    status: {nodeInfo: {architecture: amd64, containerRuntimeVersion: "cri-o://1.31.4"}}
`

const sampleStream = `
apiVersion: image.openshift.io/v1
kind: ImageStream
metadata: {namespace: openshift, name: driver-toolkit}
spec: {tags: [{name: 418.94.202501221327-0, from: {kind: DockerImage, name: quay.io/driver-toolkit}}]}
`

// samples lists config/samples, with a text that the objects of each sample have and those of the default do not.
var samples = map[string]struct{ has, hasNot string }{
	"clusterpolicy":                    {},
	"clusterpolicy-custom-metrics":     {has: "name: custom-dcgm-metrics"},
	"clusterpolicy-gpudirect-rdma":     {has: "name: nvidia-peermem-ctr"},
	"clusterpolicy-gpudirect-storage":  {has: "name: nvidia-fs-ctr"},
	"clusterpolicy-host-driver":        {hasNot: "name: nvidia-driver-daemonset"},
	"clusterpolicy-host-toolkit":       {hasNot: "name: nvidia-container-toolkit-daemonset"},
	"clusterpolicy-mig-mixed":          {has: "name: mig-layouts"},
	"clusterpolicy-node-pools":         {has: "nvcr.io/nvidia/driver:610.57.04-ubuntu24.04"},
	"clusterpolicy-nvidiadrivers":      {has: "nvcr.io/nvidia/driver:610.57.04-ubuntu24.04"},
	"clusterpolicy-openshift":          {has: "name: nvidia-dcgm\n"},
	"clusterpolicy-precompiled-driver": {has: "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"},
	"clusterpolicy-private-registry":   {has: "registry.example.com/nvidia/driver:", hasNot: "nvcr.io/"},
	"clusterpolicy-time-slicing":       {has: "name: gpu-sharing"},
}

// TestSamplesRenderTheirPurpose: every sample has only known fields, is valid, and changes what its name says.
func TestSamplesRenderTheirPurpose(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	nodes, stream := filepath.Join(dir, "nodes.yaml"), filepath.Join(dir, "stream.yaml")
	g.Expect(os.WriteFile(nodes, []byte(sampleNodes), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(stream, []byte(sampleStream), 0o600)).To(Succeed())
	render := func(g *WithT, name string) string {
		got := kubectlGPU("", "render", "-f", filepath.Join(samplesDir, name+".yaml"), "--nodes", nodes,
			"--driver-toolkit-images", stream, "--monitoring", "--image", "registry.example.com/gpu-operator:v9")
		g.Expect(got.code).To(Equal(0), got.errOut)
		g.Expect(got.errOut).NotTo(ContainSubstring("Invalid"))
		return got.out
	}
	usual := render(g, "clusterpolicy")
	files, err := filepath.Glob(filepath.Join(samplesDir, "clusterpolicy*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(len(samples)), "each sample is tested here")
	for name, sample := range samples {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := render(g, name)
			if has := sample.has; has != "" {
				g.Expect([]bool{strings.Contains(usual, has), strings.Contains(objects, has)}).To(Equal([]bool{false, true}),
					"%q in the objects of the default and of the sample", has)
			}
			if hasNot := sample.hasNot; hasNot != "" {
				g.Expect([]bool{strings.Contains(usual, hasNot), strings.Contains(objects, hasNot)}).To(Equal([]bool{true, false}),
					"%q in the objects of the default and of the sample", hasNot)
			}
		})
	}
}

// TestSamplesContainTheObjectsTheyName: the ConfigMaps and Secrets that a policy names are in its file, with the keys
// that are read, in the operator's namespace, and no others.
func TestSamplesContainTheObjectsTheyName(t *testing.T) {
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name := range samples {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(samplesDir, name+".yaml")
			read, err := readPolicy(file, nil)
			g.Expect(err).NotTo(HaveOccurred())
			policy := read.Policy
			named := map[operand.Reference][]string{}
			input := operand.Input{Spec: effective.Of(policy.Spec), Namespace: "gpu-operator"}
			for i := range catalogue {
				uses := catalogue[i].UsesOf(input)
				for _, pool := range operand.NodePools(input.Spec) {
					uses = append(uses, catalogue[i].UsesOf(input.ForNodePool(pool))...)
				}
				for _, use := range uses {
					if use.Kind == operand.ValidatingAdmissionPolicyBinding {
						continue // The installer creates it.
					}
					named[use.Reference] = append(named[use.Reference], use.Keys...)
				}
			}
			if policy.Spec.Global != nil {
				for _, secret := range policy.Spec.Global.ImagePullSecrets {
					named[operand.Reference{Kind: operand.Secret, Name: secret}] = []string{corev1.DockerConfigJsonKey}
				}
			}
			held := heldBy(g, file)
			for reference, keys := range named {
				g.Expect(held).To(HaveKey(reference))
				for _, key := range keys {
					g.Expect(held[reference]).To(HaveKey(key), reference.String())
				}
			}
			g.Expect(held).To(HaveLen(len(named)), "objects that no sample names")
		})
	}
}

// heldBy returns the ConfigMaps and Secrets of a file with their data.
func heldBy(g *WithT, file string) map[operand.Reference]map[string]string {
	all, err := documents(file, nil)
	g.Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	held := map[operand.Reference]map[string]string{}
	for _, document := range slices.DeleteFunc(all, func(d []byte) bool { return !isAnotherKind(d) }) {
		if kindOf(document) == v1alpha1.NVIDIADriverKind {
			continue // The policy uses it without naming it.
		}
		object, _, err := decoder.Decode(document, nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		switch o := object.(type) {
		case *corev1.ConfigMap:
			g.Expect(o.Namespace).To(Equal("gpu-operator"))
			held[operand.Reference{Kind: operand.ConfigMap, Name: o.Name}] = o.Data
		case *corev1.Secret:
			g.Expect(o.Namespace).To(Equal("gpu-operator"))
			held[operand.Reference{Kind: operand.Secret, Name: o.Name}] = o.StringData
		default:
			g.Expect(object).To(BeNil(), "a kind that no sample needs")
		}
	}
	return held
}
