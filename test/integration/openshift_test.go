package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// imageStreamDefinition stands for OpenShift's own API server, which serves the kind in truth.
const imageStreamDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: imagestreams.image.openshift.io
  annotations: {api-approved.kubernetes.io: "unapproved, a stand-in for a test"}
spec:
  group: image.openshift.io
  scope: Namespaced
  names: {kind: ImageStream, listKind: ImageStreamList, plural: imagestreams, singular: imagestream}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const (
	oldRelease, newRelease = "417.94.202503172034-0", "418.94.202501221327-0"
	oldPool                = "rhcos4.17-amd64-" + oldRelease
	newPool                = "rhcos4.18-amd64-" + newRelease
	oldToolkit, newToolkit = "quay.io/openshift/driver-toolkit@sha256:" + digits, "quay.io/openshift/driver-toolkit:418"
	digits                 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// servedTime is what a user waits where nothing but time tells the operator that the API has come.
	servedTime = 30 * time.Second
)

// TestTheDriverToolkitOfOpenShift: nodes with two releases of Red Hat CoreOS get a driver each, once OpenShift
// has a toolkit for their release. Until then they say what is missing, and nobody else waits for them.
func TestTheDriverToolkitOfOpenShift(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	b.installComponent("config/openshift")
	for name, spec := range map[string]simulator.NodeSpec{
		"old": coreOSMachine("4.17", oldRelease), "new": coreOSMachine("4.18", newRelease), "ubuntu": {},
	} {
		spec.Name = name
		_, err := b.sim.AddNode(t.Context(), spec)
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.run()
	b.create(b.samplePolicy())
	b.awaitNodes(map[string]string{"old": v1.ReasonDriverToolkitMissing, "new": v1.ReasonDriverToolkitMissing, "ubuntu": ""}, time.Minute)
	b.Expect(b.messages()["old"]).To(HavePrefix("ImageStream openshift/driver-toolkit, which must have tag " + oldRelease + ", is missing"))
	b.Expect(b.driverDaemonSets()).To(HaveLen(1), "that of Ubuntu")

	begin := time.Now()
	b.serveDriverToolkit(map[string]string{oldRelease: oldToolkit})
	b.awaitNodes(map[string]string{"old": "", "new": v1.ReasonDriverToolkitMissing, "ubuntu": ""}, servedTime)
	t.Logf("an API that comes late is found, and its release ready, after %s", time.Since(begin).Round(100*time.Millisecond))
	b.Expect(b.messages()["new"]).To(HavePrefix("ImageStream openshift/driver-toolkit has no tag " + newRelease + " with an image"))
	b.Expect(b.condition("new")).To(ContainSubstring("spec.operator.use_ocp_driver_toolkit"))

	begin = time.Now()
	b.setToolkits(map[string]string{oldRelease: oldToolkit, newRelease: newToolkit})
	b.awaitReady(3)
	t.Logf("a release that gets its tag is ready after %s", time.Since(begin).Round(100*time.Millisecond))
	b.Expect(b.toolkitsInUse()).To(Equal(map[string]string{oldPool: oldToolkit, newPool: newToolkit}))
	b.Expect(b.driverOf(oldPool).Labels).To(And(
		HaveKeyWithValue("openshift.driver-toolkit", "true"), HaveKeyWithValue("openshift.driver-toolkit.rhcos", oldRelease)))

	t.Run("what runs outlives its tag", func(t *testing.T) { b.in(t).tagRemoved() })
	t.Run("a node with another release", func(t *testing.T) { b.in(t).nodeUpgraded() })
	t.Run("one watch of one object", func(t *testing.T) { b.in(t).watchedOnce() })
}

// tagRemoved takes a tag away. The driver that was built with it goes on, and so does its DaemonSet.
func (b *bed) tagRemoved() {
	b.settled()
	before, mark := b.driverOf(oldPool), b.mark()
	b.setToolkits(map[string]string{newRelease: newToolkit})
	b.Eventually(func() string { return b.poolImage(oldPool) }).Should(BeEmpty(), "the operator has seen it")
	b.awaitReady(3)
	b.settled()
	b.Expect(b.driverOf(oldPool)).To(Equal(before))
	for _, call := range b.operatorCalls(mark).Writes() {
		b.Expect(call.Resource).To(Equal("clusterpolicies"), "%s", call)
	}
}

// nodeUpgraded gives a node another release. It keeps its driver until somebody moves it.
func (b *bed) nodeUpgraded() {
	node := b.node("old")
	b.Expect(b.edit(node, func() {
		node.Labels[labels.DiscoveryOSTree], node.Labels[labels.DiscoveryOSVersion] = newRelease, "4.18"
	})).To(Succeed())
	b.awaitNodes(map[string]string{"old": v1.ReasonUpgradePending, "new": "", "ubuntu": ""}, 20*time.Second)
	b.Expect(b.messages()["old"]).To(HavePrefix("run kubectl label node old " + labels.Pool + "- " + labels.DriverAnchor + "- "))
	b.Expect(b.node("old").Labels).To(And(HaveKeyWithValue(labels.Pool, oldPool), HaveKeyWithValue(labels.PoolCoreOS, oldRelease)))

	b.moveDriver("old")
	b.Eventually(b.toolkitsInUse).Should(Equal(map[string]string{newPool: newToolkit}))
	b.awaitReady(3)
	b.Expect(b.node("old").Labels).To(And(HaveKeyWithValue(labels.Pool, newPool), HaveKeyWithValue(labels.PoolCoreOS, newRelease)))
}

// watchedOnce expects that the ImageStream was listed once for the whole story, and never read.
func (b *bed) watchedOnce() {
	var reads cluster.Calls
	for _, call := range b.operatorCalls(0) {
		if call.Resource == "imagestreams" && call.Verb != "watch" {
			reads = append(reads, call)
		}
	}
	b.Expect(len(reads)).To(BeNumerically("<=", 1), "%s", reads)
}

func coreOSMachine(version, release string) simulator.NodeSpec {
	return simulator.NodeSpec{
		OS: "rhcos", OSVersion: version, Runtime: "cri-o://1.34.1",
		Labels: map[string]string{"node.openshift.io/os_id": "rhcos", labels.DiscoveryOSTree: release},
	}
}

// installComponent adds a component to what is installed, as an overlay of config/default does it.
func (b *bed) installComponent(dir string) {
	b.t.Helper()
	overlay := b.t.TempDir()
	var paths []string
	for _, part := range []string{"config/default", dir} {
		whole, err := filepath.Abs(filepath.Join(repo, part))
		b.Expect(err).NotTo(HaveOccurred())
		path, err := filepath.Rel(overlay, whole)
		b.Expect(err).NotTo(HaveOccurred())
		paths = append(paths, path)
	}
	text := "resources: [" + paths[0] + "]\ncomponents: [" + paths[1] + "]\n"
	b.Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	b.Expect(cluster.Install(b.t.Context(), b.cluster.Config, overlay)).To(Succeed())
}

// serveDriverToolkit has the cluster serve ImageStreams, and makes that of the driver toolkit.
func (b *bed) serveDriverToolkit(images map[string]string) {
	b.t.Helper()
	definition := &unstructured.Unstructured{}
	b.Expect(yaml.Unmarshal([]byte(imageStreamDefinition), definition)).To(Succeed())
	b.create(definition)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: labels.DriverToolkitNamespace}})
	b.Eventually(func() error {
		return b.client.Create(b.t.Context(), driverToolkit(images))
	}).Should(Succeed(), "the kind is served a moment after its definition is there")
}

func (b *bed) setToolkits(images map[string]string) {
	b.t.Helper()
	stream := driverToolkit(nil)
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(stream), stream)).To(Succeed())
	stream.Object["spec"] = driverToolkit(images).Object["spec"]
	b.Expect(b.client.Update(b.t.Context(), stream)).To(Succeed())
}

// driverToolkit is the ImageStream with these images, and the tag latest that OpenShift's has.
func driverToolkit(images map[string]string) *unstructured.Unstructured {
	tags := []any{map[string]any{"name": "latest", "from": map[string]any{"kind": "DockerImage", "name": "quay.io/openshift/driver-toolkit"}}}
	for _, release := range slices.Sorted(maps.Keys(images)) {
		tags = append(tags, map[string]any{"name": release, "from": map[string]any{"kind": "DockerImage", "name": images[release]}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
		"metadata": map[string]any{"namespace": labels.DriverToolkitNamespace, "name": labels.DriverToolkitName},
		"spec":     map[string]any{"tags": tags},
	}}
}

// awaitNodes waits until the status gives these reasons for the nodes, none for those without trouble.
func (b *bed) awaitNodes(reasons map[string]string, within time.Duration) {
	b.t.Helper()
	b.Eventually(func() map[string]string {
		found := map[string]string{}
		for _, node := range b.policy().Status.Nodes {
			found[node.Name] = node.Reason
		}
		return found
	}).WithTimeout(within).WithPolling(100*time.Millisecond).Should(Equal(reasons), func() string { return summary(b.policy()) })
}

// messages are those of the nodes in the status.
func (b *bed) messages() map[string]string {
	found := map[string]string{}
	for _, node := range b.policy().Status.Nodes {
		found[node.Name] = node.Message
	}
	return found
}

// condition is the message on the node itself, which is whole.
func (b *bed) condition(name string) string {
	for _, condition := range b.node(name).Status.Conditions {
		if condition.Type == gpuReady {
			return condition.Message
		}
	}
	return ""
}

func (b *bed) driverDaemonSets() []appsv1.DaemonSet {
	b.t.Helper()
	list := &appsv1.DaemonSetList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{labels.Operand: "driver"})).To(Succeed())
	b.Expect(meta.LenList(list)).To(BeNumerically(">", 0))
	return list.Items
}

// driverOf is the driver's DaemonSet for a pool, whichever came first and has the plain name.
func (b *bed) driverOf(pool string) *appsv1.DaemonSet {
	b.t.Helper()
	for _, ds := range b.driverDaemonSets() {
		if ds.Spec.Template.Labels[labels.Pool] == pool {
			return &ds
		}
	}
	b.t.Fatalf("no DaemonSet has the driver of pool %s", pool)
	return nil
}

// toolkitsInUse are the images of the driver toolkit by pool.
func (b *bed) toolkitsInUse() map[string]string {
	found := map[string]string{}
	for _, ds := range b.driverDaemonSets() {
		for _, container := range ds.Spec.Template.Spec.Containers {
			if container.Name == "openshift-driver-toolkit-ctr" {
				found[ds.Spec.Template.Labels[labels.Pool]] = container.Image
			}
		}
	}
	return found
}

// poolImage is what the status says of a pool.
func (b *bed) poolImage(name string) string {
	for _, pool := range b.policy().Status.Pools {
		if pool.Name == name {
			return pool.Image
		}
	}
	return "no such pool"
}
