package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// teams are nodes of two teams.
const teams = `
{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {team: a, LABELS}}, STATUS},
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {team: b, LABELS}}, STATUS}]}
`

// document returns a document of an input file. The spec is YAML or JSON.
func document(kind, name string, spec any) string {
	version := "nvidia.com/v1"
	if kind == "NVIDIADriver" {
		version = "nvidia.com/v1alpha1"
	}
	return fmt.Sprintf("---\n{apiVersion: %s, kind: %s, metadata: {name: %s}, spec: %s}\n", version, kind, name, spec)
}

// renderedDrivers returns the DaemonSets of the driver that an input file gives the nodes, by name.
func renderedDrivers(t *testing.T, file string) map[string]any {
	t.Helper()
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	text := strings.NewReplacer(
		"STATUS", "status: {nodeInfo: {architecture: amd64, containerRuntimeVersion: 'containerd://2.2.1'}}",
		"LABELS", "feature.node.kubernetes.io/pci-10de.present: 'true', "+
			"feature.node.kubernetes.io/system-os_release.ID: ubuntu, "+
			"feature.node.kubernetes.io/system-os_release.VERSION_ID: '24.04', "+
			"feature.node.kubernetes.io/kernel-version.full: 6.8.0-60-generic, nvidia.com/gpu.present: 'true'",
	).Replace(teams)
	if err := os.WriteFile(nodes, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kubectlGPU(file, "render", "-f", "-", "--nodes", nodes)
	if got.code != 0 {
		t.Fatalf("%s\n%s", got.errOut, file)
	}
	found := map[string]any{}
	for key, object := range decoded(t, got.out) {
		if strings.HasPrefix(key, "DaemonSet nvidia-driver-daemonset") {
			found[key] = object.Object
		}
	}
	return found
}

// converted converts an input file.
func converted(t *testing.T, file, to string) string {
	t.Helper()
	got := kubectlGPU(file, "convert", "-f", "-", "--to", to)
	if got.code != 0 {
		t.Fatalf("%s\n%s", got.errOut, file)
	}
	return got.out
}

// A conversion, and the one back, change no DaemonSet of the driver. Each object takes a third of a second: -short
// converts one in four, which chance selects.
func TestConvertedDriversAreRenderedTheSame(t *testing.T) {
	fields, err := specgen.DriverFields()
	if err != nil {
		t.Fatal(err)
	}
	compared, seeds := 0, chance.Numbers(t, t.Name(), 40, 10)
	for _, seed := range seeds {
		random := specgen.Random(rand.New(rand.NewPCG(uint64(seed), 3)), fields)
		for _, field := range []string{"driverType", "nodeAffinity", "useOpenKernelModules", "default"} {
			delete(random, field)
		}
		random["nodeSelector"], random["version"] = map[string]any{"team": "a"}, "590.44.01"
		spec, err := json.Marshal(random)
		if err != nil {
			t.Fatal(err)
		}
		file := document("ClusterPolicy", "p", "{driver: {useNvidiaDriverCRD: true}, gds: {enabled: true}}") +
			document("NVIDIADriver", "team-a", string(spec)) +
			document("NVIDIADriver", "rest", "{default: true, version: '580.1', secretEnv: mine}")
		if got := kubectlGPU(file, "render", "-f", "-", "--nodes", "testdata/nodes.yaml"); got.code != 0 {
			continue // Contradictory fields.
		}
		want := renderedDrivers(t, file)
		pools := converted(t, file, "node-pools")
		if diff := cmp.Diff(want, renderedDrivers(t, pools)); diff != "" || len(want) != 2 {
			t.Errorf("seed %d, %d drivers: -objects +node pools:\n%s", seed, len(want), diff)
		}
		if diff := cmp.Diff(want, renderedDrivers(t, converted(t, pools, "nvidiadrivers"))); diff != "" {
			t.Errorf("seed %d: -before +after the conversion back:\n%s", seed, diff)
		}
		compared++
	}
	if compared < len(seeds)/2 {
		t.Errorf("%d of %d objects are accepted", compared, len(seeds))
	}
}

func TestConvertPrintsWhatCanBeApplied(t *testing.T) {
	g := NewWithT(t)
	policy := `{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p, uid: u, resourceVersion: "1",
labels: {a: b}, annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}, status: {state: ready}, spec:
{driver: {useNvidiaDriverCRD: true}, toolkit: {enabled: true}}}
`
	got := kubectlGPU(policy+document("NVIDIADriver", "a", "{nodeSelector: {team: a}, version: '1'}"),
		"convert", "-f", "-", "--to", "node-pools")
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.errOut).To(Equal("GPU nodes that no NVIDIADriver selects would get spec.driver of the policy: " +
		"see kubectl gpu plan\n"))
	g.Expect(got.out).To(Equal(`---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  labels:
    a: b
  name: p
spec:
  driver: {}
  nodePools:
  - driver:
      tolerations:
      - effect: NoSchedule
        key: nvidia.com/gpu
        operator: Exists
      upgradePolicy:
        autoUpgrade: true
      version: "1"
    name: a
    nodeSelector:
      team: a
  toolkit:
    enabled: true
`))
	got = kubectlGPU(got.out, "convert", "-f", "-", "--to", "nvidiadrivers")
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).To(Equal(`---
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata:
  name: a
spec:
  nodeSelector:
    team: a
  version: "1"
---
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata:
  name: cluster.default
spec:
  default: true
  upgradePolicy:
    autoUpgrade: false
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  labels:
    a: b
  name: p
spec:
  driver:
    useNvidiaDriverCRD: true
  nodePools:
  - name: a
    nodeSelector:
      team: a
  toolkit:
    enabled: true
`))
}

func TestConvertRefuses(t *testing.T) {
	uses := document("ClusterPolicy", "p", "{driver: {useNvidiaDriverCRD: true}}")
	for name, test := range map[string]struct {
		file string
		args []string
		code int
		err  string
	}{
		"no direction":      {uses, nil, 2, `required flag(s) "to" not set`},
		"another direction": {uses, []string{"--to", "x"}, 2, `--to "x": give node-pools or nvidiadrivers`},
		"no object":         {uses, []string{"--to", "node-pools"}, 1, "there is no NVIDIADriver to convert"},
		"no policy": {
			document("NVIDIADriver", "a", "{}"), []string{"--to", "node-pools"}, 1, "give a ClusterPolicy of nvidia.com/v1",
		},
		"an unknown field": {
			uses + document("NVIDIADriver", "a", "{driverVersion: '1'}"), []string{"--to", "node-pools"}, 1,
			`reading -: NVIDIADriver a: strict decoding error: unknown field "spec.driverVersion"`,
		},
		"an object twice": {
			uses + document("NVIDIADriver", "a", "{}") + document("NVIDIADriver", "a", "{}"), []string{"--to", "node-pools"}, 1,
			`there are two NVIDIADrivers "a"`,
		},
		"a field that no node pool has": {
			uses + document("NVIDIADriver", "a", "{nodeAffinity: {}}"), []string{"--to", "node-pools"}, 1,
			"NVIDIADriver a: spec.nodeAffinity has no effect",
		},
		"objects that exist already": {
			document("ClusterPolicy", "p", "{}") + document("NVIDIADriver", "a", "{}"), []string{"--to", "nvidiadrivers"}, 1,
			"NVIDIADriver a: metadata.name is that of an object which the policy would use, too: delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(test.file, append([]string{"convert", "-f", "-"}, test.args...)...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			g.Expect(got.out).To(BeEmpty())
		})
	}
}

func TestConvertReadsTheCluster(t *testing.T) {
	g := NewWithT(t)
	server := newAPIServer(t, []byte(document("ClusterPolicy", "p", "{driver: {useNvidiaDriverCRD: true}}")),
		[]byte(document("NVIDIADriver", "a", "{default: true, version: '1'}")))
	got := kubectlGPU("", "convert", "--to", "node-pools", "--kubeconfig", server.kubeconfig(t), "--context", "c")
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.errOut).To(BeEmpty())
	g.Expect(got.out).To(ContainSubstring(`version: "1"`))
}

// Objects beside the policy of a file are used, and what is wrong with them is reported.
func TestRenderReadsNVIDIADrivers(t *testing.T) {
	g := NewWithT(t)
	file := document("ClusterPolicy", "p", "{driver: {useNvidiaDriverCRD: true}}") +
		document("NVIDIADriver", "team-a", "{nodeSelector: {team: a}, version: '590.1'}")
	g.Expect(renderedDrivers(t, file)).To(HaveKey("DaemonSet nvidia-driver-daemonset"))

	got := kubectlGPU(file+document("NVIDIADriver", "hosts", "{driverType: vgpu-host-manager, nodeSelector: {team: c}}")+
		document("NVIDIADriver", "other", "{nodeAffinity: {}, nodeSelector: {team: d}}"),
		"render", "-f", "-", "--nodes", "testdata/nodes.yaml")
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).
		To(ContainSubstring("NVIDIADriver hosts: spec.driverType: vgpu-host-manager is not supported yet"))
	g.Expect(got.errOut).To(ContainSubstring("NVIDIADriver other: spec.nodeAffinity has no effect"))
	g.Expect(got.errOut).To(ContainSubstring("the policy is invalid for NVIDIADriver hosts: "))

	unused := document("ClusterPolicy", "p", "{}") + document("NVIDIADriver", "a", "{}")
	got = kubectlGPU(unused, "render", "-f", "-", "--nodes", "testdata/nodes.yaml")
	g.Expect(got.code).To(Equal(0))
	g.Expect(got.errOut).To(ContainSubstring("the NVIDIADrivers would have no effect"))
}
