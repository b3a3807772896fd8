package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// output is the result of a run of the plugin.
type output struct {
	code        int
	out, errOut string
}

func kubectlGPU(in string, args ...string) output {
	var out, errOut bytes.Buffer
	code := run(args, strings.NewReader(in), &out, &errOut)
	return output{code, out.String(), errOut.String()}
}

// rendering renders a policy for the nodes in testdata, with further flags.
func rendering(t *testing.T, spec string, flags ...string) output {
	t.Helper()
	policy := "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec: " + spec + "\n"
	return kubectlGPU(policy, append([]string{"render", "-f", "-", "--nodes", "testdata/nodes.yaml"}, flags...)...)
}

// decoded returns the printed objects by "Kind name".
func decoded(t *testing.T, text string) map[string]unstructured.Unstructured {
	t.Helper()
	found := map[string]unstructured.Unstructured{}
	for document := range strings.SplitSeq(strings.TrimPrefix(text, "---\n"), "\n---\n") {
		object := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		key := object.GetKind() + " " + object.GetName()
		if _, twice := found[key]; twice || object.GetKind() == "" {
			t.Errorf("%q is printed twice, or is not an object", key)
		}
		found[key] = object
	}
	return found
}

func TestRenderPrintsWhatWouldBeApplied(t *testing.T) {
	g := NewWithT(t)
	got := kubectlGPU("", "render", "-f", "testdata/policy.yaml", "--nodes", "testdata/nodes.yaml", "-n", "gpus",
		"--image", "example.com/operator:v9")
	g.Expect(got.code).To(Equal(0), got.errOut)
	all := decoded(t, got.out)
	for _, key := range []string{
		"DaemonSet nvidia-node-discovery", "RuntimeClass nvidia",
		"DaemonSet nvidia-driver-daemonset-ubuntu24.04-amd64", "DaemonSet nvidia-driver-daemonset",
		"DaemonSet nvidia-container-toolkit-daemonset", "DaemonSet nvidia-device-plugin-daemonset",
		"DaemonSet nvidia-operator-validator", "DaemonSet nvidia-mig-manager", "ConfigMap default-mig-parted-config",
	} {
		g.Expect(all).To(HaveKey(key))
	}
	for key, object := range all {
		g.Expect(object.Object).NotTo(HaveKey("status"), key)
		g.Expect(object.GetOwnerReferences()).To(BeEmpty(), key)
		g.Expect(object.GetAnnotations()).To(HaveKey("nvidia.com/gpu-operator.digest"), key)
		if object.GetKind() != "RuntimeClass" {
			g.Expect(object.GetNamespace()).To(Equal("gpus"), key)
		}
	}
	data, err := yaml.Marshal(all["DaemonSet nvidia-device-plugin-daemonset"].Object)
	g.Expect(err).NotTo(HaveOccurred())
	plugin := appsv1.DaemonSet{}
	g.Expect(yaml.UnmarshalStrict(data, &plugin)).To(Succeed())
	g.Expect(plugin.Spec.Template.Spec.InitContainers[0].Image).To(Equal("example.com/operator:v9"))
}

func TestRenderReportsWhatDoesNotRun(t *testing.T) {
	g := NewWithT(t)
	got := rendering(t, "{toolkit: {enabled: false}}")
	g.Expect(got.code).To(Equal(0))
	g.Expect(decoded(t, got.out)).NotTo(HaveKey("DaemonSet nvidia-container-toolkit-daemonset"))
	for _, sentence := range []string{
		"container-toolkit would not be installed, and an installed one would be removed: " +
			"spec.toolkit.enabled is false (Disabled)",
		"node gpu-2 would not run driver: the host provides it",
		`node gpu-2 would not run device-plugin: label nvidia.com/gpu.deploy.device-plugin is "false" (OperandPaused)`,
		`node gpu-3 would run no operand: label nvidia.com/gpu.deploy.operands is "false"`,
	} {
		g.Expect(strings.Split(got.errOut, "\n")).To(ContainElement(sentence))
	}
	g.Expect(got.errOut).NotTo(ContainSubstring("gpu-1"), "every operand runs there")
	g.Expect(got.errOut).NotTo(ContainSubstring("node cpu"), "nothing is expected there")
}

func TestRenderReportsFieldsWithoutEffect(t *testing.T) {
	g := NewWithT(t)
	got := rendering(t, "{driver: {upgradePolicy: {autoUpgrade: true, maxUnavailable: 0}}, "+
		"operator: {defaultRuntime: docker}, "+
		"sandboxWorkloads: {enabled: true, defaultWorkload: vm-vgpu}}")
	g.Expect(got.code).To(Equal(0))
	g.Expect(strings.Split(got.errOut, "\n")).To(ContainElements(
		ContainSubstring("spec.driver.upgradePolicy.maxUnavailable: is 0, so that no node can be upgraded"),
		"spec.operator.defaultRuntime: remove it, each node's runtime is detected",
		"node gpu-1 would run no operand: workload vm-vgpu is not supported yet: label the node "+
			"nvidia.com/gpu.workload.config=container"))
}

// kubectl get cp -o yaml prints a list, with the status and the managed fields.
func TestPoliciesInAllFormsOfKubectl(t *testing.T) {
	const policy = `{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: cluster-policy, managedFields: [
		{manager: helm, operation: Update, apiVersion: nvidia.com/v1, fieldsType: FieldsV1,
		fieldsV1: {"f:spec": {".": {}}}}]},
		spec: {driver: {version: "580.1"}}, status: {state: ready, namespace: gpu-operator, ofAnotherRelease: true}}`
	for name, text := range map[string]string{
		"one":                 policy,
		"a List":              "{apiVersion: v1, kind: List, metadata: {resourceVersion: ''}, items: [" + policy + "]}",
		"a ClusterPolicyList": "{apiVersion: nvidia.com/v1, kind: ClusterPolicyList, items: [" + policy + "]}",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(text, "render", "-f", "-", "--nodes", "testdata/nodes.yaml")
			g.Expect(got.code).To(Equal(0), got.errOut)
			g.Expect(got.out).To(ContainSubstring("image: nvcr.io/nvidia/driver:580.1-"))
		})
	}
}

func TestRenderFailsOnAnInvalidOperand(t *testing.T) {
	g := NewWithT(t)
	got := rendering(t, `{driver: {image: "example.com/driver:1", version: "2"}}`)
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring(
		`driver would not be applied, and an installed one would stay unchanged: ` +
			`spec.driver: image "example.com/driver:1" is a full reference: remove repository ` +
			`and version (Invalid, InvalidSpec)` + "\n"))
	g.Expect(got.errOut).
		To(HaveSuffix("kubectl gpu: the policy is invalid for driver: see the reasons above and change it\n"))
	g.Expect(decoded(t, got.out)).To(HaveKey("DaemonSet nvidia-device-plugin-daemonset"), "the others are printed")
}

func TestRenderNamesWhatNoPodCanHave(t *testing.T) {
	g := NewWithT(t)
	got := rendering(t, "{gfd: {resources: {requests: {example.com/nic: 1}}}}")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring(
		"gpu-feature-discovery would not be applied, and an installed one would stay unchanged: " +
			"spec.gfd.resources.requests[example.com/nic]: needs the same limit"))
	got = rendering(t, "{toolkit: {installDir: /run/nvidia/validations}}")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring("spec.toolkit.installDir: container "))
}

func TestOwnerIsKeptIfThePolicyHasAUID(t *testing.T) {
	g := NewWithT(t)
	policy := "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy, uid: u-1}\n"
	got := kubectlGPU(policy, "render", "-f", "-", "--nodes", "testdata/nodes.yaml")
	g.Expect(got.code).To(Equal(0), got.errOut)
	for key, object := range decoded(t, got.out) {
		g.Expect(object.GetOwnerReferences()).To(HaveLen(1), key)
		g.Expect(string(object.GetOwnerReferences()[0].UID)).To(Equal("u-1"), key)
	}
}

// The output does not depend on the order of the nodes, so that two runs can be compared with diff.
func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("testdata/nodes.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	documents := strings.SplitN(string(text), "---\n", 2)
	turned := filepath.Join(t.TempDir(), "nodes.yaml")
	g.Expect(os.WriteFile(turned, []byte(documents[1]+"---\n"+documents[0]), 0o600)).To(Succeed())
	want := kubectlGPU("", "render", "-f", "testdata/policy.yaml", "--nodes", "testdata/nodes.yaml")
	g.Expect(want.code).To(Equal(0), want.errOut)
	for range 3 {
		g.Expect(kubectlGPU("", "render", "-f", "testdata/policy.yaml", "--nodes", turned)).To(Equal(want))
	}
}

func TestNodesInAllFormsOfKubectl(t *testing.T) {
	const node = `{apiVersion: v1, kind: Node, metadata: {name: NAME}}`
	tests := map[string]struct {
		text  string
		names []string
		err   string
	}{
		"one": {text: node, names: []string{"NAME"}},
		"documents": {
			text: node + "\n---\n# nothing\n---\n" + strings.Replace(node, "NAME", "b", 1), names: []string{"NAME", "b"},
		},
		"a List":     {text: `{apiVersion: v1, kind: List, items: [` + node + `]}`, names: []string{"NAME"}},
		"a NodeList": {text: `{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}}]}`, names: []string{"a"}},
		"JSON":       {text: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}`, names: []string{"a"}},
		"nothing":    {text: "# nothing\n"},
		"twice":      {text: node + "\n---\n" + node, err: "node NAME is listed twice: remove one"},
		"no name":    {text: `{apiVersion: v1, kind: Node}`, err: "a Node has no metadata.name: set it"},
		"another kind": {
			text: `{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}]}`,
			err:  `found a "Pod" of "v1": give Nodes of v1, as kubectl get nodes -o yaml prints them`,
		},
		"no kind":      {text: "a: b", err: `found a "" of "": give Nodes of v1, as kubectl get nodes -o yaml prints them`},
		"no YAML":      {text: "a: [", err: "document 1: "},
		"wrong fields": {text: `{apiVersion: v1, kind: Node, metadata: {labels: [a]}}`, err: "cannot unmarshal"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			nodes, err := readNodes(stdin, strings.NewReader(test.text))
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, node := range nodes {
				names = append(names, node.Name)
			}
			g.Expect(names).To(Equal(test.names))
		})
	}
}

func TestInvalidPolicyFilesAreRefused(t *testing.T) {
	const head = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: a}\n"
	tests := map[string]struct{ policy, err string }{
		"an unknown field": {head + "spec: {driver: {enabeld: true}}", `unknown field "spec.driver.enabeld"`},
		"two unknown fields": {
			head + "spec: {toolkt: {}, drivr: {}}", `unknown field "spec.drivr", unknown field "spec.toolkt"`,
		},
		"a field twice": {head + "spec:\n  mig: {}\n  mig: {}\n", `already set`},
		"a wrong type":  {head + "spec: {driver: []}", "spec.driver is [], which is not a block of fields"},
		"another kind": {
			"apiVersion: v1\nkind: ConfigMap\n", "found a ConfigMap of v1: give a ClusterPolicy of nvidia.com/v1",
		},
		"another version": {
			"apiVersion: nvidia.com/v2\nkind: ClusterPolicy\n", "found a ClusterPolicy of nvidia.com/v2",
		},
		"an empty list": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicyList\nitems: []\n", "found 0 ClusterPolicies: give exactly one",
		},
		"a list of two policies": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: nvidia.com/v1, kind: ClusterPolicy}\n" +
				"- {apiVersion: nvidia.com/v1, kind: ClusterPolicy}\n", "found 2 ClusterPolicies: give exactly one",
		},
		"an unknown field in a list": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: nvidia.com/v1, kind: ClusterPolicy, spec: {drivers: {}}}\n",
			`unknown field "spec.drivers"`,
		},
		"a key twice":          {head + "spec: {driver: {}, driver: {}}\n", `key "driver" already set`},
		"no kind":              {"a: b\n", "'Kind' is missing"},
		"nothing":              {"# nothing\n", "found 0 ClusterPolicies: give exactly one"},
		"more than one policy": {head + "---\n" + head, "found 2 ClusterPolicies: give exactly one"},
		"other kinds alone": {
			"apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Secret\n", "found 0 ClusterPolicies: give exactly one",
		},
		"wrong beside another": {
			head + "spec: {driver: []}\n---\napiVersion: v1\nkind: ConfigMap\n",
			"spec.driver is [], which is not a block of fields",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(test.policy, "render", "-f", "-", "--nodes", "testdata/nodes.yaml")
			g.Expect(got.code).To(Equal(1))
			g.Expect(got.out).To(BeEmpty())
			g.Expect(got.errOut).To(HavePrefix("kubectl gpu: reading the policy -: "))
			g.Expect(got.errOut).To(ContainSubstring(test.err))
		})
	}
}

func TestUnsupportedServerIsReported(t *testing.T) {
	g := NewWithT(t)
	plain := rendering(t, "{}")
	g.Expect(rendering(t, "{}", "--server-version", "v1.34.2")).To(Equal(plain))
	got := rendering(t, "{}", "--server-version", "v1.31.0")
	g.Expect(got.code).To(Equal(0))
	g.Expect(got.out).To(Equal(plain.out))
	g.Expect(got.errOut).To(Equal(
		"warning: Kubernetes v1.31.0 is not supported: upgrade the cluster to 1.32 or newer\n" + plain.errOut))
}

func TestWrongUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		err  string
	}{
		"both from one pipe": {
			[]string{"render", "-f", "-", "--nodes", "-"}, 2, "the policy and the nodes cannot both come from standard input",
		},
		"no version": {
			[]string{"render", "-f", "x", "--nodes", "x", "--server-version", "1.x"}, 2,
			`--server-version: "1.x" is no version of Kubernetes: give one such as v1.37.0` + "\n",
		},
		"an argument":        {[]string{"render", "-f", "x", "--nodes", "x", "x"}, 2, `unknown command "x"`},
		"an unknown command": {[]string{"rendre"}, 2, `unknown command "rendre"`},
		"no such file": {
			[]string{"render", "-f", "missing.yaml", "--nodes", "x"}, 1,
			"reading the policy missing.yaml: open missing.yaml: no such file",
		},
		"no file of nodes": {
			[]string{"render", "-f", "testdata/policy.yaml", "--nodes", "missing.yaml"}, 1,
			"reading the nodes missing.yaml: open missing.yaml",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU("", test.args...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			g.Expect(got.out).To(BeEmpty())
		})
	}
}

func TestMonitoringFlagEnablesThePrometheusKinds(t *testing.T) {
	for _, monitoring := range []bool{true, false} {
		got := renderOptions{monitoring: monitoring}.input(&policyFile{Policy: &v1.ClusterPolicy{}}, preview.Given{}).Optional
		for _, kind := range []operand.OptionalKind{operand.ServiceMonitor, operand.PrometheusRule} {
			if got[kind] != monitoring {
				t.Errorf("with monitoring %v, %s is printed: %v", monitoring, kind, got[kind])
			}
		}
	}
}

// What the API server would refuse of an object beside the policy is an error, also where YAML alone would convert it.
func TestRenderRefusesValuesThatAreNoTexts(t *testing.T) {
	for data, want := range map[string]string{
		"{a: 5}": "cannot unmarshal number", "{a: true}": "cannot unmarshal bool", "{a: 1.5}": "cannot unmarshal number",
		"{a: [b]}": "cannot unmarshal array", "{a: b, a: c}": "already set in map",
	} {
		got := rendering(t, "{driver: {repoConfig: {configMapName: repos}}}\n---\napiVersion: v1\nkind: ConfigMap\n"+
			"metadata: {name: repos}\ndata: "+data)
		NewWithT(t).Expect([]any{got.code, got.errOut}).To(HaveExactElements(1, ContainSubstring(want)), data)
	}
}

// The keys of a ConfigMap beside the policy are mounted, unless it is of another namespace.
func TestRenderReadsConfigMapsOfThePolicysFile(t *testing.T) {
	for namespace, mounted := range map[string]bool{"": true, "gpu-operator": true, "other": false} {
		g := NewWithT(t)
		got := rendering(t, "{driver: {repoConfig: {configMapName: repos}}}\n---\napiVersion: v1\nkind: ConfigMap\n"+
			"metadata: {name: repos, namespace: '"+namespace+"'}\ndata: {mirror.list: deb}")
		g.Expect(got.code).To(Equal(0), got.errOut)
		g.Expect(strings.Contains(got.out, "mountPath: /etc/apt/sources.list.d/mirror.list")).To(Equal(mounted), namespace)
	}
}
