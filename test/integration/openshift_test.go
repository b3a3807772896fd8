package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	oldRelease, newRelease = "417.94.202503172034-0", "418.94.202501221327-0"
	oldPool                = "rhcos4.17-amd64-" + oldRelease
	newPool                = "rhcos4.18-amd64-" + newRelease
	oldToolkit, newToolkit = "quay.io/openshift/driver-toolkit@sha256:" + digits, "quay.io/openshift/driver-toolkit:418"
	digits                 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// servedTime is how long the operator may take to find a new API, for which it polls.
	servedTime = time.Minute
)

// TestTheDriverToolkitOfOpenShift: nodes with two releases of Red Hat CoreOS get a driver each, once OpenShift has a
// toolkit for their release. Until then they report what is missing, and no other node waits for them.
func TestTheDriverToolkitOfOpenShift(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	e.installComponent("config/openshift")
	for name, spec := range map[string]simulator.NodeSpec{
		"old": coreOSMachine("4.17", oldRelease), "new": coreOSMachine("4.18", newRelease), "ubuntu": {},
	} {
		spec.Name = name
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	address := freeAddress(t)
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	e.create(e.samplePolicy())
	e.awaitNodes(map[string]string{
		"old": v1.ReasonDriverToolkitMissing, "new": v1.ReasonDriverToolkitMissing, "ubuntu": "",
	}, time.Minute)
	e.Expect(e.messages()["old"]).
		To(HavePrefix("ImageStream openshift/driver-toolkit, which must have tag " + oldRelease + ", is missing"))
	e.Expect(e.driverDaemonSets()).To(HaveLen(1), "that of Ubuntu")
	e.awaitToolkitMetrics(address, toolkitMetrics{enabled: -1, streamMissing: 1})

	begin := time.Now()
	e.serveDriverToolkit(map[string]string{oldRelease: oldToolkit})
	e.awaitNodes(map[string]string{"old": "", "new": v1.ReasonDriverToolkitMissing, "ubuntu": ""}, servedTime)
	t.Logf("a late API is found, and its release ready, after %s", time.Since(begin).Round(100*time.Millisecond))
	e.Expect(e.messages()["new"]).
		To(HavePrefix("ImageStream openshift/driver-toolkit has no tag " + newRelease + " with an image"))
	e.Expect(e.condition("new")).To(ContainSubstring("spec.operator.use_ocp_driver_toolkit"))
	e.awaitToolkitMetrics(address, toolkitMetrics{enabled: 1, tagsMissing: 1})
	e.setToolkits(map[string]string{oldRelease: oldToolkit, newRelease: ""})
	e.awaitToolkitMetrics(address, toolkitMetrics{enabled: 1, streamBroken: 1})

	begin = time.Now()
	e.setToolkits(map[string]string{oldRelease: oldToolkit, newRelease: newToolkit})
	e.awaitReady(3)
	t.Logf("a release that gets its tag is ready after %s", time.Since(begin).Round(100*time.Millisecond))
	e.awaitToolkitMetrics(address, toolkitMetrics{enabled: 1})
	e.Expect(e.toolkitsInUse()).To(Equal(map[string]string{oldPool: oldToolkit, newPool: newToolkit}))
	e.Expect(e.driverOf(oldPool).Labels).To(And(
		HaveKeyWithValue("openshift.driver-toolkit", "true"), HaveKeyWithValue("openshift.driver-toolkit.rhcos", oldRelease)))

	t.Run("a running driver outlives its tag", func(t *testing.T) { e.in(t).tagRemoved() })
	t.Run("a node with another release", func(t *testing.T) { e.in(t).nodeUpgraded() })
	t.Run("one watch of one object", func(t *testing.T) { e.in(t).watchedOnce() })
	t.Run("its version and proxy reach new drivers", func(t *testing.T) {
		e.in(t).configurationRead("--metrics-bind-address="+address, "--metrics-secure=false")
	})
}

// toolkitMetrics are the values of the metrics gpu_operator_openshift_driver_toolkit_*.
type toolkitMetrics struct{ enabled, streamMissing, streamBroken, tagsMissing float64 }

func (e *env) awaitToolkitMetrics(address string, want toolkitMetrics) {
	e.t.Helper()
	const prefix = "gpu_operator_openshift_driver_toolkit_"
	e.Eventually(func() toolkitMetrics {
		samples := e.samples(address)
		return toolkitMetrics{
			samples[prefix+"enabled"], samples[prefix+"imagestream_missing"], samples[prefix+"imagestream_broken"],
			samples[prefix+"rhcos_tags_missing"],
		}
	}).WithPolling(100 * time.Millisecond).Should(Equal(want))
}

// tagRemoved removes a tag. The driver that was built with it continues to run, and its DaemonSet stays.
func (e *env) tagRemoved() {
	e.settled()
	before, mark := e.driverOf(oldPool), e.mark()
	e.setToolkits(map[string]string{newRelease: newToolkit})
	e.Eventually(func() string { return e.poolImage(oldPool) }).Should(BeEmpty(), "the operator has observed it")
	e.awaitReady(3)
	e.settled()
	e.Expect(e.driverOf(oldPool)).To(Equal(before))
	for _, call := range e.operatorCalls(mark).Writes() {
		e.Expect(call.Resource).To(Equal("clusterpolicies"), "%s", call)
	}
}

// nodeUpgraded changes a node's release. It keeps its driver until an administrator moves it.
func (e *env) nodeUpgraded() {
	node := e.node("old")
	e.Expect(e.edit(node, func() {
		node.Labels[labels.DiscoveryOSTree], node.Labels[labels.DiscoveryOSVersion] = newRelease, "4.18"
	})).To(Succeed())
	e.awaitNodes(map[string]string{"old": v1.ReasonUpgradePending, "new": "", "ubuntu": ""}, eventually)
	e.Expect(e.messages()["old"]).
		To(HavePrefix("driver is outdated: kubectl annotate node old " + labels.UpgradeRequested + "=true; "))
	e.Expect(e.node("old").Labels).To(And(HaveKeyWithValue(labels.Pool, oldPool),
		HaveKeyWithValue(labels.PoolCoreOS, oldRelease)))

	e.moveDriver("old")
	e.Eventually(e.toolkitsInUse).Should(Equal(map[string]string{newPool: newToolkit}))
	e.awaitReady(3)
	e.Expect(e.node("old").Labels).To(And(HaveKeyWithValue(labels.Pool, newPool),
		HaveKeyWithValue(labels.PoolCoreOS, newRelease)))
}

// watchedOnce expects that the ImageStream was listed once for the whole test, and never read.
func (e *env) watchedOnce() {
	var reads cluster.Calls
	for _, call := range e.operatorCalls(0) {
		if call.Resource == "imagestreams" && call.Verb != "watch" {
			reads = append(reads, call)
		}
	}
	e.Expect(len(reads)).To(BeNumerically("<=", 1), "%s", reads)
}

func coreOSMachine(version, release string) simulator.NodeSpec {
	return simulator.NodeSpec{
		OS: "rhcos", OSVersion: version, Runtime: "cri-o://1.34.1",
		Labels: map[string]string{"node.openshift.io/os_id": "rhcos", labels.DiscoveryOSTree: release},
	}
}

// installComponent installs a component in addition, as an overlay of config/default does.
func (e *env) installComponent(dir string) {
	e.t.Helper()
	overlay := e.t.TempDir()
	var paths []string
	for _, part := range []string{"config/default", dir} {
		whole, err := filepath.Abs(filepath.Join(repo, part))
		e.Expect(err).NotTo(HaveOccurred())
		path, err := filepath.Rel(overlay, whole)
		e.Expect(err).NotTo(HaveOccurred())
		paths = append(paths, path)
	}
	text := "resources: [" + paths[0] + "]\ncomponents: [" + paths[1] + "]\n"
	e.Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	e.Expect(cluster.Install(e.t.Context(), e.cluster.Config, overlay)).To(Succeed())
}

// serveDriverToolkit makes the cluster serve ImageStreams, and creates that of the driver toolkit.
func (e *env) serveDriverToolkit(images map[string]string) {
	e.t.Helper()
	e.create(cluster.ImageStreams())
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: labels.DriverToolkitNamespace}})
	e.Eventually(func() error {
		return e.client.Create(e.t.Context(), cluster.DriverToolkit(images))
	}).Should(Succeed(), "the kind is served a moment after its definition is created")
}

// serveOpenShift makes the cluster serve the configuration of OpenShift, with a proxy and a version.
func (e *env) serveOpenShift() {
	e.t.Helper()
	for _, kind := range cluster.OpenShiftKinds() {
		e.create(kind)
	}
	for _, object := range []client.Object{
		cluster.OpenShiftProxy("http://a", true), cluster.OpenShiftVersion("4.18.12"),
	} {
		e.Eventually(func() error { return e.client.Create(e.t.Context(), object) }).
			Should(Succeed(), "the kind is served a moment after its definition is created")
	}
}

// configurationRead: the version and the proxy of the cluster are in the pods that drivers get next. No running driver
// ends or is outdated, neither at first nor when the proxy changes, and an operator that is restarted with these
// arguments writes nothing.
func (e *env) configurationRead(args ...string) {
	before := e.podsOf("driver")
	e.serveOpenShift()
	e.awaitDownloads("http://a")
	address := cluster.OpenShiftProxy("", true)
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(address), address)).To(Succeed())
	address.Object["status"] = cluster.OpenShiftProxy("http://b", true).Object["status"]
	e.Expect(e.client.Update(e.t.Context(), address)).To(Succeed())
	e.awaitDownloads("http://b")
	e.awaitReady(3)
	e.settled()
	e.Expect(e.podsOf("driver")).To(Equal(before), "pods of drivers by UID")
	e.stop()
	mark := e.mark()
	e.run(args...)
	e.quietSince("restart", mark, 5*time.Second)
}

// awaitDownloads waits until new pods of every driver get the version of OpenShift and this proxy.
func (e *env) awaitDownloads(proxy string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		for _, ds := range e.driverDaemonSets() {
			g.Expect(ds.Spec.Template.Spec.Containers[0].Env).To(ContainElements(
				corev1.EnvVar{Name: "OPENSHIFT_VERSION", Value: "4.18"}, corev1.EnvVar{Name: "HTTPS_PROXY", Value: proxy}))
		}
	}).WithTimeout(servedTime).Should(Succeed())
}

func (e *env) setToolkits(images map[string]string) {
	e.t.Helper()
	stream := cluster.DriverToolkit(nil)
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(stream), stream)).To(Succeed())
	stream.Object["spec"] = cluster.DriverToolkit(images).Object["spec"]
	e.Expect(e.client.Update(e.t.Context(), stream)).To(Succeed())
}

// awaitNodes waits until the status has these reasons for the nodes, and none for healthy ones.
func (e *env) awaitNodes(reasons map[string]string, within time.Duration) {
	e.t.Helper()
	e.Eventually(func() map[string]string {
		found := map[string]string{}
		for _, node := range e.policy().Status.Nodes {
			found[node.Name] = node.Reason
		}
		return found
	}).WithTimeout(within).WithPolling(100*time.Millisecond).Should(
		Equal(reasons), func() string { return summary(e.policy()) },
	)
}

// messages returns those of the nodes in the status.
func (e *env) messages() map[string]string {
	found := map[string]string{}
	for _, node := range e.policy().Status.Nodes {
		found[node.Name] = node.Message
	}
	return found
}

// condition returns the message of the node's condition, which is not truncated.
func (e *env) condition(name string) string {
	for _, condition := range e.node(name).Status.Conditions {
		if condition.Type == gpuReady {
			return condition.Message
		}
	}
	return ""
}

func (e *env) driverDaemonSets() []appsv1.DaemonSet {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace),
		client.MatchingLabels{labels.Operand: "driver"})).To(Succeed())
	e.Expect(meta.LenList(list)).To(BeNumerically(">", 0))
	return list.Items
}

// driverOf returns the driver's DaemonSet for a pool, which may have the name without a suffix.
func (e *env) driverOf(pool string) *appsv1.DaemonSet {
	e.t.Helper()
	for _, ds := range e.driverDaemonSets() {
		if ds.Spec.Template.Labels[labels.Pool] == pool {
			return &ds
		}
	}
	e.t.Fatalf("pool %s has no driver DaemonSet", pool)
	return nil
}

// toolkitsInUse returns the images of the driver toolkit by pool.
func (e *env) toolkitsInUse() map[string]string {
	found := map[string]string{}
	for _, ds := range e.driverDaemonSets() {
		for _, container := range ds.Spec.Template.Spec.Containers {
			if container.Name == "openshift-driver-toolkit-ctr" {
				found[ds.Spec.Template.Labels[labels.Pool]] = container.Image
			}
		}
	}
	return found
}

// poolImage returns the image of a pool in the status.
func (e *env) poolImage(name string) string {
	for _, pool := range e.policy().Status.Pools {
		if pool.Name == name {
			return pool.Image
		}
	}
	return "no such pool"
}
