package install

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// The notes warn of a configuration of the device plugin without a default where the operator finds no key, whether the
// chart creates the ConfigMap or it exists. If it does not exist yet, they describe what its keys decide.
func TestTheNotesResolveTheDefaultConfigurationAsTheOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 0)
	e.Expect(e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	definition := find(kustomize(t), "CustomResourceDefinition", "clusterpolicies.nvidia.com")
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, []*unstructured.Unstructured{definition})).To(Succeed())
	const note = "devicePlugin.config.default is not set"
	notes := func(flags ...string) string {
		return e.helm(append([]string{"install", release, chart, "--namespace", namespace, "--dry-run=server"}, flags...)...)
	}
	e.Expect(notes(set("devicePlugin.config.name=missing")...)).To(
		ContainSubstring(note + ": the operator uses the only key of ConfigMap missing, or default or any."))
	for name, keys := range map[string][]string{
		"one": {"a"}, "two": {"a", "b"}, "with-default": {"a", "default"}, "with-any": {"a", "b", "any"},
	} {
		data, create := map[string]string{}, set("devicePlugin.config.create=true devicePlugin.config.name=created-"+name)
		for _, key := range keys {
			data[key] = "version: v1"
			create = append(create, set("devicePlugin.config.data."+key+".version=v1")...)
		}
		e.Expect(e.client.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: data,
		})).To(Succeed())
		_, problem := operand.Input{
			Spec: effective.Of(v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: v1.ObjectName(name)}},
			}),
			Contents: map[operand.Reference]operand.Content{{Kind: operand.ConfigMap, Name: name}: {Keys: keys}},
		}.DefaultPluginConfig()
		for _, printed := range []string{notes(create...), notes(set("devicePlugin.config.name=" + name)...)} {
			e.Expect(strings.Contains(printed, note)).To(Equal(problem != ""), "%s: %s", name, printed)
		}
	}
	e.Expect(notes(set("devicePlugin.config.name=two devicePlugin.config.default=b")...)).NotTo(ContainSubstring(note))
}

// The operator knows each value of which the notes say that it has no effect, or may not mean what its author intended:
// from the policy, or from the policy's annotation with what is not in it. Helm shows no notes of subcharts. What the
// defaults of NVIDIA's chart have, so that users need not have chosen it, is in the notes alone.
func TestTheOperatorKnowsWhatTheNotesSay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		// values are those that the notes name.
		values []string
	}{
		"no values":               {},
		"NVIDIA's default values": {flags: []string{"--values", nvidiasValues}},
		"values of NVIDIA's chart": {
			flags: set("nfd.nodefeaturerules=true fullnameOverride=a operator.defaultGPUMode=container " +
				"operator.defaultRuntime=docker"),
			values: []string{"nfd.nodefeaturerules", "fullnameOverride", "operator.defaultGPUMode",
				"operator.defaultRuntime"},
		},
		"fields of the policy": {
			flags: set("dcgm.hostPort=5555 cdi.default=true psp.enabled=true kataManager.enabled=true ccManager.enabled=true " +
				"vgpuManager.enabled=true vfioManager.enabled=true kataSandboxDevicePlugin.enabled=true " +
				"sandboxWorkloads.mode=kata operator.initContainer.image=cuda driver.useOpenKernelModules=true " +
				"toolkit.version=1.17.4 gfd.version=0.17.1 sandboxWorkloads.defaultWorkload=vm-vgpu " +
				"driver.licensingConfig.configMapName=licence"),
			values: []string{"dcgm.hostPort", "cdi.default", "psp", "kataManager", "ccManager", "vgpuManager", "vfioManager",
				"kataSandboxDevicePlugin", "sandboxWorkloads.mode", "operator.initContainer", "driver.useOpenKernelModules",
				"toolkit.version", "gfd.version", "sandboxWorkloads.defaultWorkload",
				"driver.licensingConfig.configMapName"},
		},
		"nodes for virtual machines": {
			flags:  set("sandboxWorkloads.enabled=true sandboxWorkloads.defaultWorkload=vm-passthrough"),
			values: []string{"sandboxWorkloads.enabled"},
		},
		"values of the chart alone": {
			flags: set("dashboards.enabled=true platform.openshift=true operator.use_ocp_driver_toolkit=false " +
				"devicePlugin.config.name=a devicePlugin.config.default=a devicePlugin.config.data.a=b " +
				"migManager.config.create=true"),
			values: []string{"dashboards.enabled", "operator.use_ocp_driver_toolkit", "devicePlugin.config.data",
				"migManager.config.create"},
		},
		"what is no value": {flags: set("somethingElse.entirely=1"), values: []string{"somethingElse"}},
		"a copy of NVIDIA's image": {
			flags:  set("operator.repository=registry.local/nvidia operator.version=v26.3.0"),
			values: []string{"operator.repository, image and version"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text, err := render(t, test.flags...)
			g.Expect(err).NotTo(HaveOccurred())
			objects, err := packaged.Decode(text)
			g.Expect(err).NotTo(HaveOccurred())
			policy := &v1.ClusterPolicy{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(
				find(objects, "ClusterPolicy", "cluster-policy").Object, policy)).To(Succeed())
			known := slices.Concat(fieldnotes.Of(policy.Spec), conditions.ChartNotes(policy))
			shown := notesFor(t, version.NewestKubernetes+".0", test.flags...)
			for _, value := range test.values {
				g.Expect(shown).To(ContainSubstring(value))
				g.Expect(known).To(ContainElement(ContainSubstring(value)))
			}
			if len(test.values) == 0 {
				g.Expect(policy.Annotations).NotTo(HaveKey("nvidia.com/gpu-operator.chart-notes"))
			}
		})
	}
}

// A default workload without effect, and a deprecated licence, are in the notes, which say what happens instead.
func TestTheNotesOnWorkloadsAndLicences(t *testing.T) {
	t.Parallel()
	const (
		noEffect = "\n  sandboxWorkloads.defaultWorkload: has no effect without sandboxWorkloads.enabled, and virtual " +
			"machines are not supported yet: remove it\n"
		machines = "\n  sandboxWorkloads.enabled: nodes for virtual machines get no operands, as they are not supported yet"
		licence  = "\n  driver.licensingConfig.configMapName: deprecated; use driver.licensingConfig.secretName\n"
	)
	for flags, want := range map[string]string{
		"": "", "sandboxWorkloads.defaultWorkload=container driver.licensingConfig.secretName=licence": "",
		"sandboxWorkloads.defaultWorkload=vm-passthrough":                          noEffect,
		"sandboxWorkloads.defaultWorkload=vm-vgpu":                                 noEffect,
		"sandboxWorkloads.enabled=true":                                            machines + "\n",
		"sandboxWorkloads.enabled=true sandboxWorkloads.defaultWorkload=container": machines + "\n",
		"driver.licensingConfig.configMapName=licence":                             licence,
		"sandboxWorkloads.enabled=true sandboxWorkloads.defaultWorkload=vm-vgpu": machines +
			". With defaultWorkload vm-vgpu these are all nodes without the label nvidia.com/gpu.workload.config\n",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			notes := notesFor(t, version.NewestKubernetes+".0", set(flags)...) + "\n"
			if want == "" {
				g.Expect(notes).NotTo(ContainSubstring("Please check"))
				return
			}
			g.Expect(notes).To(ContainSubstring("\nPlease check:" + want))
		})
	}
}

// The notes name the next commands, with and without the plugin, and the documentation of the release.
func TestTheNotesNameTheNextCommands(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const docs = "https://github.com/clusterpolicy/gpu-operator/blob/"
	kubernetes := version.NewestKubernetes + ".0"
	notes := notesFor(t, kubernetes)
	g.Expect(notes).To(And(ContainSubstring("\n  kubectl gpu status\n  kubectl get clusterpolicy cluster-policy "),
		ContainSubstring("\nDocumentation: "+docs+"v"+packaged.ReleaseVersion+"/docs/README.md\n"),
		ContainSubstring("\n  helm test gpu-operator --namespace gpu-operator --logs\n")))
	g.Expect(notesFor(t, kubernetes, set("clusterPolicy.deployCR=false")...)).To(And(
		ContainSubstring("There is no ClusterPolicy yet"),
		ContainSubstring("\n  kubectl gpu status\n  kubectl get clusterpolicy  "), Not(ContainSubstring("helm test"))))
	g.Expect(notesOf(t, filepath.Join(repo, packaged.Chart), kubernetes, set("operator.repository=a.b")...)).
		To(ContainSubstring("\nDocumentation: " + docs + "main/docs/README.md\n"))
	g.Expect(filepath.Join(repo, "docs/README.md")).To(BeARegularFile())
}
