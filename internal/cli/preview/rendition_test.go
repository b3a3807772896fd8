package preview

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
)

// Of a cluster whose stack is in sync, what is applied there is rendered, and there is nothing to note.
func TestRenditionOfWhatIsApplied(t *testing.T) {
	g := NewWithT(t)
	c := previewCase{in: operand.Input{AppliedSpec: "1-a"}}
	cluster, _ := c.cluster(t)
	found, err := Render(cluster, Edit{}, now)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range found.Objects {
		live := cluster.find(object)
		g.Expect(live).NotTo(BeNil(), object.GetName())
		field, err := apply.Compare("policy", object, live)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(field).To(BeNil(), object.GetName())
	}
	applied := slices.DeleteFunc(slices.Clone(cluster.Objects), func(object manifest.Object) bool {
		_, isPod := object.(*corev1.Pod)
		return isPod || object.GetLabels()[labels.Operand] == "" || object.GetNamespace() == "other"
	})
	g.Expect(found.Objects).To(HaveLen(len(applied)))
	found.Objects = nil
	g.Expect(*found).To(Equal(Rendition{Policy: "cluster-policy", OperatorImage: "example.com/operator:1"}))
}

// variables begins the variables of the operator in the file with the cluster.
const variables = "env: [{name: OPERATOR_IMAGE}"

// An edit changes what is rendered, and what of it is missing or comes later is noted.
func TestRenditionsOfEdits(t *testing.T) {
	const refused = "driver would stay unchanged: spec.driver: image "
	const stays = " stays as it is in the cluster, and is not among these objects"
	const kept, keptGFD = "DaemonSet nvidia-driver-daemonset" + stays, "DaemonSet gpu-feature-discovery" + stays
	const ignored, absent = "the operator's variable DRIVER_IMAGE is ignored", "has no Deployment of the operator"
	const rear = "nvidia-driver-daemonset-ubuntu24.04-amd64-rear"
	for name, test := range map[string]struct {
		to       string
		replaced []string
		failed   string
		invalid  []string
		paused   bool
		last     string
		// notes are those of Notes, and images those of ImageNotes.
		notes, images []string
	}{
		"paused": {to: "{paused: true}", paused: true},
		"another driver for some nodes": {
			to: `{driver: {version: "580.1"},
				nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {version: "580.2"}}]}`,
			last:  rear,
			notes: []string{"DaemonSet " + rear + " would be applied when driver upgrades move the first node to it"},
		},
		"a refused operand": {
			to:      `{driver: {image: "example.com/driver:1", version: "2"}}`,
			invalid: []string{"driver"}, notes: []string{refused, kept}, images: []string{refused, kept},
		},
		"an operand that cannot be rendered": {
			to: "{gfd: {containerResources: [{name: missing}]}}", failed: "there is no container missing",
			notes: []string{keptGFD}, images: []string{keptGFD},
		},
		"an ignored variable": {
			to: spec1, replaced: []string{variables, variables + ", {name: DRIVER_IMAGE, value: a.example/other:1}"},
			notes: []string{ignored}, images: []string{ignored},
		},
		"no operator": {
			to: spec1, replaced: []string{deployed, "{}}\n      spec: {containers"},
			notes: []string{absent}, images: []string{absent},
		},
		"an operand that is removed": {to: "{dcgmExporter: {enabled: false}}"},
		"a field without effect": {
			to: "{operator: {defaultRuntime: docker}}", notes: []string{"spec.operator.defaultRuntime: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := previewCase{to: test.to, replaced: test.replaced, in: operand.Input{AppliedSpec: "1-a"}}
			cluster, edit := c.cluster(t)
			found, err := Render(cluster, edit, now)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Paused).To(Equal(test.paused))
			g.Expect(found.Invalid).To(Equal(test.invalid))
			if test.failed == "" {
				g.Expect(found.Failed).NotTo(HaveOccurred())
			} else {
				g.Expect(found.Failed).To(MatchError(ContainSubstring(test.failed)))
			}
			if test.last != "" {
				g.Expect(found.Objects[len(found.Objects)-1].GetName()).To(Equal(test.last))
			}
			expectNotes(g, found.Notes, test.notes)
			expectNotes(g, found.ImageNotes, test.images)
			for _, object := range found.Objects {
				g.Expect(object.GetAnnotations()).NotTo(HaveKey(labels.AppliedSpec), "it identifies the spec before the edit")
			}
		})
	}
}

// expectNotes expects notes with these texts, and no others.
func expectNotes(g *WithT, notes, texts []string) {
	var wanted []any
	for _, text := range texts {
		wanted = append(wanted, ContainSubstring(text))
	}
	g.Expect(notes).To(ConsistOf(wanted...))
}

// At their source, images are those behind the mirror of the policy, which stays as it is in the cluster.
func TestRenditionAtTheSource(t *testing.T) {
	const registry = "mirror.local:5000"
	for live, want := range map[string]string{
		registry + "/clusterpolicy/gpu-operator:9": "ghcr.io/clusterpolicy/gpu-operator:9",
		registry + "/team/operator:9":              registry + "/team/operator:9",
	} {
		g := NewWithT(t)
		c := previewCase{
			from:     "{global: {registry: \"" + registry + "\"}}",
			replaced: []string{"image: example.com/operator:1", "image: " + live},
		}
		cluster, _ := c.cluster(t)
		found, err := Render(cluster, Edit{AtSource: true}, now)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Mirror).To(Equal(registry))
		g.Expect(found.OperatorImage).To(Equal(want))
		for _, object := range found.Objects {
			ds, isDaemonSet := object.(*appsv1.DaemonSet)
			if !isDaemonSet {
				continue
			}
			for _, container := range containersOf(ds) {
				g.Expect(container.Image).To(Or(Equal(want), HavePrefix("nvcr.io/")))
			}
		}
		g.Expect(of[*v1.ClusterPolicy](cluster)[0].Spec.Global.Registry).To(Equal(registry))
		found, err = Render(cluster, Edit{}, now)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.OperatorImage).To(Equal(live))
		g.Expect(found.Mirror).To(BeEmpty())
	}
}

// What a user says of a cluster counts over what its objects have, and is not noted as unknown.
func TestGivenCountsOverTheCluster(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	c := previewCase{to: spec1, replaced: []string{variables, variables + `, 
		{name: DRIVER_IMAGE, value: "a.example/driver:1"}, {name: GFD_IMAGE, value: "a.example/k8s-device-plugin:1"},
		{name: HTTPS_PROXY, valueFrom: {configMapKeyRef: {name: proxy, key: https}}},
		{name: HTTP_PROXY, value: "http://a.example"}`}}
	cluster, edit := c.cluster(t)
	g.Expect(cluster.aboutOperator()).To(ConsistOf(ContainSubstring("variable HTTPS_PROXY was not read")))
	openShift := operand.OpenShiftCluster{Version: "4.18"}
	cluster.Given = Given{
		Image: "b.example/operator:2", DriverToolkit: map[string]string{"418": "b.example/toolkit"}, OpenShift: openShift,
		Variables: map[string]string{
			"DRIVER_IMAGE": "b.example/driver:2", "HTTPS_PROXY": "http://b.example", "HTTP_PROXY": "",
		},
	}
	in, ignored := cluster.input(catalogue, edit)
	g.Expect(ignored).To(BeEmpty())
	g.Expect(in.OperatorImage).To(Equal("b.example/operator:2"))
	g.Expect(in.DriverToolkit).To(Equal(cluster.Given.DriverToolkit))
	g.Expect(in.OpenShiftCluster).To(Equal(openShift))
	g.Expect(in.Proxy).To(Equal(v1.ProxySpec{HTTPSProxy: "http://b.example"}))
	want, _ := image.FromVariables(catalogue.Images(), func(name string) string {
		return map[string]string{
			"DRIVER_IMAGE": "b.example/driver:2", "GFD_IMAGE": "a.example/k8s-device-plugin:1",
		}[name]
	})
	g.Expect(in.Images).To(Equal(want))
	g.Expect(cluster.aboutOperator()).To(BeEmpty())

	cluster.Objects = slices.DeleteFunc(cluster.Objects, func(object manifest.Object) bool {
		_, isDeployment := object.(*appsv1.Deployment)
		return isDeployment
	})
	g.Expect(cluster.aboutOperator()).To(ConsistOf(ContainSubstring("taken to be b.example/operator:2, as given;")))
}
