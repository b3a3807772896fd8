package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// pluginOf makes the plugin one of a release for the time of a test.
func pluginOf(t *testing.T, release string) {
	t.Helper()
	before := version.Version
	version.Version = release
	t.Cleanup(func() { version.Version = before })
}

// operatorDeployment is the Deployment of the operator with an image and a version in its label.
func operatorDeployment(image, label string) []byte {
	return fmt.Appendf(nil, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: o, namespace: gpus,
		labels: {app.kubernetes.io/version: %q}}, spec: {template: {
		metadata: {labels: {app.kubernetes.io/component: gpu-operator}},
		spec: {containers: [{name: gpu-operator, image: %q, env: [{name: OPERATOR_IMAGE}]}]}}}}`, label, image)
}

// versionObjects are a policy, and the Deployments and DaemonSets that version reads.
func versionObjects() [][]byte {
	daemonSet := func(namespace, operand, containers string) []byte {
		return fmt.Appendf(nil, `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s, namespace: %s,
			annotations: {nvidia.com/gpu-operator.helper-image: own:v1.2.3}, labels: {
			app.kubernetes.io/managed-by: gpu-operator, nvidia.com/gpu-operator.operand: %[1]s}},
			spec: {template: {spec: {%[3]s}}}}`, operand, namespace, containers)
	}
	return [][]byte{
		[]byte(`{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, status: {namespace: gpus}}`),
		[]byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: theirs, namespace: gpus}, spec: {template: {
			metadata: {labels: {app.kubernetes.io/component: gpu-operator}},
			spec: {containers: [{name: gpu-operator, image: "theirs:v9"}]}}}}`),
		daemonSet("gpus", "driver", `initContainers: [{name: a, image: "own:v1.2.3"}, {name: b, image: "manager:v1"}],
			containers: [{name: c, image: "driver:580"}, {name: d, image: "driver:580"}]`),
		daemonSet("gpus", "dcgm", `containers: [{name: c, image: "dcgm:4"}]`),
		daemonSet("gpus", "operator-validator", `containers: [{name: c, image: "own:v1.2.3"}]`),
		daemonSet("elsewhere", "other", `containers: [{name: c, image: "other:1"}]`),
	}
}

func TestVersion(t *testing.T) {
	pluginOf(t, "v1.2.3")
	const images = `
OPERAND             IMAGE
dcgm                dcgm:4
driver              driver:580
driver              manager:v1
operator-validator  own:v1.2.3
`
	for name, test := range map[string]struct {
		image, label, server, want string
	}{
		"in step": {image: "own:v1.2.3", want: `Plugin      v1.2.3
Operator    v1.2.3 (own:v1.2.3 in namespace gpus)
Kubernetes  v1.34.2
` + images},
		"a newer operator, by its label": {image: "own@sha256:0", label: "v1.3.0", want: `Plugin      v1.2.3
Operator    v1.3.0 (own@sha256:0 in namespace gpus)
Kubernetes  v1.34.2
` + images + `
warning: the plugin v1.2.3 is older than the operator v1.3.0, and computes what its own release does: install the ` +
			"plugin v1.3.0\n"},
		"an operator without a version, on an old cluster": {
			image: "own@sha256:0", server: "v1.30.1", want: `Plugin      v1.2.3
Operator    unknown (own@sha256:0 in namespace gpus)
Kubernetes  v1.30.1
` + images + `
warning: Kubernetes v1.30.1 is not supported: upgrade the cluster to 1.32 or newer
warning: whether the plugin v1.2.3 fits the operator own@sha256:0 is unknown: own@sha256:0 is no version of a release
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := newAPIServer(t, append(versionObjects(), operatorDeployment(test.image, test.label))...)
			server.version = test.server
			got := kubectlGPU("", "version", "--kubeconfig", server.kubeconfig(t), "--context", "c")
			g.Expect(got).To(Equal(output{out: test.want}))
		})
	}
}

// Programs get the same, in the namespace of the flag.
func TestVersionAsJSON(t *testing.T) {
	pluginOf(t, "v1.2.3")
	g, found := NewWithT(t), versions{}
	deployment := strings.Replace(string(operatorDeployment("own:v1.2.4", "")), "gpus", "elsewhere", 1)
	server := newAPIServer(t, append(versionObjects(), []byte(deployment))...)
	flags := []string{"--kubeconfig", server.kubeconfig(t), "--context", "c"}
	got := kubectlGPU("", append(flags, "version", "-n", "elsewhere", "-o", "json")...)
	g.Expect(got.code).To(BeZero(), got.errOut)
	g.Expect(json.Unmarshal([]byte(got.out), &found)).To(Succeed())
	g.Expect(found).To(Equal(versions{
		Plugin: "v1.2.3", Kubernetes: "v1.34.2", Images: []operandImage{{Name: "other", Image: "other:1"}},
		Operator: &operatorVersion{Version: "v1.2.4", Image: "own:v1.2.4", Namespace: "elsewhere"},
		Skew: []string{
			"the plugin v1.2.3 is older than the operator v1.2.4, and computes what its own release does: install the plugin " +
				"v1.2.4",
		},
	}))
	g.Expect(server.requests()).NotTo(ContainElement(ContainSubstring("clusterpolicies")), "the flag names the namespace")
	g.Expect(server.queries()).To(ContainElement("labelSelector=app.kubernetes.io%2Fmanaged-by%3Dgpu-operator&limit=50"))
	got = kubectlGPU("", "version", "--client", "-o", "yaml")
	g.Expect(got).To(Equal(output{out: "plugin: v1.2.3\n"}))
	g.Expect(kubectlGPU("", "version", "-o", "wide").errOut).To(ContainSubstring("--output wide: give one of"))
}

// What is known is printed, also if the cluster cannot be read.
func TestVersionWithoutTheCluster(t *testing.T) {
	pluginOf(t, "v1.2.3")
	const plugin, both = "Plugin  v1.2.3\n", "Plugin      v1.2.3\nKubernetes  v1.34.2\n"
	none, withoutOperator := newAPIServer(t), newAPIServer(t, versionObjects()...)
	refused, strange := newAPIServer(t), newAPIServer(t)
	refused.refused, strange.version = true, "newest"
	broken := newAPIServer(t, append(versionObjects(), []byte(
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: o, namespace: gpus}, spec: {template: 5}}`))...)
	brokenSet := newAPIServer(t, operatorDeployment("own:v1.2.3", ""), versionObjects()[0], []byte(`{apiVersion: apps/v1,
		kind: DaemonSet, metadata: {name: d, namespace: gpus, labels: {app.kubernetes.io/managed-by: gpu-operator}},
		spec: {template: 5}}`))
	for name, test := range map[string]struct {
		server    *apiServer
		out, want string
	}{
		"no operator": {none, both, "namespace gpu-operator has no Deployment of the operator: name another one with " +
			"--namespace\n"},
		"another namespace": {withoutOperator, both, "namespace gpus has no Deployment of the operator"},
		"no rights":         {refused, both, "Error from server (Forbidden): refused"},
		"a strange server": {
			strange, strings.Replace(both, "v1.34.2", "newest", 1), `reading /version: "newest" is no version`,
		},
		"a Deployment that cannot be decoded": {broken, both, "deployments o: "},
		"a DaemonSet that cannot be decoded": {
			brokenSet, "Plugin      v1.2.3\nOperator    v1.2.3 (own:v1.2.3 in namespace gpus)\nKubernetes  v1.34.2\n",
			"daemonsets d: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU("", "version", "--kubeconfig", test.server.kubeconfig(t), "--context", "c")
			g.Expect(got.code).To(Equal(1))
			g.Expect(got.out).To(Equal(test.out))
			g.Expect(got.errOut).To(HavePrefix("kubectl gpu: " + test.want))
		})
	}
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	g.Expect(kubectlGPU("", "version")).To(Equal(output{
		code: 1, out: plugin, errOut: "kubectl gpu: " + errNoCluster.Error() + "\n",
	}))
	g.Expect(kubectlGPU("", "version", "-s", none.url+"/nowhere").errOut).To(ContainSubstring("NotFound"))
}
