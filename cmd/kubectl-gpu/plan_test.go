package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

const policyHead = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy, uid: policy}\n"

// installed writes a file with the objects of a small cluster in which the spec is installed and all pods are ready.
func installed(t *testing.T, spec string) string {
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
	rendered := kubectlGPU(policy, "render", "-f", "-", "--nodes", nodes)
	g.Expect(rendered.code).To(Equal(0), rendered.errOut)
	all := policy + "status: {namespace: gpu-operator}\n---\n" + string(text)
	for document := range strings.SplitSeq(strings.TrimPrefix(rendered.out, "---\n"), "\n---\n") {
		if kindOf([]byte(document)).Kind == "DaemonSet" {
			document = withPods(g, document)
		}
		all += "\n---\n" + document
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	g.Expect(os.WriteFile(file, []byte(all), 0o600)).To(Succeed())
	return file
}

// withPods returns a DaemonSet with its status, and for a driver's the ready pods of the four GPU nodes.
func withPods(g *WithT, document string) string {
	ds := appsv1.DaemonSet{}
	g.Expect(yaml.Unmarshal([]byte(document), &ds)).To(Succeed())
	ds.Status.CurrentNumberScheduled = 4
	all := []any{ds}
	for _, node := range []string{"gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		if ds.Labels[labels.Operand] != "driver" {
			break
		}
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: ds.Spec.Template.ObjectMeta, Spec: *ds.Spec.Template.Spec.DeepCopy(),
		}
		pod.Namespace, pod.Name, pod.Spec.NodeName = ds.Namespace, ds.Name+"-"+node, node
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

// planning plans the edit from one spec to another.
func planning(t *testing.T, from, to string, flags ...string) output {
	t.Helper()
	args := append([]string{"plan", "-f", "-", "--against", installed(t, from)}, flags...)
	return kubectlGPU(strings.Replace(policyHead, ", uid: policy", "", 1)+"spec: "+to+"\n", args...)
}

const installedSpec = `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}}`

func TestPlans(t *testing.T) {
	for name, test := range map[string]struct{ from, to string }{
		"node-pool-with-its-own-budget": {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}},
			nodePools: [{name: rear, nodeSelector: {zone: rear}, driver: {upgradePolicy: {maxUnavailable: 1}}}]}`},
		"jobs": {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 2,
			waitForCompletion: {podSelector: app=web}}}}`},
		"nothing-changes": {installedSpec, installedSpec},
		"another-driver":  {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`},
		"two-at-a-time-with-force": {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true,
			maxParallelUpgrades: 2, maxUnavailable: 3, podDeletion: {force: true, deleteEmptyDir: true}}}}`},
		"upgrades-by-hand":  {installedSpec, `{driver: {version: "580.2"}}`},
		"paused":            {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, paused: true}}}`},
		"budget-too-small":  {installedSpec, `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true, maxUnavailable: 0}}}`},
		"scheduling-only":   {installedSpec, `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}, daemonsets: {priorityClassName: high}}`},
		"exporter-disabled": {installedSpec, `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}, dcgmExporter: {enabled: false}}`},
		"invalid-driver":    {installedSpec, `{driver: {image: "example.com/driver:1", version: "2", upgradePolicy: {autoUpgrade: true}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := planning(t, test.from, test.to)
			if name == "invalid-driver" {
				g.Expect(got.code).To(Equal(1))
				g.Expect(got.errOut).To(Equal("kubectl gpu: the policy is invalid for driver: see the notes and change it\n"))
			} else {
				g.Expect(got.code).To(Equal(0), got.errOut)
			}
			file := filepath.Join("testdata", "plans", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				g.Expect(os.WriteFile(file, []byte(got.out), 0o644)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.out).To(Equal(string(want)))
		})
	}
}
