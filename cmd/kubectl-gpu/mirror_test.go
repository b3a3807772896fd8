package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/image"
)

// mirrored runs a command of mirror for a policy with this spec on the nodes in testdata.
func mirrored(spec string, args ...string) output {
	return kubectlGPU(policyHead+"spec: "+spec+"\n",
		append([]string{"mirror", args[0], "-f", "-", "--nodes", "testdata/nodes.yaml"}, args[1:]...)...)
}

// The images are those at their source, whatever mirror the policy has, with the operating systems of the nodes.
func TestMirrorList(t *testing.T) {
	g := NewWithT(t)
	got := mirrored("{global: {registry: mirror.local:5000}, toolkit: {image: example.com/toolkit@sha256:"+
		strings.Repeat("a", 64)+"}}", "list")
	g.Expect(got.code).To(Equal(0), got.errOut)
	images := strings.Split(strings.TrimSpace(got.out), "\n")
	g.Expect(images).To(ContainElements(image.Own(), MatchRegexp("^nvcr.io/nvidia/driver:.*-ubuntu24.04$"),
		HavePrefix("example.com/toolkit@sha256:aaa"), HavePrefix("nvcr.io/nvidia/k8s-device-plugin:")))
	g.Expect(images).NotTo(ContainElement(HavePrefix("mirror.local")))
	rendered := renderedImages(t, "{}")
	without := mirrored("{}", "list")
	for _, reference := range rendered {
		g.Expect(strings.Split(without.out, "\n")).To(ContainElement(reference))
	}
}

// renderedImages are the images that render prints.
func renderedImages(t *testing.T, spec string) []string {
	t.Helper()
	g, got := NewWithT(t), rendering(t, spec)
	g.Expect(got.code).To(Equal(0), got.errOut)
	var all []string
	for line := range strings.Lines(got.out) {
		if reference, found := strings.CutPrefix(strings.TrimLeft(line, " -"), "image: "); found {
			all = append(all, strings.TrimSpace(reference))
		}
	}
	g.Expect(len(all)).To(BeNumerically(">", 10))
	return all
}

// The script copies each image to the name that the operator gives it with the mirror.
func TestMirrorScript(t *testing.T) {
	g := NewWithT(t)
	got := mirrored("{global: {registry: mirror.local:5000/proxy}}", "script")
	g.Expect(got.code).To(Equal(0), got.errOut)
	for _, reference := range renderedImages(t, "{global: {registry: mirror.local:5000/proxy}}") {
		g.Expect(got.out).To(ContainSubstring(" 'docker://"+reference+"'\n"), "the target of a copy")
	}
	g.Expect(mirrored("{}", "script", "--to",
		"other.local").out).To(ContainSubstring("'docker://other.local/nvidia/driver:"))
	without := mirrored("{}", "script")
	g.Expect(without.code).To(Equal(1))
	g.Expect(without.errOut).To(ContainSubstring("set spec.global.registry in the policy, or give --to"))
	g.Expect(kubectlGPU("", "mirror").code).To(Equal(2))
	g.Expect(kubectlGPU("", "mirror", "list", "-f", "-", "--nodes", "-").code).To(Equal(2))
}
