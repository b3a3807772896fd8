package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

const policyHead = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy, uid: policy}\n"

// installed writes a file with the objects of a small cluster in which installedSpec is installed and all pods are
// ready. replaced are pairs of texts in that file.
func installed(t *testing.T, replaced ...string) string {
	t.Helper()
	return installedBy(t, nil, installedSpec, replaced...)
}

// installedBy is installed with another spec, as render prints it with these flags.
func installedBy(t *testing.T, flags []string, spec string, replaced ...string) string {
	t.Helper()
	g := NewWithT(t)
	key := fmt.Sprint(flags, spec)
	if clusters[key] == "" {
		clusters[key] = clusterOf(t, flags, spec)
	}
	all := clusters[key]
	for i := 0; i < len(replaced); i += 2 {
		g.Expect(all).To(ContainSubstring(replaced[i]))
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	g.Expect(os.WriteFile(file, []byte(strings.NewReplacer(replaced...).Replace(all)), 0o600)).To(Succeed())
	return file
}

// clusters are the texts of clusterOf: many tests begin with the same.
var clusters = map[string]string{}

// clusterOf returns the objects that installedBy writes.
func clusterOf(t *testing.T, flags []string, spec string) string {
	t.Helper()
	g := NewWithT(t)
	const objects = "testdata/plan-objects.yaml"
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	text, err := os.ReadFile(objects)
	g.Expect(err).NotTo(HaveOccurred())
	list := struct{ Items []map[string]any }{}
	g.Expect(yaml.Unmarshal(text, &list)).To(Succeed())
	var onlyNodes []map[string]any
	for _, item := range list.Items {
		if item["kind"] == "Node" {
			onlyNodes = append(onlyNodes, item)
		}
	}
	written, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": onlyNodes})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(nodes, written, 0o600)).To(Succeed())
	policy := policyHead + "spec: " + spec + "\n"
	args := []string{"render", "-f", "-", "--nodes", nodes}
	rendered := kubectlGPU(policy, append(args, flags...)...)
	g.Expect(rendered.code).To(Equal(0), rendered.errOut)
	text = bytes.ReplaceAll(text, []byte("OWN-IMAGE"), []byte(image.Own()))
	all := policy + "status: {namespace: gpu-operator}\n---\n" + string(text)
	for document := range strings.SplitSeq(strings.TrimPrefix(rendered.out, "---\n"), "\n---\n") {
		if kindOf([]byte(document)).Kind == "DaemonSet" {
			document = withPods(g, document)
		}
		all += "\n---\n" + document
	}
	return all
}

// withPods returns a DaemonSet with its status and its ready pods, one on each of the four GPU nodes.
func withPods(g *WithT, document string) string {
	ds := appsv1.DaemonSet{}
	g.Expect(yaml.Unmarshal([]byte(document), &ds)).To(Succeed())
	ds.Status.CurrentNumberScheduled = 4
	all := []any{ds}
	for _, node := range []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: ds.Spec.Template.ObjectMeta, Spec: *ds.Spec.Template.Spec.DeepCopy(),
		}
		pod.Namespace, pod.Name, pod.Spec.NodeName = ds.Namespace, ds.Name+"-"+node, node
		pod.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(&ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
		}
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		all = append(all, pod)
	}
	var text strings.Builder
	for _, object := range all {
		content, err := yaml.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		text.WriteString("---\n" + string(content))
	}
	return text.String()
}

// edit is a ClusterPolicy with a spec, as a user writes it.
func edit(spec string) string {
	return strings.Replace(policyHead, ", uid: policy", "", 1) + "spec: " + spec + "\n"
}

const (
	installedSpec = `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}}`
	upgradedSpec  = `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`
)

// TestPlans compares the text with golden files. What a plan says of other clusters is tested in package preview.
func TestPlans(t *testing.T) {
	for name, to := range map[string]string{
		"nothing-changes": installedSpec,
		"another-driver":  upgradedSpec,
		"two-at-a-time-with-force": `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true,
			maxParallelUpgrades: 2, maxUnavailable: 3, podDeletion: {force: true, deleteEmptyDir: true}}}}`,
		"jobs": `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 2,
			waitForCompletion: {podSelector: app=web}}}}`,
		"node-pool-with-its-own-budget": `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}},
			nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {upgradePolicy: {maxUnavailable: 1}}}]}`,
		"paused":            `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, paused: true}}}`,
		"the-policy-pauses": `{paused: true, driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`,
		"budget-too-small":  `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 0}}}`,
		"scheduling-only": `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
			daemonsets: {priorityClassName: high}}`,
		"exporter-disabled": `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
			dcgmExporter: {enabled: false}}`,
		"a-secret-is-not-exported": `{driver: {version: "580.1", secretEnv: token,
			upgradePolicy: {autoUpgrade: true}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(edit(to), "plan", "-f", "-", "--against", installed(t))
			g.Expect(got.code).To(Equal(0), got.errOut)
			g.Expect(got.errOut).To(BeEmpty())
			golden.Compare(t, "testdata/plans/"+name+".txt", got.out)
		})
	}
}

// nvidiasDriver is a driver DaemonSet of NVIDIA's operator with a name and a version of the driver.
const nvidiasDriver = `apiVersion: apps/v1
kind: DaemonSet
metadata:
  namespace: gpu-operator
  name: NAME
  labels: {app: NAME, app.kubernetes.io/component: nvidia-driver}
  annotations: {nvidia.com/last-applied-hash: "1"}
  ownerReferences:
    - {apiVersion: nvidia.com/v1, kind: ClusterPolicy, name: cluster-policy, uid: policy, controller: true}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
        - name: nvidia-driver-ctr
          image: nvcr.io/nvidia/driver:VERSION-ubuntu24.04
          command: [nvidia-driver, init]
          env: [{name: KERNEL_MODULE_TYPE, value: auto}]
status: {currentNumberScheduled: 2}
`

// The pods of NVIDIA's driver DaemonSets get others. They are up to date if they have the same driver.
func TestPlanOfAHandOver(t *testing.T) {
	g := NewWithT(t)
	file := installed(t)
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	for name, version := range map[string]string{"same": "580.1", "older": "570.1"} {
		theirs := strings.NewReplacer("NAME", "nvidia-gpu-driver-"+name, "VERSION", version).Replace(nvidiasDriver)
		text = append(text, "\n---\n"+theirs...)
	}
	g.Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	got := kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", file)
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).To(And(
		MatchRegexp(`delete +DaemonSet +nvidia-gpu-driver-same .*its pods get another DaemonSet; the pods stay\n`),
		MatchRegexp(`delete +DaemonSet +nvidia-gpu-driver-older .*its pods get another DaemonSet; 2 pods outdated`),
	))
}

func TestPlanOfAnInvalidPolicyFails(t *testing.T) {
	g := NewWithT(t)
	got := kubectlGPU(edit(`{driver: {image: "example.com/driver:1", version: "2"}}`), "plan", "-f", "-", "--against",
		installed(t))
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.out).To(ContainSubstring("  driver would stay unchanged: spec.driver: image "))
	g.Expect(got.errOut).To(Equal("kubectl gpu: the policy is invalid for driver: see the notes and change it\n"))
}

// The operator adds the version and the proxy of OpenShift to drivers, whose objects must be in the file, then.
func TestPlanOnOpenShift(t *testing.T) {
	g := NewWithT(t)
	const driver, unread = "nvidia-driver-daemonset", "of OpenShift were not read"
	config := `
apiVersion: config.openshift.io/v1
kind: Proxy
metadata: {name: cluster}
status: {httpsProxy: "http://proxy:3128"}
---
apiVersion: config.openshift.io/v1
kind: ClusterVersion
metadata: {name: version}
status: {history: [{state: Completed, version: 4.18.12}]}
`
	openShift := filepath.Join(t.TempDir(), "openshift.yaml")
	g.Expect(os.WriteFile(openShift, []byte(config), 0o600)).To(Succeed())
	file := installedBy(t, []string{"--openshift", openShift}, installedSpec)
	got := kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", file)
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).To(And(ContainSubstring(driver), ContainSubstring(unread)))

	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(file, []byte(string(text)+"\n---"+config), 0o600)).To(Succeed())
	got = kubectlGPU(edit(installedSpec), "plan", "-f", "-", "--against", file)
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.out).NotTo(Or(ContainSubstring(driver), ContainSubstring(unread)))
}

// An object that the operator could not write is a failure of both previews.
func TestPreviewsOfAnObjectOfOthersFail(t *testing.T) {
	g := NewWithT(t)
	file := installedBy(t, nil, `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		dcgmExporter: {enabled: false}}`)
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	text = append(text, `
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: gpu-operator, name: nvidia-dcgm-exporter}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}
`...)
	g.Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	for command, code := range map[string]int{"plan": 1, "diff": 2} {
		got := kubectlGPU(edit(installedSpec), command, "-f", "-", "--against", file)
		g.Expect(got.code).To(Equal(code), got.errOut)
		g.Expect(got.out).To(MatchRegexp(`refuse +DaemonSet +nvidia-dcgm-exporter`))
		g.Expect(got.errOut).To(MatchRegexp(`^kubectl gpu: dcgm-exporter nvidia-dcgm-exporter: the operator could not ` +
			`write it: .* exists and is not controlled by this ClusterPolicy: `))
	}
}

func TestPlanInOtherFormats(t *testing.T) {
	g := NewWithT(t)
	file := installed(t)
	var plans []preview.Preview
	for _, format := range []string{"json", "yaml"} {
		got := kubectlGPU(edit(upgradedSpec), "plan", "-f", "-", "--against", file, "-o", format)
		g.Expect(got.code).To(Equal(0), got.errOut)
		found := preview.Preview{}
		g.Expect(yaml.UnmarshalStrict([]byte(got.out), &found)).To(Succeed())
		g.Expect(json.Valid([]byte(got.out))).To(Equal(format == "json"))
		plans = append(plans, found)
	}
	g.Expect(plans[0]).To(Equal(plans[1]))
	g.Expect(plans[0].Notes).To(And(BeEmpty(), Not(BeNil())), "a list without items")
	g.Expect(plans[0].Objects).To(HaveExactElements(preview.Change{
		Action: preview.Update, Operand: "driver", Kind: "DaemonSet", Name: "nvidia-driver-daemonset",
		Field: "spec.template.spec.containers[nvidia-driver-ctr].image", Pods: preview.PodsOutdated, Running: 4,
		Images: []preview.ImageChange{{
			Container: "nvidia-driver-ctr", Before: "nvcr.io/nvidia/driver:580.1-ubuntu24.04",
			After: "nvcr.io/nvidia/driver:580.2-ubuntu24.04",
		}},
		Differences: []drift.Difference{{
			Path:   "spec.template.spec.containers[nvidia-driver-ctr].image",
			Before: "nvcr.io/nvidia/driver:580.1-ubuntu24.04", After: "nvcr.io/nvidia/driver:580.2-ubuntu24.04",
		}},
	}))
	g.Expect(plans[0].Upgrades.Nodes[0].Name).To(Equal("gpu-4"))
	g.Expect(plans[0].Upgrades.Nodes[0].Blocked).To(HaveLen(1))
}

// TestPlanOfANewRelease plans for the policy in the cluster, where a release of the operator with other default images
// has installed the stack: one operand is rolled out, and the driver is not upgraded by itself.
func TestPlanOfANewRelease(t *testing.T) {
	g := NewWithT(t)
	const oldDriver, oldPlugin = "nvcr.io/nvidia/driver:570.1.1", "nvcr.io/nvidia/k8s-device-plugin:v0.0.1"
	file := installedBy(t, []string{"--env=DRIVER_IMAGE=" + oldDriver, "--env=DEVICE_PLUGIN_IMAGE=" + oldPlugin},
		`{driver: {upgradePolicy: {autoUpgrade: false}}}`)
	got := kubectlGPU("", "plan", "--against", file, "--detailed-exitcode")
	g.Expect(got.code).To(Equal(0), got.errOut)
	const image = `nvcr\.io/nvidia/`
	g.Expect(got.out).To(And(
		MatchRegexp(`DaemonSet nvidia-device-plugin-daemonset .* \(%s -> `+image+
			`k8s-device-plugin:v\S+\); 4 pods replaced\n`, regexp.QuoteMeta(oldPlugin)),
		MatchRegexp(`DaemonSet nvidia-driver-daemonset .* \(%s-ubuntu24.04 -> `+image+
			`driver:\S+-ubuntu24.04\); 4 pods outdated, see the upgrades\n`, regexp.QuoteMeta(oldDriver)),
		ContainSubstring("Held: 4 nodes with an outdated driver"), ContainSubstring("autoUpgrade is false"),
	))
	g.Expect(got.out).NotTo(ContainSubstring("Round"))
}

func TestDetailedExitCodeOfPlan(t *testing.T) {
	file := installed(t)
	for spec, code := range map[string]int{
		installedSpec: 0, upgradedSpec: 3, `{driver: {version: "580.2"}}`: 0,
		`{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, paused: true}}}`: 0,
		`{paused: true, driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`: 0,
	} {
		g := NewWithT(t)
		got := kubectlGPU(edit(spec), "plan", "-f", "-", "--against", file, "--detailed-exitcode")
		g.Expect(got.code).To(Equal(code), spec+got.errOut)
		g.Expect(got.errOut).To(BeEmpty())
		g.Expect(got.out).NotTo(BeEmpty())
	}
}

func TestWrongUsageOfPlan(t *testing.T) {
	file := installed(t)
	for name, test := range map[string]struct {
		policy string
		args   []string
		code   int
		err    string
	}{
		"no policy": {
			args: []string{"-f", "-", "--against", file}, code: 1, err: "reading the policy -: found 0 ClusterPolicies",
		},
		"both from one pipe": {
			args: []string{"-f", "-", "--against", "-"}, code: 2, err: "cannot both come from standard input",
		},
		"an unknown format": {
			args: []string{"-f", "-", "-o", "wide"}, code: 2, err: "--output wide: give one of [text json yaml]",
		},
		"an unknown field": {
			policy: edit("{drivers: {}}"), args: []string{"-f", "-", "--against", file}, code: 1,
			err: `reading the policy -: strict decoding error: unknown field "spec.drivers"`,
		},
		"a second policy": {
			policy: strings.Replace(edit("{}"), "cluster-policy", "other", 1), args: []string{"-f", "-", "--against", file},
			code: 1, err: "cluster-policy is the active ClusterPolicy, and a second one has no effect: give that one",
		},
		"no objects": {
			policy: edit("{}"), args: []string{"-f", "-", "--against", "testdata/policy.yaml"}, code: 1,
			err: "it has no Node: export the objects as kubectl gpu plan --help shows",
		},
		"no such file": {
			policy: edit("{}"), args: []string{"-f", "-", "--against", "missing.yaml"}, code: 1,
			err: "reading the objects missing.yaml: open missing.yaml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU(test.policy, append([]string{"plan"}, test.args...)...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			g.Expect(got.out).To(BeEmpty())
		})
	}
}

// claimants are pods with resource claims, and the claims but for the last.
const claimants = `
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    metadata:
      namespace: team-c
      name: by-claim
      uid: c1
      ownerReferences: &job [{kind: Job, name: j, uid: j, controller: true}]
    spec: {nodeName: gpu-1, containers: [{name: c}], resourceClaims: [{name: one, resourceClaimName: gpu}]}
  - apiVersion: v1
    kind: Pod
    metadata: {namespace: team-c, name: with-nic, uid: c2, ownerReferences: *job}
    spec: {nodeName: gpu-1, containers: [{name: c}], resourceClaims: [{name: one, resourceClaimName: nic}]}
  - apiVersion: v1
    kind: Pod
    metadata: {namespace: team-c, name: unread, uid: c3, ownerReferences: *job}
    spec: {nodeName: gpu-1, containers: [{name: c}], resourceClaims: [{name: one, resourceClaimName: unread}]}
  - apiVersion: resource.k8s.io/v1beta1
    kind: ResourceClaim
    metadata: {namespace: team-c, name: gpu}
    status: {allocation: {devices: {results: [{request: one, driver: gpu.nvidia.com, pool: a, device: d}]}}}
  - apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {namespace: team-c, name: nic}
    status: {allocation: {devices: {results: [{request: one, driver: dra.net, pool: a, device: d}]}}}
`

// The pods that a plan names are those that the operator would evict: of those with claims, the ones with a GPU.
func TestPlanReadsResourceClaims(t *testing.T) {
	g := NewWithT(t)
	file := installed(t)
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(file, append(text, claimants...), 0o600)).To(Succeed())
	const all = `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 3}}}`
	got := kubectlGPU(edit(all), "plan", "-f", "-", "--against", file, "-o", "json")
	g.Expect(got.code).To(Equal(0), got.errOut)
	found := preview.Preview{}
	g.Expect(json.Unmarshal([]byte(got.out), &found)).To(Succeed())
	for _, node := range found.Upgrades.Nodes {
		if node.Name == "gpu-1" {
			g.Expect(node.Evicted).To(ConsistOf("team-a/train-0", "team-c/by-claim", "team-c/unread"))
		}
	}
	g.Expect(found.Upgrades.Nodes).To(ContainElement(HaveField("Name", "gpu-1")))
}

// The cluster is read as the kubeconfig and the context choose it, and nothing is written.
func TestPlanReadsTheCluster(t *testing.T) {
	g := NewWithT(t)
	all, err := documents(installed(t), nil)
	g.Expect(err).NotTo(HaveOccurred())
	server := newAPIServer(t, append(all, []byte(`{"apiVersion": "admissionregistration.k8s.io/v1",
		"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "`+labels.AgentPolicyBinding+`"}}`))...)
	flags := []string{"plan", "-f", "-", "--kubeconfig", server.kubeconfig(t), "--context", "c"}
	got := kubectlGPU(edit(upgradedSpec), flags...)
	g.Expect(got.code).To(Equal(0), got.errOut)
	want, err := os.ReadFile("testdata/plans/another-driver.txt")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.out).To(Equal(string(want)))
	g.Expect(server.requests()).To(And(ContainElement("GET /api/v1/nodes"),
		ContainElement("GET /apis/apps/v1/namespaces/gpu-operator/daemonsets"), HaveEach(HavePrefix("GET "))))

	server.refused = true
	got = kubectlGPU(edit(upgradedSpec), flags...)
	g.Expect(got.code).To(Equal(1))
	g.Expect(got.errOut).To(HavePrefix("kubectl gpu: reading nodes: Error from server (Forbidden): refused\n"))
}

// Variables of the operator that replace images count, the last one of a name as in the pod, and what cannot be read or
// is ignored is noted.
func TestPlanReadsTheVariablesOfTheOperator(t *testing.T) {
	const variables = "env: [{name: OPERATOR_IMAGE}"
	for name, test := range map[string]struct{ env, want, note string }{
		"twice": {
			env:  ", {name: DRIVER_IMAGE, value: a.example/driver:1}, {name: DRIVER_IMAGE, value: b.example/driver:2}",
			want: "b.example/driver",
		},
		"a ConfigMap": {
			env:  ", {name: DRIVER_IMAGE, valueFrom: {configMapKeyRef: {name: images, key: driver}}}",
			want: "nvcr.io/nvidia/driver",
			note: "the operator's variable DRIVER_IMAGE was not read, as its Deployment has only where it comes from",
		},
		"all of a ConfigMap": {
			env:  "], envFrom: [{configMapRef: {name: images}}",
			want: "nvcr.io/nvidia/driver",
			note: "the operator's variables of ConfigMap images were not read",
		},
		"ignored": {
			env:  ", {name: DRIVER_IMAGE, value: a.example/other:1}",
			want: "nvcr.io/nvidia/driver",
			note: "the operator's variable DRIVER_IMAGE is ignored",
		},
		"a field of the pod": {
			env:  ", {name: OPERATOR_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}",
			want: "nvcr.io/nvidia/driver",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := installed(t, variables, variables+test.env)
			got := kubectlGPU(edit(upgradedSpec), "plan", "-f", "-", "--against", cluster, "-o", "json")
			g.Expect(got.code).To(Equal(0), got.errOut)
			found := preview.Preview{}
			g.Expect(json.Unmarshal([]byte(got.out), &found)).To(Succeed())
			g.Expect(got.out).To(ContainSubstring(`"after": "` + test.want + `:580.2-`))
			if notes := strings.Join(found.Notes, "\n"); test.note != "" {
				g.Expect(notes).To(ContainSubstring(test.note))
			} else {
				g.Expect(notes).NotTo(ContainSubstring("variable"))
			}
		})
	}
}
