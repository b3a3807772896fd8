package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// running are the labels that the operator has written on a node with the driver of spec.driver.
const running = `
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.deploy.driver: "true"
    nvidia.com/gpu-operator.pool: ubuntu24.04-amd64
    nvidia.com/gpu-operator.layout: containerd
    clusterpolicy.github.io/driver: ubuntu24.04-amd64
    clusterpolicy.github.io/container-toolkit: containerd`

// ubuntuNode writes a file with a GPU node, with further labels.
func ubuntuNode(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nodes.yaml")
	text := `apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  labels:
    zone: rear
    feature.node.kubernetes.io/pci-10de.present: "true"
    feature.node.kubernetes.io/system-os_release.ID: ubuntu
    feature.node.kubernetes.io/system-os_release.VERSION_ID: "24.04"
    feature.node.kubernetes.io/kernel-version.full: 6.8.0-51-generic` + more + `
status: {nodeInfo: {architecture: amd64, containerRuntimeVersion: "containerd://2.2.1"}}
`
	NewWithT(t).Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return file
}

// aDriver is an NVIDIADriver as a further document of a file.
func aDriver(name, spec string) string {
	return fmt.Sprintf("---\n{apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriver, metadata: {name: %s}, spec: %s}\n",
		name, spec)
}

// usesDrivers is the spec of a policy whose drivers NVIDIADriver objects declare.
const usesDrivers = "{driver: {useNvidiaDriverCRD: true}}"

// The nodes of a running cluster have labels by which its operator keeps their drivers. A first installation has no
// driver to keep.
func TestRenderIgnoresTheLabelsOfARunningOperator(t *testing.T) {
	for name, test := range map[string]struct{ file, image string }{
		"spec.driver": {edit(`{driver: {version: "580.1"}}`), "driver:580.1-ubuntu24.04"},
		"an NVIDIADriver": {
			edit(usesDrivers) + aDriver("a", `{driverType: gpu, version: "580.1"}`), "driver:580.1-ubuntu24.04",
		},
		"a precompiled driver": {
			edit(usesDrivers) + aDriver("a", `{driverType: gpu, version: "580", usePrecompiled: true}`),
			"driver:580-6.8.0-51-generic-ubuntu24.04",
		},
		"a node pool": {
			edit(`{nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {version: "580.1"}}]}`),
			"driver:580.1-ubuntu24.04",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			clean := kubectlGPU(test.file, "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
			got := kubectlGPU(test.file, "render", "-f", "-", "--nodes", ubuntuNode(t, running))
			g.Expect(got.code).To(Equal(0), got.errOut)
			g.Expect(got.out).To(ContainSubstring("image: nvcr.io/nvidia/" + test.image + "\n"))
			g.Expect(got.out).To(Equal(clean.out))
		})
	}
}

// differingObjects matches the sentences about objects that differ with the labels of a running operator.
var differingObjects = regexp.MustCompile(`(?m)^\S+ \S+ would .* with the labels of a running operator\n`)

// Labels that make the operator of a running cluster apply something else are named.
func TestRenderNamesNodesThatKeepSomething(t *testing.T) {
	g := NewWithT(t)
	policy := edit(`{driver: {nodeSelector: {zone: front}}}`)
	const sentence = "node gpu-1 has labels of a running operator, which may keep what the node has; this is a first " +
		"installation without them: kubectl gpu plan shows the cluster's\n"
	got := kubectlGPU(policy, "render", "-f", "-", "--nodes", ubuntuNode(t, running))
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).NotTo(ContainSubstring("nvidia-driver-ctr"))
	g.Expect(got.errOut).To(ContainSubstring(sentence))
	g.Expect(differingObjects.FindAllString(got.errOut, -1)).To(Equal([]string{
		"DaemonSet nvidia-driver-daemonset would be applied with the labels of a running operator\n",
	}), "the objects that differ, and no other")
	got = kubectlGPU(policy, "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
	g.Expect(got.errOut).NotTo(ContainSubstring("running operator"))
}

// Each object that the operator or the API server would refuse makes render, plan and diff fail, and is named.
func TestPreviewsFailOnARefusedDriver(t *testing.T) {
	cluster := installed(t)
	for name, test := range map[string]struct{ drivers, want string }{
		"an invalid image": {
			aDriver("a", `{driverType: gpu, image: "example.com/driver:1", version: "580.1"}`), "NVIDIADriver a",
		},
		"two select a node": {
			aDriver("a", `{driverType: gpu, version: "580.1"}`) + aDriver("b", `{driverType: gpu, version: "580.2"}`),
			"NVIDIADrivers a and b select the node",
		},
		"a value that the API server refuses": {
			aDriver("a", `{driverType: physical, version: "580.1"}`),
			`the API server would refuse NVIDIADriver a: spec.driverType: Unsupported value: "physical"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := edit(usesDrivers) + test.drivers
			for _, args := range [][]string{
				{"render", "-f", "-", "--nodes", ubuntuNode(t, "")}, {"render", "-f", "-", "--nodes", ubuntuNode(t, running)},
				{"plan", "-f", "-", "--against", cluster}, {"diff", "-f", "-", "--against", cluster},
			} {
				got := kubectlGPU(file, args...)
				g.Expect(got.code).To(Equal(map[bool]int{true: 2, false: 1}[args[0] == "diff"]), args[0]+got.errOut)
				g.Expect(got.out+got.errOut).To(ContainSubstring(test.want), args[0])
				g.Expect(got.errOut).To(MatchRegexp(`kubectl gpu: the (policy is invalid for|API server would refuse) `+
					`(NVIDIADriver a|the driver on .*node)`), args[0])
			}
		})
	}
}

// An object that the policy names and that was not read is named, whatever field names it.
func TestPreviewsNameWhatWasNotRead(t *testing.T) {
	g := NewWithT(t)
	const spec = `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}, kernelModuleConfig: {name: modules},
		repoConfig: {configMapName: repos}, certConfig: {name: certs}, secretEnv: token,
		priorityClassName: high}, global: {caBundle: {configMapName: bundle}}}`
	named := []string{"ConfigMap modules", "ConfigMap repos", "ConfigMap certs", "Secret token", "PriorityClass high",
		"ConfigMap bundle"}
	rendered := kubectlGPU(edit(spec), "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
	g.Expect(rendered.code).To(Equal(0), rendered.errOut)
	planned := kubectlGPU(edit(spec), "plan", "-f", "-", "--against", installed(t))
	g.Expect(rendered.errOut).To(ContainSubstring("ConfigMap modules was not read: it counts as existing, and the " +
		"objects of driver lack what follows from its content"))
	g.Expect(rendered.errOut).To(ContainSubstring("PriorityClass high was not read: it counts as existing; without it, " +
		"the objects of driver would not be applied\n"))
	for _, name := range named {
		g.Expect(rendered.errOut).To(ContainSubstring(name + " was not read: "))
		if !strings.HasPrefix(name, "ConfigMap") { // The objects of the cluster have all ConfigMaps.
			g.Expect(planned.out).To(ContainSubstring(name + " was not read: "))
		}
	}
	given := edit(spec)
	for _, name := range named {
		kind, name, _ := strings.Cut(name, " ")
		group := map[string]string{"PriorityClass": "scheduling.k8s.io/v1"}[kind]
		if group == "" {
			group = "v1"
		}
		content := map[string]string{"PriorityClass": "value: 1"}[kind]
		if content == "" {
			content = "data: {ca-bundle.crt: dmFsdWU=}"
		}
		given += fmt.Sprintf("---\n{apiVersion: %s, kind: %s, metadata: {name: %s}, %s}\n", group, kind, name, content)
	}
	rendered = kubectlGPU(given, "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
	g.Expect(rendered.code).To(Equal(0), rendered.errOut)
	for _, name := range named {
		g.Expect(rendered.errOut).NotTo(ContainSubstring(name + " was not read"))
	}
	g.Expect(rendered.out).To(ContainSubstring("subPath: ca-bundle.crt"))
}

// The DaemonSet to which driver upgrades will move nodes is shown, with its images, and so is the one that they leave.
func TestPlanAndDiffShowTheDriverThatNodesMoveTo(t *testing.T) {
	for name, test := range map[string]struct{ file, daemonSet string }{
		"an NVIDIADriver": {
			edit(`{driver: {useNvidiaDriverCRD: true}}`) +
				aDriver("a", `{driverType: gpu, version: "580.2", upgradePolicy: {autoUpgrade: true}}`),
			"nvidia-driver-daemonset-ubuntu24.04-amd64-",
		},
		"a node pool": {
			edit(`{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
				nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {version: "580.2"}}]}`),
			"nvidia-driver-daemonset-ubuntu24.04-amd64-rear",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := installed(t)
			got := kubectlGPU(test.file, "diff", "-f", "-", "--against", cluster)
			g.Expect(got.code).To(Equal(1), got.errOut)
			g.Expect(got.out).To(MatchRegexp(`create DaemonSet ` + test.daemonSet + `\S* \(driver\): when the first node is ` +
				`moved to it\n  \+ spec\.template\.spec\.containers\[nvidia-driver-ctr\]\.image: "\S+driver:580\.2-ubuntu24\.04"`))
			got = kubectlGPU(test.file, "plan", "-f", "-", "--against", cluster)
			g.Expect(got.code).To(Equal(0), got.errOut)
			g.Expect(got.out).To(MatchRegexp(`create +DaemonSet ` + test.daemonSet + `\S* +\S+driver:580\.2-ubuntu24\.04; ` +
				`when the first node is moved to it`))
			leaves := `delete +DaemonSet nvidia-driver-daemonset +.*when the last node is moved from it`
			if name == "an NVIDIADriver" {
				g.Expect(got.out).To(MatchRegexp(leaves))
			} else {
				g.Expect(got.out).NotTo(MatchRegexp(leaves), "other nodes stay there")
			}
		})
	}
}

// NVIDIADrivers that the policy does not use are noted.
func TestPreviewsNoteUnusedDrivers(t *testing.T) {
	g := NewWithT(t)
	file := edit(`{driver: {version: "580.1"}}`) + aDriver("a", `{driverType: gpu, version: "580.2"}`)
	const note = "the NVIDIADrivers would have no effect: spec.driver.useNvidiaDriverCRD is not true"
	g.Expect(kubectlGPU(file, "render", "-f", "-", "--nodes", ubuntuNode(t, "")).errOut).To(ContainSubstring(note))
	cluster := installed(t)
	g.Expect(kubectlGPU(file, "plan", "-f", "-", "--against", cluster).out).To(ContainSubstring(note))
	g.Expect(kubectlGPU(file, "diff", "-f", "-", "--against", cluster).out).To(ContainSubstring(note))
}

// The objects of a file count however they are listed there, as with kubectl apply.
func TestPreviewsReadAllOfAFile(t *testing.T) {
	g := NewWithT(t)
	const list = "{apiVersion: v1, kind: List, items: [%s]}"
	policy := fmt.Sprintf("{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, spec: %s}", usesDrivers)
	driver := strings.TrimPrefix(aDriver("a", `{driverType: gpu, version: "580.2"}`), "---\n")
	for _, file := range []string{
		fmt.Sprintf(list, policy+", "+fmt.Sprintf(list, driver)),
		fmt.Sprintf(list, policy+", {apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriverList, items: ["+driver+"]}"),
		asJSON(t, policy) + asJSON(t, driver),
		asJSON(t, policy) + "\n" + asJSON(t, driver) + "\n",
		strings.ReplaceAll(policy+"\n--- # the driver\n"+driver, "\n", "\r\n"),
	} {
		got := kubectlGPU(file, "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
		g.Expect(got.code).To(Equal(0), got.errOut)
		g.Expect(got.out).To(ContainSubstring("driver:580.2-ubuntu24.04"))
	}
}

// asJSON returns a document as JSON.
func asJSON(t *testing.T, document string) string {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(document))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// A field that the API server does not know is an error, also of the objects that a policy names.
func TestPreviewsRefuseUnknownFieldsOfNamedObjects(t *testing.T) {
	g := NewWithT(t)
	file := edit(`{driver: {kernelModuleConfig: {name: modules}}}`) +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: modules}, datta: {nvidia.conf: text}}\n"
	got := kubectlGPU(file, "render", "-f", "-", "--nodes", ubuntuNode(t, ""))
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(ContainSubstring(`ConfigMap modules: unknown field "datta"`))
}

// Kinds of which a file of a cluster has no object are named: a new one of them would not be shown.
func TestPlanNamesKindsThatAreNotCompared(t *testing.T) {
	g := NewWithT(t)
	const sentence = "no object was read of RuntimeClass: what would be created, changed or deleted of them is not shown"
	full := installed(t)
	complete := kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", full)
	g.Expect(complete.out).NotTo(ContainSubstring("was read of"))
	text, err := os.ReadFile(full)
	g.Expect(err).NotTo(HaveOccurred())
	cut := filepath.Join(t.TempDir(), "cluster.yaml")
	g.Expect(os.WriteFile(cut, []byte(strings.ReplaceAll(string(text), "kind: RuntimeClass\n", "kind: Other\n")),
		0o600)).To(Succeed())
	g.Expect(kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", cut).out).To(ContainSubstring(sentence))
}

// A plan for a cluster in which the operator waits for the end of NVIDIA's says so.
func TestPreviewsNoteThatTheOperatorWaits(t *testing.T) {
	g := NewWithT(t)
	const status = "status: {namespace: gpu-operator"
	cluster := installed(t, status, status+`, conditions: [{type: OtherOperatorRunning, status: "True", `+
		`reason: OtherOperatorRunning, message: Deployment gpu-operator runs NVIDIA's operator, `+
		`lastTransitionTime: "2026-01-01T00:00:00Z"}]`)
	const note = "the operator changes nothing now, and this only once NVIDIA's is gone: Deployment gpu-operator runs"
	for _, command := range []string{"plan", "diff"} {
		g.Expect(kubectlGPU(edit(upgradedSpec), command, "-f", "-", "--against", cluster).out).To(ContainSubstring(note))
	}
}
