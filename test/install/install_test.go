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
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// installCase is an installation that must become ready.
type installCase struct {
	name string
	set  string
	// values is the content of a values file, and file the path of one.
	values, file string
	in           string
	// objects exist before the installation.
	objects []configMap
	// daemonSets must exist, and absent must not.
	daemonSets, absent []string
	// reads is the ConfigMap that the device plugin must read.
	reads string
	// notes are lines that Helm prints afterwards, and silent texts that it does not print.
	notes, silent []string
	// wait makes Helm itself wait for what it installs, as in guides.
	wait bool
}

type configMap struct {
	name string
	data map[string]string
}

// installs are the installations of the short tier.
var installs = []installCase{
	{name: "the command of the guides", wait: true, daemonSets: []string{
		"nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset", "gpu-feature-discovery",
		"nvidia-dcgm-exporter", "nvidia-operator-validator",
	}, absent: []string{"nvidia-dcgm", "nvidia-node-status-exporter"}},
	{
		name: "every value of NVIDIA's chart", file: nvidiasValues,
		notes: []string{packaged.ReleaseImage + " is used instead"},
	},
	{name: "the other namespace", in: "nvidia-gpu-operator", daemonSets: []string{"nvidia-device-plugin-daemonset"}},
	{name: "every operand named, one turned off", set: "driver.enabled=true toolkit.enabled=true " +
		"devicePlugin.enabled=true dcgmExporter.enabled=true migManager.enabled=false gfd.enabled=true", absent: []string{
		"nvidia-mig-manager",
	}},
	{
		name: "versions, and what has no effect",
		set: "driver.version=580.82.07 toolkit.version=1.17.4 devicePlugin.version=v0.17.1 " +
			"operator.repository=nvcr.io/nvidia operator.version=v26.3.0 " +
			"operator.logging.timeEncoding=epoch draDriver.version=v1 ccManager.enabled=true vgpuManager.enabled=false",
		notes: []string{
			"toolkit.version is 1.17.4: NVIDIA's tags begin with v, as in v1.17.4",
			"operator.repository, image and version name the image of NVIDIA's operator: " + packaged.ReleaseImage + " is used instead",
			"draDriver: ",
			"ccManager: virtual machines are not supported yet",
		},
		silent: []string{"vgpuManager", "devicePlugin.version", "gpuCluster"},
	},
	{name: "mixed MIG", set: "mig.strategy=mixed"},
	{name: "time-slicing", reads: "gpu-sharing-config", set: "devicePlugin.config.name=gpu-sharing-config " +
		"devicePlugin.config.default=any operator.defaultRuntime=containerd", notes: []string{
		"operator.defaultRuntime: deprecated", "found by the operator itself",
	}, silent: []string{"Please check"},
		objects: []configMap{{"gpu-sharing-config", map[string]string{
			"any": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
		}}}},
	{name: "MPS", set: "mps.enabled=true mps.replicas=8", reads: "gpu-operator-mps"},
	{
		name: "a created configuration",
		values: "devicePlugin: {config: {create: true, name: plugin, default: any, data: " +
			"{any: \"version: v1\\nflags: {migStrategy: none}\\n\"}}}",
		reads: "plugin",
	},
	{
		name:       "engine and status exporter, no feature discovery",
		set:        "dcgm.enabled=true nodeStatusExporter.enabled=true gfd.enabled=false",
		daemonSets: []string{"nvidia-dcgm", "nvidia-node-status-exporter"}, absent: []string{"gpu-feature-discovery"},
	},
	{
		name: "no CDI, an own Node Feature Discovery", set: "cdi.enabled=false nfd.enabled=false",
		notes:  []string{"found by your Node Feature Discovery, as nfd.enabled is false"},
		absent: []string{"nvidia-node-discovery"},
	},
	{
		name: "a mirror and a proxy",
		set:  "global.registry=mirror.local:5000 global.proxy.httpsProxy=http://proxy:3128 psa.enabled=true",
	},
	{
		name: "a ServiceMonitor, dashboards and an upgrade policy",
		set: "dcgmExporter.serviceMonitor.enabled=true dcgmExporter.serviceMonitor.interval=30s dashboards.enabled=true " +
			"driver.upgradePolicy.gpuPodDeletion.force=true operator.logging.level=debug",
		notes: []string{"dashboards.enabled: the dashboards show series of the recording rules: set monitoring."},
	},
}

// TestInstallsAreReady installs the chart with the real Helm, runs the operator with only the chart's permissions,
// and waits until all nodes are ready.
func TestInstallsAreReady(t *testing.T) {
	t.Parallel()
	selected := installs
	if cluster.Sampled() || cluster.Shared() {
		selected = chance.Sample(t, "installs", installs, len(installs)/3, func(c installCase) string { return c.name })
	}
	// Each installation has its own cluster, and mostly waits.
	const clusters = 2
	for first := range clusters {
		t.Run(fmt.Sprintf("cluster %d", first), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, 2)
			for i := first; i < len(selected); i += clusters {
				t.Run(selected[i].name, func(t *testing.T) { e.in(t).installReady(selected[i]) })
			}
		})
	}
}

// TestInstallsOnTheOldestKubernetes runs the command of the guides on the oldest supported release. TEST_FULL=1 runs
// all of the short tier there.
func TestInstallsOnTheOldestKubernetes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	begin, tried := time.Now(), installs[:1]
	if cluster.FullCampaigns() {
		tried = installs
	}
	e := newEnvOn(t, cluster.Oldest, 2)
	for _, c := range tried {
		t.Run(c.name, func(t *testing.T) { e.in(t).installReady(c) })
	}
	t.Logf("Kubernetes %s: %d of %d installations in %s", e.cluster.Version, len(tried), len(installs),
		time.Since(begin).Round(100*time.Millisecond))
}

func (e *env) installReady(c installCase) {
	e.t.Helper()
	in := c.in
	if in == "" {
		in = namespace
	}
	begin, mark := time.Now(), e.mark()
	defer e.uninstall(in)
	e.prepare(in, c.objects)
	args := append([]string{"install", release, chart, "--namespace", in, "--create-namespace"},
		renderCase{set: c.set, values: c.values}.flagsOf(e.t)...)
	if c.file != "" {
		args = append(args, "--values", c.file)
	}
	if c.wait {
		// Helm waits for objects with a status, and so for the policy once the operator has written its status.
		installed := make(chan error, 1)
		go func() {
			_, err := e.tryHelm(append(args, "--wait", "--timeout", "10m")...)
			installed <- err
		}()
		// Helm creates the Deployment after the roles: its pod never runs without them.
		e.Eventually(func() error {
			return e.client.Get(
				e.t.Context(),
				client.ObjectKey{Namespace: in, Name: "gpu-operator"},
				&appsv1.Deployment{},
			)
		}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
		e.run(in)
		e.Eventually(installed).WithTimeout(time.Minute).Should(Receive(BeNil()))
	} else {
		out := e.helm(args...)
		for _, line := range c.notes {
			e.Expect(out).To(ContainSubstring(line))
		}
		for _, word := range c.silent {
			e.Expect(out).NotTo(ContainSubstring(word))
		}
		e.run(in)
	}
	e.awaitReady()
	names := e.daemonSets(in)
	e.Expect(names).To(ContainElements(c.daemonSets))
	for _, name := range c.absent {
		e.Expect(names).NotTo(ContainElement(name))
	}
	if c.reads != "" {
		e.Expect(e.configMaps(in, "nvidia-device-plugin-daemonset")).To(ContainElement(c.reads))
	}
	e.noneForbidden(in, mark)
	e.t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
}

// configMaps returns those that the pods of a DaemonSet mount.
func (e *env) configMaps(in, name string) []string {
	e.t.Helper()
	set := &appsv1.DaemonSet{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: in, Name: name}, set)).To(Succeed())
	var found []string
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil {
			found = append(found, volume.ConfigMap.Name)
		}
	}
	return found
}

// prepare creates the objects that exist before an installation.
func (e *env) prepare(in string, objects []configMap) {
	e.t.Helper()
	if len(objects) == 0 {
		return
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}
	e.Expect(client.IgnoreAlreadyExists(e.client.Create(e.t.Context(), own))).To(Succeed())
	for _, object := range objects {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object.name, Namespace: in}, Data: object.data}
		e.Expect(e.client.Create(e.t.Context(), config)).To(Succeed())
	}
}

// notReady are combinations that do not become ready on an ordinary node, each with the cause, which the operator
// must report.
var notReady = map[string]string{
	"time-slicing from a ConfigMap":         "the ConfigMap does not exist",
	"no driver":                             "the node has none of its own",
	"no driver, no toolkit":                 "the node has neither of its own",
	"configurations of the driver":          "the objects do not exist",
	"a licence":                             "the Secret does not exist",
	"a default configuration of the plugin": "the ConfigMap does not exist",
	"the clients of GPUs on the host":       "the ConfigMap does not exist",
	"all DaemonSets":                        "the PriorityClass does not exist",
	"nodes for one operand":                 "the PriorityClass does not exist",
	"a mirror, a proxy, pull secrets and certificates for all": "the ConfigMap does not exist",
	"a pause":          "nothing is installed",
	"virtual machines": "they are not supported yet",
}

// TestEachCombinationIsReconciled installs all combinations of the tables: the API server accepts each policy, and
// with only the chart's permissions the operator makes the node ready or reports why not. It only runs with
// TEST_FULL=1.
func TestEachCombinationIsReconciled(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skip("TEST_FULL=1 installs all combinations; TestInstallsAreReady is the sample")
	}
	e := newEnv(t, 1)
	done, ready := 0, 0
	for _, c := range slices.Concat(guides, combinations) {
		if c.without {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			e := e.in(t)
			if e.reconciled(c) {
				ready++
			}
			done++
		})
	}
	t.Logf("%d reconciled, of which %d are ready", done, ready)
}

// reconciled installs a combination and reports whether it became ready. If not, the operator must report the cause.
func (e *env) reconciled(c renderCase) bool {
	e.t.Helper()
	in, mark := namespace, e.mark()
	args := append([]string{"install", release, chart, "--namespace", in, "--create-namespace"}, c.flagsOf(e.t)...)
	if len(c.flags) > 0 {
		in = c.flags[1]
	}
	out := e.helm(args...)
	defer e.uninstall(in)
	e.Expect(out).To(ContainSubstring("STATUS: deployed"))
	e.run(in)
	var last *metav1.Condition
	settled := func(g Gomega) {
		policy := e.policy()
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
	e.Eventually(settled).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
	e.noneForbidden(in, mark)
	return last.Status == metav1.ConditionTrue
}
