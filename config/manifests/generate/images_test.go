package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// The bundle lists exactly the images that the operator runs by default, whatever is enabled, so that a mirror made
// from it is complete.
func TestRelatedImagesAreComplete(t *testing.T) {
	const own = "registry.local/gpu-operator:1.2.3"
	g := NewWithT(t)
	related, err := relatedImages(own, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed(g, related)).To(Equal(runningImages(g, own, nil)))
}

// Images whose digests are known are named by them, where the bundle lists them and where the operator runs them, and
// no others.
func TestDigestsPinWhatRuns(t *testing.T) {
	const own = "registry.local/gpu-operator@sha256:abc"
	g := NewWithT(t)
	names, err := unpinned()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(names)).To(BeNumerically(">", 5))
	known, text := digests{}, ""
	for i, name := range names[1:] {
		known[name] = fmt.Sprintf("sha256:%064x", i)
		text += name + " " + known[name] + "\n"
	}
	file := filepath.Join(t.TempDir(), "digests")
	g.Expect(os.WriteFile(file, []byte(text+"\n"), 0o600)).To(Succeed())
	read, err := readDigests(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read).To(Equal(known))
	files, err := generate(root, release{version: "1.2.3", image: own, digests: read})
	g.Expect(err).NotTo(HaveOccurred())
	var csv struct {
		Spec struct {
			RelatedImages []relatedImage
			Install       struct {
				Spec struct{ Deployments []deploymentSpec }
			}
		}
	}
	g.Expect(yaml.Unmarshal(files["manifests/gpu-operator.clusterserviceversion.yaml"], &csv)).To(Succeed())
	found := listed(g, csv.Spec.RelatedImages)
	env := map[string]string{}
	for _, variable := range csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0].Env {
		env[variable.Name] = variable.Value
	}
	g.Expect(found).To(Equal(runningImages(g, own, env)))
	g.Expect(found).To(HaveKey(names[0]), "its digest is not known")
	for name, digest := range known {
		g.Expect(found).NotTo(HaveKey(name))
		g.Expect(found).To(HaveKey(name[:strings.LastIndex(name, ":")] + "@" + digest))
	}

	for _, line := range []string{"name", "name sha256:1", "name " + known[names[1]] + " more"} {
		g.Expect(os.WriteFile(file, []byte(line), 0o600)).To(Succeed())
		_, err = readDigests(file)
		g.Expect(err).To(MatchError(ContainSubstring("has the line %q: give a name and its digest", line)))
	}
}

// listed returns the images that a bundle lists. No two have one name.
func listed(g *WithT, related []relatedImage) map[string]bool {
	found, names := map[string]bool{}, map[string]bool{}
	for _, one := range related {
		found[one.Image] = true
		g.Expect(names).NotTo(HaveKey(one.Name))
		names[one.Name] = true
	}
	return found
}

// runningImages returns the images of all operands, as an operator with these variables runs them.
func runningImages(g *WithT, own string, env map[string]string) map[string]bool {
	spec := v1.ClusterPolicySpec{}
	g.Expect(yaml.UnmarshalStrict([]byte(`{gds: {enabled: true}, gdrcopy: {enabled: true},
		devicePlugin: {config: {name: plugin, default: any}}, driver: {rdma: {enabled: true}}}`), &spec)).To(Succeed())
	specgen.EnableAll(&spec)
	input := operand.Input{Spec: effective.Of(spec), Namespace: namespace, OperatorImage: own}
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	input.Images, _ = image.FromVariables(catalogue.Images(), func(name string) string { return env[name] })
	computed := plan.Compute(plan.Decide(catalogue, input), nil,
		[]nodeinfo.Facts{on("a", "rhel", "9.6"), on("b", "ubuntu", "22.04"), on("c", "ubuntu", "24.04")})
	running := map[string]bool{}
	for _, step := range computed.Steps {
		if step.Action != plan.Apply {
			continue
		}
		objects, err := render.Step(computed, step, render.Owner{Name: "cluster-policy"}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			if set, isSet := object.(*appsv1.DaemonSet); isSet {
				for _, container := range append(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers...) {
					running[container.Image] = true
				}
			}
		}
	}
	return running
}

// on returns a node with a GPU and this operating system.
func on(name, system, version string) nodeinfo.Facts {
	return nodeinfo.Facts{
		Name: name, HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer,
		Runtime: nodeinfo.RuntimeContainerd, OSID: system, OSVersion: version, Architecture: "amd64",
		MIGCapable: "true", MPSCapable: "true", Deploy: map[string]string{},
	}
}
