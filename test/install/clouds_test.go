package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

const clouds = repo + "/docs/clouds"

// cloudCase is a block of values in docs/clouds, a node of that platform, and what must run there.
type cloudCase struct {
	// page and values name the block.
	page, values string
	// labels and info are those of the node, as YAML.
	labels, info string
	// stream is the ImageStream of OpenShift's driver toolkit.
	stream string
	// runs are the DaemonSets of the stages and others that must exist, absent those that must not.
	runs, absent []string
	// then checks more of what the chart and the operator install.
	then func(g *WithT, c cloudObjects)
}

// cloudObjects are the objects that the chart and the operator install.
type cloudObjects struct{ chart, operator []*unstructured.Unstructured }

const (
	driverSet    = "nvidia-driver-daemonset"
	toolkitSet   = "nvidia-container-toolkit-daemonset"
	pluginSet    = "nvidia-device-plugin-daemonset"
	validatorSet = "nvidia-operator-validator"
	exporterSet  = "nvidia-dcgm-exporter"
	featureSet   = "gpu-feature-discovery"
	migSet       = "nvidia-mig-manager"

	cosDriver   = "/home/kubernetes/bin/nvidia"
	talosDriver = "/usr/local"
)

// cloudCases has every block of values in docs/clouds. The facts of the nodes are those that the platforms publish.
var cloudCases = []cloudCase{
	{
		page: "README.md", values: "driver and toolkit of the image",
		labels: osLabels("ubuntu", "24.04"),
		info:   "{containerRuntimeVersion: 'containerd://2.0.7', kubeletVersion: v1.34.1, osImage: Ubuntu 24.04.3 LTS}",
		runs:   []string{pluginSet, validatorSet, exporterSet, featureSet},
		absent: []string{driverSet, toolkitSet},
		then:   runtimeClassIs("nvidia"),
	},
	{
		page: "gke.md", values: "Container-Optimized OS",
		labels: osLabels("cos", "121"),
		info: "{containerRuntimeVersion: 'containerd://2.0.7', kubeletVersion: v1.34.1-gke.1829001, " +
			"osImage: Container-Optimized OS from Google}",
		runs:   []string{toolkitSet, pluginSet, validatorSet, exporterSet, featureSet, migSet},
		absent: []string{driverSet},
		then: func(g *WithT, c cloudObjects) {
			toolkit := c.daemonSet(g, toolkitSet)
			g.Expect(hostPaths(toolkit)).To(HaveKeyWithValue("driver-install-dir", cosDriver))
			g.Expect(hostPaths(c.daemonSet(g, validatorSet))).NotTo(HaveKeyWithValue(Not(BeEmpty()), "/usr/local/nvidia"))
			g.Expect(container(g, toolkit, "driver-validation").Args).To(ContainElements(
				"--driver-install-dir="+cosDriver, "--driver-container=false"))
			g.Expect(container(g, toolkit, "nvidia-container-toolkit-ctr").Env).To(ContainElements(
				corev1.EnvVar{Name: "ROOT", Value: cosDriver}, corev1.EnvVar{Name: "RUNTIME_CONFIG_SOURCE", Value: "file"}))
			g.Expect(container(g, c.daemonSet(g, migSet), "nvidia-mig-manager").Env).To(ContainElement(
				corev1.EnvVar{Name: "WITH_REBOOT", Value: "true"}))
			c.quotaAdmits(g)
		},
	},
	{
		page: "gke.md", values: "Ubuntu",
		labels: osLabels("ubuntu", "24.04"),
		info: "{containerRuntimeVersion: 'containerd://2.0.7', kubeletVersion: v1.34.1-gke.1829001, " +
			"osImage: Ubuntu 24.04.3 LTS}",
		runs: []string{driverSet, toolkitSet, pluginSet, validatorSet, exporterSet, featureSet},
		then: func(g *WithT, c cloudObjects) {
			g.Expect(hostPaths(c.daemonSet(g, toolkitSet))).To(HaveKeyWithValue("driver-install-dir", "/run/nvidia/driver"))
			c.quotaAdmits(g)
		},
	},
	{
		page: "eks.md", values: "AL2023",
		labels: osLabels("amzn", "2023"),
		info: "{containerRuntimeVersion: 'containerd://2.1.4', kubeletVersion: v1.34.1-eks-113cf36, " +
			"osImage: Amazon Linux 2023}",
		runs:   []string{pluginSet, validatorSet, exporterSet, featureSet},
		absent: []string{driverSet, toolkitSet},
		then:   runtimeClassIs("nvidia"),
	},
	{
		page: "aks.md", values: "spot instances",
		labels: osLabels("ubuntu", "24.04"),
		info:   "{containerRuntimeVersion: 'containerd://2.3.1', kubeletVersion: v1.34.1, osImage: Ubuntu 24.04.3 LTS}",
		runs:   []string{driverSet, toolkitSet, pluginSet, validatorSet, exporterSet, featureSet},
		then: func(g *WithT, c cloudObjects) {
			for _, name := range []string{driverSet, toolkitSet, pluginSet, validatorSet, exporterSet, featureSet} {
				g.Expect(c.daemonSet(g, name).Spec.Template.Spec.Tolerations).To(ContainElements(
					corev1.Toleration{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"},
					corev1.Toleration{
						Key: "kubernetes.azure.com/scalesetpriority", Operator: "Equal", Value: "spot", Effect: "NoSchedule",
					}), name)
			}
			g.Expect(container(g, c.daemonSet(g, toolkitSet), "nvidia-container-toolkit-ctr").Env).To(ContainElement(
				corev1.EnvVar{Name: "RUNTIME_CONFIG_SOURCE", Value: "file"}), "containerd 2.3")
		},
	},
	{
		page: "aks.md", values: "driver of AKS",
		labels: osLabels("ubuntu", "24.04"),
		info:   "{containerRuntimeVersion: 'containerd://2.0.0', kubeletVersion: v1.34.1, osImage: Ubuntu 24.04.3 LTS}",
		runs:   []string{pluginSet, validatorSet, exporterSet, featureSet},
		absent: []string{driverSet, toolkitSet},
		then: func(g *WithT, c cloudObjects) {
			runtimeClassIs("nvidia-container-runtime")(g, c)
			g.Expect(find(c.operator, "RuntimeClass", "nvidia-cdi")).To(BeNil())
			g.Expect(container(g, c.daemonSet(g, pluginSet), "nvidia-device-plugin").Env).To(ContainElement(
				corev1.EnvVar{Name: "DEVICE_LIST_STRATEGY", Value: "envvar"}))
		},
	},
	{
		page: "openshift.md", values: "OpenShift",
		labels: "{node.openshift.io/os_id: rhcos, feature.node.kubernetes.io/pci-10de.present: 'true', " +
			"feature.node.kubernetes.io/system-os_release.ID: rhcos, " +
			"feature.node.kubernetes.io/system-os_release.VERSION_ID: '4.18', " +
			"feature.node.kubernetes.io/system-os_release.OSTREE_VERSION: 418.94.202501221327-0}",
		info: "{containerRuntimeVersion: 'cri-o://1.34.4', kubeletVersion: v1.34.4, " +
			"osImage: Red Hat Enterprise Linux CoreOS}",
		stream: "{apiVersion: image.openshift.io/v1, kind: ImageStream, metadata: {namespace: openshift, " +
			"name: driver-toolkit}, spec: {tags: [{name: 418.94.202501221327-0, " +
			"from: {kind: DockerImage, name: quay.io/dtk}}]}}",
		runs: []string{driverSet, pluginSet, validatorSet, exporterSet, featureSet},
		then: func(g *WithT, c cloudObjects) {
			g.Expect(container(g, c.daemonSet(g, driverSet), "openshift-driver-toolkit-ctr").Image).To(Equal("quay.io/dtk"))
			g.Expect(find(c.chart, "Role", "gpu-operator-privileged")).NotTo(BeNil())
		},
	},
	{
		page: "talos.md", values: "toolkit of the extension",
		labels: osLabels("talos", "v1.14.2"),
		info:   "{containerRuntimeVersion: 'containerd://2.1.4', kubeletVersion: v1.34.1, osImage: Talos (v1.14.2)}",
		runs:   []string{pluginSet, validatorSet, exporterSet, featureSet},
		absent: []string{driverSet, toolkitSet},
		then: func(g *WithT, c cloudObjects) {
			runtimeClassIs("nvidia")(g, c)
			validator := c.daemonSet(g, validatorSet)
			g.Expect(hostPaths(validator)).To(HaveKeyWithValue("driver-install-dir", talosDriver))
			g.Expect(container(g, validator, "driver-validation").Args).To(ContainElement("--driver-install-dir=" + talosDriver))
			c.labelsNamespace(g)
		},
	},
	{
		page: "talos.md", values: "toolkit of the operator",
		labels: osLabels("talos", "v1.15.0"),
		info:   "{containerRuntimeVersion: 'containerd://2.1.4', kubeletVersion: v1.34.1, osImage: Talos (v1.15.0)}",
		runs:   []string{toolkitSet, pluginSet, validatorSet, exporterSet, featureSet},
		absent: []string{driverSet},
		then: func(g *WithT, c cloudObjects) {
			toolkit := c.daemonSet(g, toolkitSet)
			g.Expect(hostPaths(toolkit)).To(HaveKeyWithValue("driver-install-dir", talosDriver))
			for name, path := range hostPaths(toolkit) {
				g.Expect(path).NotTo(HavePrefix("/etc"), "%s: /etc cannot be written", name)
			}
			main := container(g, toolkit, "nvidia-container-toolkit-ctr")
			g.Expect(main.Env).To(ContainElements(corev1.EnvVar{Name: "ROOT", Value: "/var/lib/nvidia"},
				corev1.EnvVar{Name: "ENABLE_NRI_PLUGIN", Value: "true"}))
			g.Expect(find(c.operator, "RuntimeClass", "nvidia")).To(BeNil())
			c.labelsNamespace(g)
		},
	},
	{
		page: "bottlerocket.md", values: "variant with NVIDIA's software",
		labels: osLabels("bottlerocket", "1.54.0"),
		info:   "{containerRuntimeVersion: 'containerd://2.1.4', kubeletVersion: v1.34.1, osImage: Bottlerocket OS 1.54.0}",
		runs:   []string{validatorSet, exporterSet, featureSet},
		absent: []string{driverSet, toolkitSet, pluginSet, migSet},
		then: func(g *WithT, c cloudObjects) {
			runtimeClassIs("nvidia")(g, c)
			var names []string
			for _, init := range c.daemonSet(g, validatorSet).Spec.Template.Spec.InitContainers {
				names = append(names, init.Name)
			}
			g.Expect(names).To(And(ContainElements("driver-validation", "toolkit-validation", "cuda-validation"),
				Not(ContainElement("plugin-validation"))))
		},
	},
}

// osLabels are the discovery labels of a node with a GPU that can be partitioned.
func osLabels(id, release string) string {
	return "{feature.node.kubernetes.io/pci-10de.present: 'true', nvidia.com/mig.capable: 'true', " +
		"feature.node.kubernetes.io/kernel-version.full: 6.12.1, feature.node.kubernetes.io/system-os_release.ID: " + id +
		", feature.node.kubernetes.io/system-os_release.VERSION_ID: '" + release + "'}"
}

// TestCloudValues: the values on the pages of docs/clouds do on a node of the platform what the pages state, and an API
// server admits the policy and all objects that the operator makes of it.
func TestCloudValues(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	g := NewWithT(t)
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config, stop, err := cluster.StartEnvtest(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(stop()).To(Succeed()) })
	server, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	program, err := plugin()
	g.Expect(err).NotTo(HaveOccurred())

	documented := documentedValues(g)
	for _, c := range cloudCases {
		name := c.page + ": " + c.values
		values, found := documented[name]
		g.Expect(found).To(BeTrue(), "%s is not in docs/clouds", name)
		delete(documented, name)
		t.Run(name, func(t *testing.T) { c.check(t, values, program, client.NewDryRunClient(server)) })
	}
	g.Expect(documented).To(BeEmpty(), "each block of values has a case")
}

var valuesBlock = regexp.MustCompile("(?s)```yaml\n# values: ([^\n]+)\n(.*?)```")

// documentedValues returns the blocks of values in docs/clouds, by page and name.
func documentedValues(g *WithT) map[string]string {
	found := map[string]string{}
	pages, err := filepath.Glob(clouds + "/*.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, page := range pages {
		text, err := os.ReadFile(page)
		g.Expect(err).NotTo(HaveOccurred())
		for _, block := range valuesBlock.FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(page)+": "+block[1]] = block[2]
		}
		g.Expect(strings.Count(string(text), "```yaml\n")).To(Equal(len(valuesBlock.FindAllString(string(text), -1))),
			"each YAML block of %s begins with a line # values: NAME", page)
	}
	return found
}

func (c cloudCase) check(t *testing.T, values, plugin string, server client.Client) {
	t.Helper()
	g := NewWithT(t)
	text, err := render(t, "--values", write(t, "values.yaml", values))
	g.Expect(err).NotTo(HaveOccurred())
	var all cloudObjects
	all.chart, err = packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	policyOf(g, all.chart) // Unknown fields.
	g.Expect(server.Create(t.Context(), find(all.chart, "ClusterPolicy", "cluster-policy").DeepCopy())).To(Succeed())
	for _, object := range all.chart {
		if object.GetKind() == "ResourceQuota" {
			object.SetNamespace(namespace)
			g.Expect(server.Create(t.Context(), object.DeepCopy())).To(Succeed())
		}
	}

	all.operator = c.operatorObjects(t, all.chart, plugin)
	for _, object := range all.operator {
		g.Expect(server.Create(t.Context(), object.DeepCopy())).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
	for _, name := range c.runs {
		g.Expect(find(all.operator, "DaemonSet", name)).NotTo(BeNil(), name)
	}
	for _, name := range c.absent {
		g.Expect(find(all.operator, "DaemonSet", name)).To(BeNil(), name)
	}
	c.then(g, all)
}

// operatorObjects returns what the operator would apply for the chart's policy and one node of the platform.
func (c cloudCase) operatorObjects(
	t *testing.T, chart []*unstructured.Unstructured, plugin string,
) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	policy, err := yaml.Marshal(policyOf(g, chart))
	g.Expect(err).NotTo(HaveOccurred())
	node := "{apiVersion: v1, kind: Node, metadata: {name: gpu, labels: " + c.labels + "}, " +
		"status: {nodeInfo: " + strings.Replace(c.info, "{", "{architecture: amd64, ", 1) + "}}"
	args := []string{
		"render", "-f", write(t, "policy.yaml", string(policy)), "--nodes", write(t, "nodes.yaml", node),
	}
	if c.stream != "" {
		args = append(args, "--driver-toolkit-images", write(t, "stream.yaml", c.stream))
	}
	command := exec.CommandContext(t.Context(), plugin, args...)
	var notes strings.Builder
	command.Stderr = &notes
	out, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred(), notes.String())
	g.Expect(notes.String()).NotTo(ContainSubstring("NotSupportedYet"))
	objects, err := packaged.Decode(string(out))
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// write writes a temporary file and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

func (c cloudObjects) daemonSet(g *WithT, name string) *appsv1.DaemonSet {
	found := find(c.operator, "DaemonSet", name)
	g.Expect(found).NotTo(BeNil(), name)
	ds := &appsv1.DaemonSet{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, ds)).To(Succeed())
	return ds
}

// hostPaths are the volumes from the host, by name.
func hostPaths(ds *appsv1.DaemonSet) map[string]string {
	paths := map[string]string{}
	for _, volume := range ds.Spec.Template.Spec.Volumes {
		if volume.HostPath != nil {
			paths[volume.Name] = volume.HostPath.Path
		}
	}
	return paths
}

func container(g *WithT, ds *appsv1.DaemonSet, name string) corev1.Container {
	all := slices.Concat(ds.Spec.Template.Spec.InitContainers, ds.Spec.Template.Spec.Containers)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	g.Expect(at).To(BeNumerically(">=", 0), "%s has no container %s", ds.Name, name)
	return all[at]
}

// runtimeClassIs checks the class and its handler, and that the pods that need GPUs have it.
func runtimeClassIs(name string) func(*WithT, cloudObjects) {
	return func(g *WithT, c cloudObjects) {
		g.Expect(field(g, find(c.operator, "RuntimeClass", name), "handler")).To(Equal(name))
		for _, set := range []string{validatorSet, exporterSet, featureSet} {
			g.Expect(c.daemonSet(g, set).Spec.Template.Spec.RuntimeClassName).To(HaveValue(Equal(name)), set)
		}
	}
}

// quotaAdmits checks that the quota of the values has the priority class of each pod.
func (c cloudObjects) quotaAdmits(g *WithT) {
	quota := &corev1.ResourceQuota{}
	found := find(c.chart, "ResourceQuota", "gpu-operator-quota")
	g.Expect(found).NotTo(BeNil())
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, quota)).To(Succeed())
	g.Expect(quota.Spec.ScopeSelector.MatchExpressions).To(HaveLen(1))
	scope := quota.Spec.ScopeSelector.MatchExpressions[0]
	g.Expect(scope.ScopeName).To(Equal(corev1.ResourceQuotaScopePriorityClass))
	admitted := BeElementOf(scope.Values)
	g.Expect(field(g, find(c.chart, "Deployment", "gpu-operator"), "spec", "template", "spec", "priorityClassName")).
		To(admitted)
	for _, object := range c.operator {
		if object.GetKind() == "DaemonSet" {
			g.Expect(field(g, object, "spec", "template", "spec", "priorityClassName")).To(admitted, object.GetName())
		}
	}
}

// labelsNamespace checks that the policy makes the operator label its namespace for Pod Security.
func (c cloudObjects) labelsNamespace(g *WithT) {
	g.Expect(policyOf(g, c.chart)).To(HaveField("Spec.PSA.Enabled", HaveValue(BeTrue())))
}
