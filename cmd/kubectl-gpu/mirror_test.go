package main

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
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

// An object of a cluster may have what an older definition admitted. The API server keeps it, so it is only noted if
// the user says that it was not edited since: an edit would be refused, and the file does not show it.
func TestWhatIsStoredIsNoted(t *testing.T) {
	const spec = `{driver: {kernelModuleType: closed}, toolkit: {version: 1.2.3}}`
	const head = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p%s}\nspec: " + spec + "\n"
	for _, command := range [][]string{{"mirror", "list"}, {"mirror", "script", "--to", "mirror.local"}, {"render"}} {
		t.Run(strings.Join(command[:min(len(command), 2)], " "), func(t *testing.T) {
			g := NewWithT(t)
			args := append(command, "-f", "-", "--nodes", "testdata/nodes.yaml")
			const export = `, uid: a, resourceVersion: "7"`
			exported := kubectlGPU(fmt.Sprintf(head, export), append(args, "--stored")...)
			g.Expect(exported.code).To(Equal(0), exported.errOut)
			g.Expect(exported.out).To(ContainSubstring("container-toolkit:1.2.3"))
			g.Expect(exported.errOut).To(ContainSubstring("the API server would refuse a new ClusterPolicy p, and keeps the " +
				`one that is stored with this: spec.driver.kernelModuleType: Unsupported value: "closed"`))
			for _, written := range []string{"", ", uid: a", `, resourceVersion: "7"`, export} {
				got := kubectlGPU(fmt.Sprintf(head, written), args...)
				g.Expect(strings.Contains(got.errOut, "add --stored")).To(Equal(written == export))
				g.Expect(got.code).To(Equal(1))
				g.Expect(got.out).To(ContainSubstring("container-toolkit:1.2.3"), "what is refused, is printed too")
				g.Expect(got.errOut).To(ContainSubstring("kubectl gpu: the API server would refuse ClusterPolicy p"))
			}
		})
	}
}

// Where the objects of an operand cannot be rendered, those of the others are printed, with what the labels of a
// running operator change, and the command fails.
func TestTheRestOfAnOperandThatCannotBeRendered(t *testing.T) {
	policy := edit("{driver: {nodeSelector: {zone: front}}, gfd: {containerResources: [{name: missing}]}}")
	const why = "spec.gfd.containerResources: there is no container missing"
	for name, args := range map[string][]string{"render": {"render"}, "mirror": {"mirror", "list"}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(policy, append(args, "-f", "-", "--nodes", ubuntuNode(t, running))...)
			g.Expect(got.code).To(Equal(1))
			g.Expect(got.out).To(ContainSubstring("nvidia/k8s/dcgm-exporter:"))
			g.Expect(strings.Count(got.errOut, why)).To(Equal(1), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring("kubectl gpu: "))
			g.Expect(differingObjects.FindAllString(got.errOut, -1)).To(Equal([]string{
				"DaemonSet nvidia-driver-daemonset would be applied with the labels of a running operator\n",
			}))
		})
	}
}

// The images are printed where the operator refuses an operand, but for those of that operand, and the command fails.
func TestMirrorPrintsTheRest(t *testing.T) {
	g := NewWithT(t)
	got := mirrored(`{driver: {image: "example.com/driver:1", version: "2"}}`, "list")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.out).To(And(ContainSubstring("k8s-device-plugin:"), Not(ContainSubstring("example.com/driver"))))
	g.Expect(got.errOut).To(ContainSubstring("the policy is invalid for driver"))
}
