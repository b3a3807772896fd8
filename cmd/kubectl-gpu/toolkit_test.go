package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// coreOSNode is a GPU node of OpenShift.
const coreOSNode = `
apiVersion: v1
kind: Node
metadata:
  name: worker-0
  labels:
    node.openshift.io/os_id: rhcos
    feature.node.kubernetes.io/pci-10de.present: "true"
    feature.node.kubernetes.io/system-os_release.ID: rhcos
    feature.node.kubernetes.io/system-os_release.VERSION_ID: "4.18"
    feature.node.kubernetes.io/system-os_release.OSTREE_VERSION: 418.94.202501221327-0
status:
  nodeInfo: {architecture: amd64, containerRuntimeVersion: "cri-o://1.31.4"}
`

// The images for Red Hat CoreOS depend on its driver toolkit.
func TestMirrorForOpenShift(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "stream.yaml")
	g.Expect(os.WriteFile(file, []byte("apiVersion: image.openshift.io/v1\nkind: ImageStream\n"+
		"spec: {tags: [{name: 418.94.202501221327-0, from: {kind: DockerImage, name: quay.io/dtk}}]}"), 0o600)).To(Succeed())
	got := kubectlGPU(strings.TrimSpace(coreOSNode), "mirror", "list", "-f", "testdata/policy.yaml", "--nodes", "-",
		"--driver-toolkit-images", file)
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).To(And(ContainSubstring("nvcr.io/nvidia/driver:"), ContainSubstring("quay.io/dtk")))
}

func TestRenderForOpenShift(t *testing.T) {
	const driver = "DaemonSet nvidia-driver-daemonset"
	const stream = "apiVersion: image.openshift.io/v1\nkind: ImageStream\n"
	tests := map[string]struct {
		stream string
		code   int
		drives bool
		err    string
	}{
		"the release has a toolkit": {
			stream: stream + "spec: {tags: [{name: 418.94.202501221327-0, from: {kind: DockerImage, name: quay.io/dtk}}]}",
			drives: true,
		},
		"it has none": {
			stream: stream, err: "ImageStream openshift/driver-toolkit has no tag 418.94.202501221327-0 with an image",
		},
		"no stream is given": {
			err: "ImageStream openshift/driver-toolkit, which must have tag 418.94.202501221327-0, is missing",
		},
		"another kind": {stream: "kind: Node", code: 1, err: `found a "Node": give the ImageStream openshift/driver-toolkit`},
		"no YAML":      {stream: "a: [", code: 1, err: "reading the driver toolkit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			args := []string{"render", "-f", "testdata/policy.yaml", "--nodes", "-"}
			if test.stream != "" {
				file := filepath.Join(t.TempDir(), "stream.yaml")
				g.Expect(os.WriteFile(file, []byte(test.stream), 0o600)).To(Succeed())
				args = append(args, "--driver-toolkit-images", file)
			}
			got := kubectlGPU(strings.TrimSpace(coreOSNode), args...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			if test.code != 0 {
				return
			}
			rendered := decoded(t, got.out)
			if !test.drives {
				g.Expect(rendered).NotTo(HaveKey(driver))
				return
			}
			g.Expect(rendered).To(HaveKey(driver))
			g.Expect(got.errOut).NotTo(ContainSubstring("driver-toolkit"))
		})
	}
}

// openShiftConfig is the configuration of a cluster of OpenShift, as oc get prints it.
const openShiftConfig = `
apiVersion: v1
kind: List
items:
  - apiVersion: config.openshift.io/v1
    kind: Proxy
    metadata: {name: cluster}
    spec: {trustedCA: {name: user-ca-bundle}}
    status: {httpsProxy: "http://proxy.example.com", noProxy: .svc}
  - apiVersion: config.openshift.io/v1
    kind: ClusterVersion
    metadata: {name: version}
    status: {history: [{state: Completed, version: 4.18.12}]}
`

// What the configuration of OpenShift has reaches the driver's containers in what render prints.
func TestRenderWithTheConfigurationOfOpenShift(t *testing.T) {
	tests := map[string]struct {
		config string
		code   int
		has    []string
		err    string
	}{
		"whole": {config: openShiftConfig, has: []string{
			"value: \"4.18\"", "value: http://proxy.example.com", "value: .svc,$(KUBERNETES_SERVICE_HOST)",
			"name: gpu-operator-trusted-ca",
		}, err: "ConfigMap gpu-operator-trusted-ca was not read: it counts as existing, and the objects of driver lack"},
		"another kind": {config: "kind: Node", code: 1, err: `found a "Node": give the Proxy cluster and the ClusterVersion`},
		"no YAML":      {config: "a: [", code: 1, err: "reading the configuration of OpenShift"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "openshift.yaml")
			g.Expect(os.WriteFile(file, []byte(test.config), 0o600)).To(Succeed())
			got := kubectlGPU(sampleNodes, "render", "-f", "testdata/policy.yaml", "--nodes", "-", "--openshift", file)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			for _, text := range test.has {
				g.Expect(got.out).To(ContainSubstring(text))
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		g := NewWithT(t)
		got := kubectlGPU(sampleNodes, "render", "-f", "testdata/policy.yaml", "--nodes", "-")
		g.Expect(got.code).To(Equal(0), got.errOut)
		g.Expect(got.out).NotTo(Or(ContainSubstring("OPENSHIFT_VERSION"), ContainSubstring("_PROXY")))
	})
}
