package dropin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const sha = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// accepted are policies that NVIDIA's operator reconciles, with what must be in the objects, what must not, and what
// the status reports.
var accepted = []struct {
	name, spec string
	// keys of the ConfigMap shared and of the Secret licence.
	keys              []string
	has, hasNot, note string
	// usual: the objects are those of an empty policy.
	usual bool
}{
	{
		name: "a name with slashes below its repository",
		spec: `{driver: {repository: nvcr.io, image: nvidia/driver, version: "580.1"}}`,
		has:  "image: nvcr.io/nvidia/driver:580.1-ubuntu24.04",
	},
	{
		name: "a mirror for the validator", spec: "{validator: {repository: mirror.local/nvidia}}",
		has: "image: mirror.local/nvidia/gpu-operator:" + version.Version,
	},
	{
		name: "a mirror of NVIDIA's validator", hasNot: "mirror.local", usual: true,
		spec: "{validator: {repository: mirror.local/nvidia, version: v26.7.0}}",
	},
	{
		name: "a mirror of its earlier image", hasNot: "mirror.local", usual: true,
		spec: "{validator: {repository: mirror.local/cloud-native, image: gpu-operator-validator, version: v25.3.0}}",
	},
	{
		name: "NVIDIA's other registry", spec: "{validator: {repository: ghcr.io/nvidia}}", hasNot: "ghcr.io/nvidia",
		usual: true,
	},
	{
		name:   "a mirror of NVIDIA's status exporter",
		spec:   "{nodeStatusExporter: {enabled: true, repository: mirror.local/nvidia, version: v26.7.0}}",
		has:    "name: nvidia-node-status-exporter",
		hasNot: "mirror.local",
	},
	{
		name: "a tag with a digest", spec: `{toolkit: {version: "v1.20.0@` + sha + `"}}`,
		has: "image: nvcr.io/nvidia/k8s/container-toolkit:v1.20.0@" + sha,
	},
	{
		name: "a full reference of the driver gets the operating system", spec: `{driver: {image: "reg.local/driver:580.1"}}`,
		has: "image: reg.local/driver:580.1-ubuntu24.04",
	},
	{
		name:   "a full reference by digest does not",
		spec:   `{driver: {image: "reg.local/driver@` + sha + `"}}`,
		has:    "image: reg.local/driver@" + sha,
		hasNot: sha + "-ubuntu24.04",
	},
	{
		name: "full references of the driver's sidecars",
		spec: `{gds: {enabled: true, image: "reg.local/fs:2"}, gdrcopy: {enabled: true, image: "reg.local/gdr:2"}}`,
		has:  "image: reg.local/gdr:2-ubuntu24.04",
	},
	{
		name: "a variable that is listed twice", spec: `{toolkit: {env: [{name: A, value: first}, {name: A, value: last}]}}`,
		has: "- name: A\n          value: last", hasNot: "value: first",
		note: "spec.toolkit.env: A occurs several times, and the last value is used: remove the others",
	},
	{
		name: "a key of no ConfigMap", spec: "{devicePlugin: {config: {default: a}}}", hasNot: "DEFAULT_CONFIG",
		note: "spec.devicePlugin.config.default: has no effect, as it is a key of the ConfigMap in name: set name",
	},
	{
		name: "an allow list of labels that are not enabled", spec: "{dcgmExporter: {podLabelAllowlistRegex: [^app$]}}",
		has: "value: ^app$", hasNot: "ENABLE_POD_LABELS",
		note: "spec.dcgmExporter.podLabelAllowlistRegex: has no effect while enablePodLabels is unset: set it to true, " +
			"or to false to keep the value",
	},
	{
		name: "a job mapping that is not enabled", spec: "{dcgmExporter: {hpcJobMapping: {directory: /jobs}}}",
		hasNot: "/jobs",
		note: "spec.dcgmExporter.hpcJobMapping.directory: has no effect while enabled is unset: set it to true, or to " +
			"false to keep the value",
	},
	{
		name: "an empty maxUnavailable", spec: `{daemonsets: {rollingUpdate: {maxUnavailable: ""}}}`,
		has: "maxUnavailable: 1\n", hasNot: `maxUnavailable: ""`, usual: true,
	},
	{
		name: "no node may be unavailable", spec: "{driver: {upgradePolicy: {autoUpgrade: true, maxUnavailable: 0}}}",
		note: "spec.driver.upgradePolicy.maxUnavailable: is 0, so that no node can be upgraded: raise it, or set " +
			"autoUpgrade to false",
	},
	{
		name: "large numbers, and selectors that compare",
		spec: `{driver: {upgradePolicy: {maxUnavailable: 150%, maxParallelUpgrades: 20000,
			waitForCompletion: {podSelector: "tier>5", timeoutSeconds: 700000}, drain: {timeoutSeconds: 700000}}}}`,
		usual: true,
	},
	{
		name: "a pull policy in another spelling", spec: "{driver: {imagePullPolicy: always}}",
		has: "imagePullPolicy: IfNotPresent", hasNot: "imagePullPolicy: always",
		note: `spec.driver.imagePullPolicy: "always" is unknown and means IfNotPresent: set Always, Never or IfNotPresent`,
	},
	{
		name: "any default runtime", spec: "{operator: {defaultRuntime: cri-o}}",
		note: "spec.operator.defaultRuntime: remove it, each node's runtime is detected",
	},
	{
		name: "KubeVirt with the plugin of Kata Containers",
		spec: "{sandboxWorkloads: {enabled: true}, kataSandboxDevicePlugin: {enabled: true}}",
		note: "spec.sandboxWorkloads.enabled: nodes for virtual machines get no operands; nodes for containers do",
	},
	{
		name: "GPUDirect Storage with proprietary modules",
		spec: "{driver: {kernelModuleType: proprietary}, gds: {enabled: true}}", has: "name: nvidia-fs-ctr",
		note: "spec.driver.kernelModuleType: nvidia-fs 2.17.5 and later (GPUDirect Storage) load with the open kernel " +
			"modules only: set open or auto, or remove spec.gds.enabled",
	},
	{
		name: "an older nvidia-fs, for which they will do",
		spec: `{driver: {kernelModuleType: proprietary}, gds: {enabled: true, version: "2.16.1"}}`,
		has:  "nvidia-fs:2.16.1-ubuntu24.04",
	},
	{name: "a hidden directory", spec: "{toolkit: {installDir: /.nvidia}}", has: "path: /.nvidia"},
	{
		name: "a long value", spec: "{toolkit: {env: [{name: A, value: " + strings.Repeat("x", 40_000) + "}]}}",
		has: strings.Repeat("x", 40_000),
	},
	{
		name: "many arguments, variables and tolerations", spec: fmt.Sprintf(
			"{gfd: {args: [%s], env: [%s], tolerations: [%s]}}", numbered("--flag=%d", 300),
			numbered("{name: V%d, value: a}", 300), numbered("{key: example.com/t%d, operator: Exists}", 150)),
		has: "name: V300",
	},
	{
		name: "a module type that only a variable sets",
		spec: "{driver: {env: [{name: KERNEL_MODULE_TYPE, value: open}]}}", has: "name: OPEN_KERNEL_MODULES_ENABLED",
	},
	{
		name: "RDMA that only a variable enables",
		spec: `{driver: {env: [{name: GPU_DIRECT_RDMA_ENABLED, value: "true"}]}}`, has: "name: nvidia-peermem-ctr",
	},
	{
		name: "a licence with a token", spec: "{driver: {licensingConfig: {secretName: licence}}}",
		keys: []string{"gridd.conf", "client_configuration_token.tok"}, has: "mountPath: /drivers/ClientConfigToken\n",
	},
	{
		name: "a licence of an older server", spec: "{driver: {licensingConfig: {secretName: licence}}}",
		keys: []string{"gridd.conf"}, has: "/drivers/gridd.conf", hasNot: "/drivers/ClientConfigToken",
	},
	{
		name: "one configuration", spec: "{devicePlugin: {config: {name: shared}}}", keys: []string{"four"},
		has: "name: DEFAULT_CONFIG\n          value: four",
	},
	{
		name: "a configuration called any", spec: "{devicePlugin: {config: {name: shared}}}", keys: []string{"any", "four"},
		has: "name: DEFAULT_CONFIG\n          value: any",
	},
	{
		name: "a configuration called default", spec: "{devicePlugin: {config: {name: shared}}}",
		keys: []string{"any", "default", "four"}, has: "name: DEFAULT_CONFIG\n          value: default",
	},
	{
		name: "several configurations", spec: "{devicePlugin: {config: {name: shared}}}", keys: []string{"two", "four"},
		hasNot: "value: four",
		note: "spec.devicePlugin.config.default: is not set, and none of the 2 keys of ConfigMap shared is default or any: " +
			"nodes without the label nvidia.com/device-plugin.config get an empty configuration. Set it to one of the keys",
	},
}

// numbered returns a list with the numbers from 1 in the format.
func numbered(format string, count int) string {
	var parts []string
	for i := range count {
		parts = append(parts, fmt.Sprintf(format, i+1))
	}
	return strings.Join(parts, ", ")
}

// TestPoliciesOfNVIDIAsUsersAreAccepted: the API server stores each policy, the objects for it have its effect, and
// what has none is reported.
func TestPoliciesOfNVIDIAsUsersAreAccepted(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	e.installCRD()
	usual, notes := rendered(e, v1.ClusterPolicySpec{}, nil)
	e.Expect(notes).To(BeEmpty())
	var rows []row
	for _, c := range accepted {
		verdict := honoured
		if c.note != "" {
			verdict = ignored
		}
		rows = append(rows, row{name: c.name, verdict: verdict, check: func(e *env) {
			content := map[string]any{}
			e.Expect(yaml.Unmarshal([]byte("spec: "+c.spec), &content)).To(Succeed())
			policy := &unstructured.Unstructured{Object: content}
			policy.SetGroupVersionKind(v1.ClusterPolicyKind)
			policy.SetName(policyName)
			strict := &client.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			}
			e.Expect(e.client.Create(e.t.Context(), policy, strict)).To(Succeed())
			spec := v1.ClusterPolicySpec{}
			e.Expect(yaml.UnmarshalStrict([]byte(c.spec), &spec)).To(Succeed())
			objects, notes := rendered(e, spec, c.keys)
			e.Expect(strings.Contains(objects, c.has)).To(BeTrue(), "the objects have %.100s", c.has)
			if c.hasNot != "" {
				e.Expect(strings.Contains(objects, c.hasNot)).To(BeFalse(), "the objects do not have %s", c.hasNot)
			}
			if c.note == "" {
				e.Expect(notes).To(BeEmpty())
				if same := objects == usual; same != c.usual {
					e.t.Errorf("the objects are those of an empty policy: %t, want %t", same, c.usual)
				}
				return
			}
			e.Expect(notes).To(ContainElement(c.note))
		}})
	}
	e.tryAll(policyLines, rows)
}

// installCRD installs the definition alone, and waits until the API server serves it.
func (e *env) installCRD() {
	e.t.Helper()
	definition := &unstructured.Unstructured{}
	e.Expect(yaml.Unmarshal(crd.ClusterPolicy, &definition.Object)).To(Succeed())
	e.Expect(e.client.Create(e.t.Context(), definition)).To(Succeed())
	e.Eventually(func() error { return e.client.List(e.t.Context(), policies()) }).Should(Succeed())
}

func policies() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1.GroupVersion.WithKind("ClusterPolicyList"))
	return list
}

// rendered returns the objects for a policy in a cluster with one node, and what the status reports about its fields.
// The ConfigMap shared and the Secret licence have these keys.
func rendered(e *env, spec v1.ClusterPolicySpec, keys []string) (objects string, notes []string) {
	e.t.Helper()
	node := gpuNode("ubuntu", "24.04")
	node.MIGCapable = "" // A default configuration is of the device plugin then.
	s := situation{
		spec: spec, nodes: []nodeinfo.Facts{node}, keys: map[string][]string{"shared": keys, "licence": keys},
	}
	intents := s.intents(e)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(intents)) {
		for _, intent := range intents[name] {
			content, err := yaml.Marshal(intent.Object)
			e.Expect(err).NotTo(HaveOccurred())
			text.Write(content)
		}
	}
	return text.String(), slices.Concat(fieldnotes.Of(spec), s.plan(e).Doubtful())
}
