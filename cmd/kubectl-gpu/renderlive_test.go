package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// inSync are the objects of a cluster in which the operator has nothing to do.
func inSync(t *testing.T, replaced ...string) [][]byte {
	t.Helper()
	all, err := documents(installed(t, replaced...), nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return append(all, []byte(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding,
		metadata: {name: `+labels.AgentPolicyBinding+`}}`))
}

// aFile writes a text into a file.
func aFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	NewWithT(t).Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return file
}

// Without files render prints what the operator has applied, and nothing else.
func TestRenderPrintsWhatIsApplied(t *testing.T) {
	g, objects := NewWithT(t), inSync(t)
	server := newAPIServer(t, objects...)
	got := kubectlGPU("", "render", "--kubeconfig", server.kubeconfig(t), "--context", "c")
	g.Expect(got.code).To(Equal(0))
	g.Expect(got.errOut).To(BeEmpty())
	applied := map[string]any{}
	for _, document := range objects {
		object := map[string]any{}
		g.Expect(yaml.Unmarshal(document, &object)).To(Succeed())
		kind := kindOf(document).Kind
		if !strings.Contains(string(document), labels.Digest) || kind == "Pod" {
			continue
		}
		delete(object, "status")
		applied[kind+" "+nameOf(document)] = object
	}
	for key, object := range decoded(t, got.out) {
		g.Expect(applied).To(HaveKeyWithValue(key, object.Object))
		delete(applied, key)
	}
	g.Expect(applied).To(BeEmpty())
	g.Expect(server.requests()).To(HaveEach(HavePrefix("GET ")))
}

// What no file has is read from the cluster, and what a file or a flag has counts over it. Two files call no cluster.
func TestRenderAndMirrorReadTheCluster(t *testing.T) {
	const plugin, exporter = "a.example/k8s-device-plugin:1", "a.example/dcgm-exporter:1"
	server := newAPIServer(t, inSync(t, "env: [{name: OPERATOR_IMAGE}", "env: [{name: OPERATOR_IMAGE}, "+
		"{name: DEVICE_PLUGIN_IMAGE, value: "+plugin+"}, {name: DCGM_EXPORTER_IMAGE, value: "+exporter+"}")...)
	text, err := os.ReadFile(ubuntuNode(t, ""))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	nodes := aFile(t, strings.NewReplacer("24.04", "22.04", "gpu-1", "new-1").Replace(string(text)))
	policy := aFile(t, edit(`{driver: {version: "570.9"}}`))
	driver := func(tag string) string { return "nvidia/driver:" + tag }
	const own = "example.com/operator:v9"
	for name, test := range map[string]struct {
		args       []string
		want, none []string
		// note is on standard error, and more only with render.
		note, more string
		code       int
		// offline: no cluster is called.
		offline bool
	}{
		"the cluster": {want: []string{driver("580.1-ubuntu24.04"), plugin, exporter, image.Own()}},
		"a policy": {
			args: []string{"-f", policy}, want: []string{driver("570.9-ubuntu24.04"), plugin}, none: []string{driver("580")},
		},
		"nodes": {
			args: []string{"--nodes", nodes}, want: []string{driver("580.1-ubuntu22.04"), plugin}, none: []string{"24.04"},
		},
		"the operator's image": {
			args: []string{"--image", own}, want: []string{own, plugin}, none: []string{image.Own()},
		},
		"a variable": {
			args: []string{"--env", "DEVICE_PLUGIN_IMAGE=b.example/k8s-device-plugin:2"},
			want: []string{"b.example/k8s-device-plugin:2", exporter}, none: []string{plugin},
		},
		"a namespace without the operator": {
			args: []string{"--namespace", "team-a"}, want: []string{image.Own()}, none: []string{plugin},
			note: "namespace team-a has no Deployment of the operator: its image is taken to be " + image.Own(),
		},
		"a driver that nodes are moved to": {
			args: []string{"-f", aFile(t, edit(`{driver: {version: "580.1"}, nodePools: [{name: rear,
				nodeSelector: {zone: rear}, driver: {version: "580.2"}}]}`))},
			want: []string{driver("580.1-ubuntu24.04"), driver("580.2-ubuntu24.04")},
			more: "would be applied when driver upgrades move the first node to it\n",
		},
		"a paused policy": {
			args: []string{"-f", aFile(t, edit("{paused: true}"))}, want: []string{plugin},
			more: "spec.paused is true: the operator would only report.",
		},
		"a policy that the API server refuses": {
			args: []string{"-f", aFile(t, edit("{mig: {strategy: double}}"))}, want: []string{plugin}, code: 1,
			note: `the API server would refuse ClusterPolicy cluster-policy: spec.mig.strategy: Unsupported value: "double"`,
		},
		"both files": {
			args: []string{"-f", policy, "--nodes", nodes}, offline: true,
			want: []string{driver("570.9-ubuntu22.04")}, none: []string{plugin},
		},
	} {
		for _, command := range [][]string{{"render"}, {"mirror", "list"}} {
			t.Run(name+" "+command[0], func(t *testing.T) {
				g, before := NewWithT(t), len(server.requests())
				t.Setenv("KUBECONFIG", server.kubeconfig(t))
				args := append(slices.Clone(command), test.args...)
				got := kubectlGPU("", append(args, "--context", "c")...)
				g.Expect(got.code).To(Equal(test.code), got.errOut)
				for _, text := range test.want {
					g.Expect(got.out).To(ContainSubstring(text))
				}
				for _, text := range test.none {
					g.Expect(got.out).NotTo(ContainSubstring(text))
				}
				g.Expect(got.errOut).To(ContainSubstring(test.note))
				if test.more != "" {
					g.Expect(strings.Contains(got.errOut, test.more)).To(Equal(command[0] == "render"), got.errOut)
				}
				g.Expect(len(server.requests()) > before).To(Equal(!test.offline))
				t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
				if got = kubectlGPU("", args...); test.offline {
					g.Expect(got.code).To(Equal(0), got.errOut)
					return
				}
				g.Expect(got.code).To(Equal(1))
				g.Expect(got.errOut).To(HaveSuffix("--server; to call no cluster, give --filename and --nodes\n"))
			})
		}
	}
}

// NVIDIADriver objects of the cluster are rendered, and one of a file counts over the one in the cluster. One that
// cannot be decoded is named.
func TestRenderReadsNVIDIADriversOfTheCluster(t *testing.T) {
	node, err := os.ReadFile(ubuntuNode(t, ""))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	driver := func(version string) string { return aDriver("a", `{driverType: gpu, version: "`+version+`"}`) }
	bad := aDriver("bad", `{driverType: gpu, nodeSelector: {zone: front}, startupProbe: {timeoutSeconds: 99999999999}}`)
	server := newAPIServer(t, []byte(policyHead+"spec: "+usesDrivers), node,
		[]byte(strings.TrimPrefix(driver("580.1"), "---\n")), []byte(strings.TrimPrefix(bad, "---\n")),
		[]byte("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "+
			"nvidiadrivers.nvidia.com}}"))
	for in, want := range map[string]string{
		"": "580.1", edit(usesDrivers): "580.1", edit(usesDrivers) + driver("580.2"): "580.2",
	} {
		args := []string{"--kubeconfig", server.kubeconfig(t), "--context", "c"}
		if in != "" {
			args = append(args, "-f", "-")
		}
		for _, command := range [][]string{{"render"}, {"mirror", "list"}} {
			g, got := NewWithT(t), kubectlGPU(in, append(command, args...)...)
			g.Expect(got.code).To(Equal(1), got.errOut)
			g.Expect(got.out).To(ContainSubstring("driver:" + want + "-ubuntu24.04"))
			g.Expect(strings.Count(got.errOut, "cannot be decoded: spec.startupProbe.timeoutSeconds is ")).To(Equal(1))
			g.Expect(got.errOut).To(ContainSubstring("kubectl gpu: the policy is invalid for NVIDIADriver bad"))
			g.Expect(got.errOut).NotTo(ContainSubstring("was read"))
		}
	}
}

// Before the installation the policy of a file is rendered for the nodes of the cluster. Without it, and wherever the
// cluster has no policy to render, the error names what to do.
func TestRenderWithoutAPolicyInTheCluster(t *testing.T) {
	policy := edit("{dcgmExporter: {serviceMonitor: {enabled: true}}}")
	nowhere := newAPIServer(t)
	nowhere.url = "http://127.0.0.1:1"
	withoutKinds := newAPIServer(t, []byte(coreOSNode))
	withoutKinds.absent = v1.GroupVersion.Group
	bad := inSync(t, "spec: "+installedSpec, "spec: {driver: {upgradePolicy: {maxUnavailable: 99999999999}}}")
	for name, test := range map[string]struct {
		server *apiServer
		want   string
		// rendered: the policy of a file is.
		rendered bool
	}{
		"no kind": {withoutKinds, "the cluster does not serve ClusterPolicies: install the operator, or choose another " +
			"context, or give a policy by --filename\n", true},
		"no policy": {newAPIServer(t, []byte(coreOSNode)), "the cluster has no ClusterPolicy: apply one, or give a file by " +
			"--filename\n", true},
		"no answer": {nowhere, "connect: connection refused); to call no cluster, give --filename and --nodes\n", false},
		"not decodable": {newAPIServer(t, bad...), "kubectl gpu: ClusterPolicy cluster-policy cannot be decoded: " +
			"spec.driver.upgradePolicy.maxUnavailable is 99999999999", true},
	} {
		for _, command := range [][]string{{"render"}, {"mirror", "list"}} {
			t.Run(name+" "+command[0], func(t *testing.T) {
				g := NewWithT(t)
				flags := append(command, "--kubeconfig", test.server.kubeconfig(t), "--context", "c")
				got := kubectlGPU("", flags...)
				g.Expect(got.code).To(Equal(1))
				g.Expect(got.out).To(BeEmpty())
				g.Expect(got.errOut).To(ContainSubstring(test.want))
				got = kubectlGPU(policy, append(flags, "-f", "-")...)
				g.Expect(strings.Contains(got.out, "k8s-device-plugin:")).To(Equal(test.rendered), got.errOut)
			})
		}
	}
	g := NewWithT(t)
	for flag, served := range map[string]bool{"--monitoring=false": false, "--monitoring": true} {
		got := kubectlGPU(policy, "render", "-f", "-", "--kubeconfig", withoutKinds.kubeconfig(t), "--context", "c", flag)
		g.Expect(strings.Contains(got.out, "kind: ServiceMonitor")).To(Equal(served), got.errOut)
	}
}

// The images of a cluster with a mirror are those behind it, and the mirror is where the script copies them to. What
// shows no source stays.
func TestMirrorOfAClusterWithAMirror(t *testing.T) {
	const registry = "mirror.local:5000"
	for of, source := range map[string]string{
		"/clusterpolicy/gpu-operator:9": "ghcr.io/clusterpolicy/gpu-operator:9", "/team/operator:9": "",
	} {
		g := NewWithT(t)
		server := newAPIServer(t, inSync(t, "spec: "+installedSpec, `spec: {global: {registry: "`+registry+`"}}`,
			"image: "+image.Own()+", args", "image: "+registry+of+", args")...)
		flags := []string{"--kubeconfig", server.kubeconfig(t), "--context", "c"}
		list := kubectlGPU("", append([]string{"mirror", "list"}, flags...)...)
		g.Expect(list.code).To(Equal(0), list.errOut)
		copying := kubectlGPU("", append([]string{"mirror", "script"}, flags...)...)
		g.Expect(copying.code).To(Equal(0), copying.errOut)
		g.Expect(copying.out).NotTo(ContainSubstring("'docker://" + registry + of + "' "))
		if source == "" {
			g.Expect(strings.Count(list.out, registry)).To(Equal(1))
			g.Expect(list.out).To(ContainSubstring(registry + of))
			continue
		}
		g.Expect(list.out).NotTo(ContainSubstring(registry))
		g.Expect(copying.out).To(ContainSubstring("'docker://" + source + "' 'docker://" + registry + of + "'\n"))
	}
}
