package install

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// installCase is an installation that is to become ready.
type installCase struct {
	name string
	set  string
	// values is a file's content, and file the path of one.
	values, file string
	in           string
	// objects are there before.
	objects []configMap
	// daemonSets are those that there must be, and absent those that there must not be.
	daemonSets, absent []string
	// reads is the ConfigMap that the device plugin is to read.
	reads string
	// notes are lines that Helm prints afterwards, and silent words that it does not.
	notes, silent []string
	// wait has Helm itself wait for what it installs, as guides tell people.
	wait bool
}

type configMap struct {
	name string
	data map[string]string
}

// installs are those of the short tier.
var installs = []installCase{
	{name: "the line of the guides", wait: true, daemonSets: []string{"nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator"}, absent: []string{"nvidia-dcgm", "nvidia-node-status-exporter"}},
	{name: "every value of NVIDIA's chart", file: nvidiasValues, notes: []string{"ghcr.io/clusterpolicy/gpu-operator:latest is used instead"}},
	{name: "the other namespace", in: "nvidia-gpu-operator", daemonSets: []string{"nvidia-device-plugin-daemonset"}},
	{name: "every operand named, one turned off", set: "driver.enabled=true toolkit.enabled=true devicePlugin.enabled=true dcgmExporter.enabled=true migManager.enabled=false gfd.enabled=true", absent: []string{"nvidia-mig-manager"}},
	{
		name: "versions, and what has no effect",
		set: "driver.version=580.82.07 toolkit.version=1.17.4 devicePlugin.version=v0.17.1 operator.repository=nvcr.io/nvidia operator.version=v26.3.0 operator.cleanupCRD=true " +
			"operator.logging.timeEncoding=epoch draDriver.version=v1 ccManager.enabled=true vgpuManager.enabled=false",
		notes: []string{
			"toolkit.version is 1.17.4: NVIDIA's tags begin with v, as in v1.17.4",
			"operator.repository names the image of NVIDIA's operator: ghcr.io/clusterpolicy/gpu-operator:latest is used instead",
			"operator.cleanupCRD: helm uninstall leaves the definition", "operator.logging.timeEncoding: ", "draDriver: ",
			"ccManager: virtual machines are not supported yet",
		},
		silent: []string{"vgpuManager", "devicePlugin.version", "gpuCluster"},
	},
	{name: "mixed MIG", set: "mig.strategy=mixed"},
	{name: "time-slicing", reads: "gpu-sharing-config", set: "devicePlugin.config.name=gpu-sharing-config devicePlugin.config.default=any operator.defaultRuntime=containerd", notes: []string{"operator.defaultRuntime: deprecated", "found by the operator itself"}, silent: []string{"Please check"},
		objects: []configMap{{"gpu-sharing-config", map[string]string{"any": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"}}}},
	{name: "MPS", set: "mps.enabled=true mps.replicas=8", reads: "gpu-operator-mps"},
	{name: "a made configuration", values: "devicePlugin: {config: {create: true, name: plugin, default: any, data: {any: \"version: v1\\nflags: {migStrategy: none}\\n\"}}}", reads: "plugin"},
	{name: "engine and status exporter, no feature discovery", set: "dcgm.enabled=true nodeStatusExporter.enabled=true gfd.enabled=false", daemonSets: []string{"nvidia-dcgm", "nvidia-node-status-exporter"}, absent: []string{"gpu-feature-discovery"}},
	{name: "no CDI, an own Node Feature Discovery", set: "cdi.enabled=false nfd.enabled=false", notes: []string{"found by your Node Feature Discovery, as nfd.enabled is false"}, absent: []string{"nvidia-node-discovery"}},
	{name: "a mirror and a proxy", set: "global.registry=mirror.local:5000 global.proxy.httpsProxy=http://proxy:3128 psa.enabled=true"},
	{name: "a ServiceMonitor and an upgrade policy", set: "dcgmExporter.serviceMonitor.enabled=true dcgmExporter.serviceMonitor.interval=30s driver.upgradePolicy.gpuPodDeletion.force=true operator.logging.level=debug"},
}

// TestInstallsAreReady installs the chart with the real Helm, runs the operator with no other rights than those
// that the chart gives it, and waits until all nodes are ready.
func TestInstallsAreReady(t *testing.T) {
	t.Parallel()
	// An installation has its cluster for itself, and mostly waits.
	const clusters = 2
	for first := range clusters {
		t.Run(fmt.Sprintf("cluster %d", first), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, 2)
			for i := first; i < len(installs); i += clusters {
				t.Run(installs[i].name, func(t *testing.T) { b.in(t).installReady(installs[i]) })
			}
		})
	}
}

// TestInstallsOnTheOldestKubernetes is the line of the guides on the oldest release that is supported. TEST_FULL=1
// installs all of the short tier there.
func TestInstallsOnTheOldestKubernetes(t *testing.T) {
	t.Parallel()
	begin, tried := time.Now(), installs[:1]
	if cluster.FullCampaigns() {
		tried = installs
	}
	b := newBedOn(t, cluster.Oldest, 2)
	for _, c := range tried {
		t.Run(c.name, func(t *testing.T) { b.in(t).installReady(c) })
	}
	t.Logf("Kubernetes %s: %d of %d installations in %s", b.cluster.Version, len(tried), len(installs), time.Since(begin).Round(100*time.Millisecond))
}

func (b *bed) installReady(c installCase) {
	b.t.Helper()
	in := c.in
	if in == "" {
		in = namespace
	}
	begin, mark := time.Now(), b.mark()
	defer b.uninstall(in)
	b.prepare(in, c.objects)
	args := append([]string{"install", release, chart, "--namespace", in, "--create-namespace"}, renderCase{set: c.set, values: c.values}.flagsOf(b.t)...)
	if c.file != "" {
		args = append(args, "--values", c.file)
	}
	if c.wait {
		// It waits for objects with a status, and so for the policy once the operator has written one.
		installed := make(chan error, 1)
		go func() {
			_, err := b.tryHelm(append(args, "--wait", "--timeout", "10m")...)
			installed <- err
		}()
		// Helm makes the Deployment after the rights: a pod of it never runs without them.
		b.Eventually(func() error {
			return b.client.Get(b.t.Context(), client.ObjectKey{Namespace: in, Name: "gpu-operator"}, &appsv1.Deployment{})
		}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
		b.run(in)
		b.Eventually(installed).WithTimeout(time.Minute).Should(Receive(BeNil()))
	} else {
		out := b.helm(args...)
		for _, line := range c.notes {
			b.Expect(out).To(ContainSubstring(line))
		}
		for _, word := range c.silent {
			b.Expect(out).NotTo(ContainSubstring(word))
		}
		b.run(in)
	}
	b.awaitReady()
	names := b.daemonSets(in)
	b.Expect(names).To(ContainElements(c.daemonSets))
	for _, name := range c.absent {
		b.Expect(names).NotTo(ContainElement(name))
	}
	if c.reads != "" {
		b.Expect(b.configMaps(in, "nvidia-device-plugin-daemonset")).To(ContainElement(c.reads))
	}
	b.noneForbidden(in, mark)
	b.t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
}

// configMaps are those that the pods of a DaemonSet mount.
func (b *bed) configMaps(in, name string) []string {
	b.t.Helper()
	set := &appsv1.DaemonSet{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: in, Name: name}, set)).To(Succeed())
	var found []string
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil {
			found = append(found, volume.ConfigMap.Name)
		}
	}
	return found
}

// prepare makes what is there before an installation.
func (b *bed) prepare(in string, objects []configMap) {
	b.t.Helper()
	if len(objects) == 0 {
		return
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}
	b.Expect(client.IgnoreAlreadyExists(b.client.Create(b.t.Context(), own))).To(Succeed())
	for _, object := range objects {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object.name, Namespace: in}, Data: object.data}
		b.Expect(b.client.Create(b.t.Context(), config)).To(Succeed())
	}
}

// notReady are combinations that do not become ready on a common node, each with the reason: the operator is to
// say so.
var notReady = map[string]string{
	"time-slicing from a ConfigMap":         "there is no such ConfigMap",
	"no driver":                             "the node has none of its own",
	"no driver, no toolkit":                 "the node has neither of its own",
	"configurations of the driver":          "there are no such objects",
	"a licence":                             "there is no such Secret",
	"a default configuration of the plugin": "there is no such ConfigMap",
	"the clients of GPUs on the host":       "there is no such ConfigMap",
	"all DaemonSets":                        "there is no such PriorityClass",
	"nodes for one operand":                 "there is no such PriorityClass",
	"a mirror, a proxy, pull secrets and certificates for all": "there is no such ConfigMap",
	"a pause":          "nothing is installed",
	"virtual machines": "they are not supported yet",
}

// TestEachCombinationIsTakenUp installs what the tables have: the API server takes each policy, and the operator
// brings the node to ready or says why not, without a right that the chart does not give. TEST_FULL=1 alone runs it.
func TestEachCombinationIsTakenUp(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skip("TEST_FULL=1 installs all combinations; TestInstallsAreReady is the sample")
	}
	b := newBed(t, 1)
	done, ready := 0, 0
	for _, c := range slices.Concat(guides, combinations) {
		if c.without {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := b.in(t)
			if b.takenUp(c) {
				ready++
			}
			done++
		})
	}
	t.Logf("taken up %d, of which ready %d", done, ready)
}

// takenUp installs a combination and tells whether it became ready. One that is not says why.
func (b *bed) takenUp(c renderCase) bool {
	b.t.Helper()
	in, mark := namespace, b.mark()
	args := append([]string{"install", release, chart, "--namespace", in, "--create-namespace"}, c.flagsOf(b.t)...)
	if len(c.flags) > 0 {
		in = c.flags[1]
	}
	out := b.helm(args...)
	defer b.uninstall(in)
	b.Expect(out).To(ContainSubstring("STATUS: deployed"))
	b.run(in)
	var last *metav1.Condition
	settled := func(g Gomega) {
		policy := b.policy()
		g.Expect(policy).NotTo(BeNil())
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		last = apimeta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady)
		g.Expect(last).NotTo(BeNil())
		if notReady[c.name] == "" {
			g.Expect(last.Status).To(Equal(metav1.ConditionTrue), "%s: %s", last.Reason, last.Message)
			return
		}
		g.Expect(last.Status).To(Equal(metav1.ConditionFalse), notReady[c.name])
		g.Expect(last.Message).NotTo(BeEmpty())
	}
	b.Eventually(settled).WithTimeout(30 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	b.noneForbidden(in, mark)
	return last.Status == metav1.ConditionTrue
}
