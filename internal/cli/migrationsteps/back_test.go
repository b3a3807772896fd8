package migrationsteps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// parsed returns objects of YAML documents.
func parsed(g *WithT, documents ...string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, document := range documents {
		text, err := yaml.YAMLToJSON([]byte(document))
		g.Expect(err).NotTo(HaveOccurred(), document)
		o := &unstructured.Unstructured{}
		g.Expect(o.UnmarshalJSON(text)).To(Succeed(), document)
		objects = append(objects, o)
	}
	return objects
}

const ownPolicy = `
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy, uid: p, finalizers: [other, nvidia.com/gpu-operator.removal]}
spec: {driver: {%s}}
status: {namespace: ns, nodes: [], conditions: [{type: Ready}, {type: Degraded}]}`

// nodeOf returns a GPU node with an operating system and further labels.
func nodeOf(name, version, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata:
  name: %s
  labels:
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.deploy.driver: "true"
    feature.node.kubernetes.io/system-os_release.ID: ubuntu
    feature.node.kubernetes.io/system-os_release.VERSION_ID: "%s"
    %s`, name, version, more)
}

// setOf returns a driver DaemonSet of this operator, and its revision.
func setOf(name, pool string) []string {
	labels := fmt.Sprintf(`app: %s
        app.kubernetes.io/managed-by: gpu-operator
        nvidia.com/gpu-operator.operand: driver
        nvidia.com/gpu-operator.pool: %s`, name, pool)
	return []string{fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata:
      name: %[1]s
      namespace: ns
      uid: %[1]s
      annotations: {nvidia.com/gpu-operator.digest: d}
      labels:
        %[2]s
spec:
  selector: {matchLabels: {app: %[1]s}}`, name, labels), fmt.Sprintf(`
apiVersion: apps/v1
kind: ControllerRevision
revision: 2
metadata:
      name: %[1]s-1
      namespace: ns
      labels:
        %[2]s
data:
  spec:
    template:
      $patch: replace
      metadata:
        annotations: {nvidia.com/gpu-operator.template-digest: d}
        labels:
          %[3]s
      spec:
        affinity:
          nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: []}]}}
          podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}
        containers: [{name: nvidia-driver-ctr, image: "driver:%[4]s"}]`, name, labels,
		strings.ReplaceAll(labels, "\n", "\n  "), pool)}
}

// podOf returns a driver pod of a DaemonSet.
func podOf(set, pool, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s-%[3]s
  namespace: ns
  uid: pod-%[3]s
  labels:
    app: %[1]s
    app.kubernetes.io/component: nvidia-driver
    nvidia.com/gpu-operator.operand: driver
    nvidia.com/gpu-operator.pool: %[2]s
    pod-template-generation: "1"
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: %[1]s, uid: %[1]s, controller: true}]
spec: {nodeName: %[3]s, containers: []}`, set, pool, node)
}

// twoPools are two driver DaemonSets with a pod each.
func twoPools() []string {
	documents := []string{
		fmt.Sprintf(ownPolicy, ""), nodeOf("a", "22.04", ""), nodeOf("b", "24.04", ""),
		podOf("nvidia-driver-daemonset", "p22", "a"), podOf("nvidia-driver-daemonset-p24", "p24", "b"),
	}
	own, others := setOf("nvidia-driver-daemonset", "p22"), setOf("nvidia-driver-daemonset-p24", "p24")
	older := strings.NewReplacer("revision: 2", "revision: 1", "driver:p22", "driver:old").Replace(own[1])
	others[1] = strings.Replace(others[1], "revision: 2", "revision: 3", 1)
	return slices.Concat(documents, []string{older}, own, []string{older}, others)
}

func backOf(g *WithT, objects []*unstructured.Unstructured) *Back {
	b, err := NewBack(&Cluster{Objects: objects})
	g.Expect(err).NotTo(HaveOccurred())
	return b
}

// actions returns the actions of steps with the names of their objects.
func actions(steps []Step) []string {
	var found []string
	for _, s := range steps {
		found = append(found, string(s.Action)+" "+s.Name)
	}
	return found
}

// play changes the objects as the API server, the garbage collector and the DaemonSet controller do it for a step.
func play(g *WithT, objects []*unstructured.Unstructured, step *Step) []*unstructured.Unstructured {
	at := func(o *unstructured.Unstructured) bool {
		return cleanup.Describe(o).Kind == step.Kind && o.GetName() == step.Name
	}
	var left []*unstructured.Unstructured
	for _, o := range objects {
		switch {
		case !at(o):
		case step.Action == ActionOrphan:
			for _, pod := range objects {
				if refs := pod.GetOwnerReferences(); pod.GetKind() == "Pod" && len(refs) > 0 && refs[0].UID == o.GetUID() {
					pod.SetOwnerReferences(nil)
				}
			}
			continue
		default:
			patched, err := json.Marshal(merge(o.Object, step.Patch))
			g.Expect(err).NotTo(HaveOccurred())
			o = &unstructured.Unstructured{}
			g.Expect(o.UnmarshalJSON(patched)).To(Succeed())
		}
		left = append(left, o)
	}
	if step.Action == ActionCreate {
		text, err := json.Marshal(step.Patch)
		g.Expect(err).NotTo(HaveOccurred())
		left = append(left, parsed(g, string(text))...)
	}
	return left
}

// merge applies a merge patch as RFC 7396 defines it, as far as these steps use it.
func merge(into, patch map[string]any) map[string]any {
	for key, change := range patch {
		changed, isMap := change.(map[string]any)
		inner, _ := into[key].(map[string]any)
		switch {
		case change == nil:
			delete(into, key)
		case isMap && inner != nil:
			into[key] = merge(inner, changed)
		default:
			into[key] = change
		}
	}
	return into
}

// The steps can be planned again after each of them, and lead to the same end. No DaemonSet exists while a pod has
// labels that it does not have, or no labels of it.
func TestBackMergesDrivers(t *testing.T) {
	g := NewWithT(t)
	objects := parsed(g, twoPools()...)
	all := []string{
		"unhold cluster-policy", "orphan nvidia-driver-daemonset", "orphan nvidia-driver-daemonset-p24",
		"move nvidia-driver-daemonset-a", "move nvidia-driver-daemonset-p24-b", "create nvidia-driver-daemonset",
	}
	for i := range all {
		steps := backOf(g, objects).Steps()
		g.Expect(actions(steps)).To(Equal(all[i:]))
		if steps[0].Action == ActionCreate {
			checkCreated(g, &steps[0])
		}
		objects = play(g, objects, &steps[0])
	}
	b := backOf(g, objects)
	g.Expect(b.Steps()).To(BeEmpty())
	for i := range b.pods {
		g.Expect(b.pods[i].Labels).To(HaveKeyWithValue("app", "nvidia-driver-daemonset"))
		g.Expect(b.pods[i].Labels).NotTo(HaveKey("pod-template-generation"))
	}
	g.Expect(b.object("ClusterPolicy", "cluster-policy").GetFinalizers()).To(ConsistOf("other"))
	g.Expect(b.FinishRefusal()).To(ContainSubstring("is not installed"))
}

// checkCreated checks the DaemonSet against what is known of that of NVIDIA's operator.
func checkCreated(g *WithT, create *Step) {
	text, err := json.Marshal(create.Patch)
	g.Expect(err).NotTo(HaveOccurred())
	object := parsed(g, string(text))[0]
	field := func(path ...string) any {
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
		g.Expect(err).NotTo(HaveOccurred())
		return value
	}
	app := map[string]any{"app": "nvidia-driver-daemonset"}
	g.Expect(field("spec", "selector", "matchLabels")).To(Equal(app))
	g.Expect(field("spec", "updateStrategy", "type")).To(Equal("OnDelete"))
	g.Expect(field("spec", "template", "spec", "nodeSelector")).
		To(Equal(map[string]any{"nvidia.com/gpu.deploy.driver": "true"}))
	g.Expect(field("spec", "template", "spec", "affinity")).
		To(And(HaveKey("podAntiAffinity"), Not(HaveKey("nodeAffinity"))))
	g.Expect(field("spec", "template", "metadata", "labels")).To(Equal(map[string]any{
		"app": "nvidia-driver-daemonset", "app.kubernetes.io/managed-by": "gpu-operator",
	}))
	g.Expect(field("spec", "template", "spec", "containers")).To(ContainElement(HaveKeyWithValue("image", "driver:p22")))
	g.Expect(object.GetOwnerReferences()).To(ConsistOf(HaveField("Name", "cluster-policy")))
}

// NVIDIA's operator updates a DaemonSet that is as its own; nothing is merged.
func TestBackLeavesWhatNVIDIAsOperatorUpdates(t *testing.T) {
	g := NewWithT(t)
	documents := append(setOf("nvidia-driver-daemonset", "p22"), fmt.Sprintf(ownPolicy, ""), nodeOf("a", "22.04", ""),
		podOf("nvidia-driver-daemonset", "p22", "a"))
	g.Expect(actions(backOf(g, parsed(g, documents...)).Steps())).To(Equal([]string{"unhold cluster-policy"}))
	for _, changed := range [][2]string{
		{"matchLabels: {app: nvidia-driver-daemonset}", "matchLabels: {app: other}"},
		{"uid: nvidia-driver-daemonset, controller", "uid: another, controller"},
		{"name: nvidia-driver-daemonset\n      namespace: ns\n      uid", "name: other\n      namespace: ns\n      uid"},
	} {
		text := strings.Replace(strings.Join(documents, "---\n"), changed[0], changed[1], 1)
		g.Expect(actions(backOf(g, parsed(g, strings.Split(text, "---\n")...)).Steps())).
			To(HaveExactElements("unhold cluster-policy", HavePrefix("orphan"), HavePrefix("move"), HavePrefix("create")))
	}
	toolkit := strings.Replace(podOf("toolkit", "p22", "a"), "operand: driver", "operand: container-toolkit", 1)
	g.Expect(backOf(g, parsed(g, append(documents, toolkit)...)).Report().Notes).To(ConsistOf(
		HavePrefix("set driver.upgradePolicy.autoUpgrade to false")))
}

// A pod that NVIDIA's DaemonSet has adopted stays as it is, and the others get its labels.
func TestBackMovesTheRest(t *testing.T) {
	g := NewWithT(t)
	theirs := strings.ReplaceAll(setOf("nvidia-driver-daemonset", "p22")[0], "digest: d", "other: d")
	documents := append(setOf("nvidia-driver-daemonset-p24", "p24"), theirs, nodeOf("a", "22.04", ""),
		nodeOf("b", "24.04", ""), podOf("nvidia-driver-daemonset", "p22", "a"),
		podOf("nvidia-driver-daemonset-p24", "p24", "b"))
	g.Expect(actions(backOf(g, parsed(g, documents...)).Steps())).To(Equal([]string{
		"orphan nvidia-driver-daemonset-p24", "move nvidia-driver-daemonset-p24-b",
	}))
}

// A node whose pod only the anchor keeps gets the label first by which NVIDIA's DaemonSet selects it.
func TestBackSelectsNodes(t *testing.T) {
	g := NewWithT(t)
	documents := append(setOf("nvidia-driver-daemonset", "p22"), fmt.Sprintf(ownPolicy, ""),
		strings.Replace(nodeOf("a", "22.04", ""), `gpu.deploy.driver: "true"`, `gpu.deploy.driver: ""`, 1),
		podOf("nvidia-driver-daemonset", "p22", "a"))
	steps := backOf(g, parsed(g, documents...)).Steps()
	g.Expect(actions(steps)).To(Equal([]string{"unhold cluster-policy", "select a"}))
	g.Expect(steps[1].Patch).To(Equal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"nvidia.com/gpu.deploy.driver": "true"},
	}}))
}

// NVIDIA's operator has a driver DaemonSet for each release of Red Hat CoreOS.
func TestBackOnOpenShift(t *testing.T) {
	g := NewWithT(t)
	coreOS := func(name, release string) string {
		return nodeOf(name, "4.18", "nvidia.com/gpu-operator.pool-coreos: x\n    "+
			"feature.node.kubernetes.io/system-os_release.OSTREE_VERSION: "+release)
	}
	documents := append(setOf("nvidia-driver-daemonset", "p1"), setOf("nvidia-driver-daemonset-p2", "p2")...)
	documents = append(documents, fmt.Sprintf(ownPolicy, ""), coreOS("a", "418.1-0"), coreOS("b", "418.2-0"),
		podOf("nvidia-driver-daemonset", "p1", "a"), podOf("nvidia-driver-daemonset-p2", "p2", "b"))
	steps := backOf(g, parsed(g, documents...)).Steps()
	g.Expect(actions(steps)).To(Equal([]string{
		"unhold cluster-policy", "orphan nvidia-driver-daemonset", "orphan nvidia-driver-daemonset-p2",
		"move nvidia-driver-daemonset-a", "move nvidia-driver-daemonset-p2-b",
		"create nvidia-driver-daemonset-418.1-0", "create nvidia-driver-daemonset-418.2-0",
	}))
	text, err := json.Marshal(steps[6].Patch)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(And(ContainSubstring(`"image":"driver:p2"`), ContainSubstring(
		`"feature.node.kubernetes.io/system-os_release.OSTREE_VERSION":"418.2-0"`),
		ContainSubstring(`"openshift.driver-toolkit":"true","openshift.driver-toolkit.rhcos":"418.2-0"`)))

	named := setOf("nvidia-driver-daemonset-418.1-0", "p1")
	documents = append(named, coreOS("a", "418.1-0"), podOf("nvidia-driver-daemonset-418.1-0", "p1", "a"),
		fmt.Sprintf(ownPolicy, ""))
	g.Expect(actions(backOf(g, parsed(g, documents...)).Steps())).To(Equal([]string{"unhold cluster-policy"}))
}

func TestThePolicyThatHasBeenActiveIsActive(t *testing.T) {
	g := NewWithT(t)
	const one = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: %s, creationTimestamp: %q%s}\n"
	c := Cluster{Objects: parsed(g, fmt.Sprintf(one, "older", "2026-01-01T00:00:00Z", ""),
		fmt.Sprintf(one, "younger", "2026-01-02T00:00:00Z", ""))}
	g.Expect(c.ActivePolicy().GetName()).To(Equal("older"))
	c.Objects[1].SetFinalizers([]string{"nvidia.com/gpu-operator.removal"})
	g.Expect(c.ActivePolicy().GetName()).To(Equal("younger"))
}

func TestBackIsBlocked(t *testing.T) {
	upgrading := strings.Replace(nodeOf("a", "22.04", ""), "  labels:", `  uid: one
  annotations:
    nvidia.com/gpu-operator.driver-upgrade: '{"uid":"one","round":1,"state":"drain-required","cordoned":true}'
  labels:`, 1) + "\nspec: {unschedulable: true}"
	for name, test := range map[string]struct {
		change func([]string) []string
		want   string
	}{
		"automatic upgrades": {
			func(d []string) []string {
				d[0] = fmt.Sprintf(ownPolicy, "upgradePolicy: {autoUpgrade: true}")
				return d
			},
			"autoUpgrade is true",
		},
		"NVIDIADriver objects": {
			func(d []string) []string { d[0] = fmt.Sprintf(ownPolicy, "useNvidiaDriverCRD: true"); return d },
			"NVIDIADriver objects declare the drivers",
		},
		"precompiled drivers": {
			func(d []string) []string { d[0] = fmt.Sprintf(ownPolicy, "usePrecompiled: true"); return d },
			"usePrecompiled is true",
		},
		"a deleted policy": {
			func(d []string) []string {
				d[0] = strings.Replace(d[0], "uid: p,", "uid: p, deletionTimestamp: 2026-01-01T00:00:00Z,", 1)
				return d
			}, "is being deleted",
		},
		"a node that is left out": {
			func(d []string) []string {
				d[1] = strings.Replace(d[1], `gpu.deploy.driver: "true"`, `gpu.deploy.driver: "false"`, 1)
				return d
			}, "label nvidia.com/gpu.deploy.driver=false DaemonSet nvidia-driver-daemonset would end it",
		},
		"a MIG layout": {
			func(d []string) []string {
				d[1] = strings.Replace(nodeOf("a", "22.04", ""), "  labels:", `  uid: one
  annotations: {nvidia.com/gpu-operator.mig-drain: '{"uid":"one","cordoned":true}'}
  labels:`, 1) + "\nspec: {unschedulable: true}"
				return d
			}, "node a is drained for a MIG layout",
		},
		"an upgrade": {func(d []string) []string { d[1] = upgrading; return d }, "node a is being upgraded"},
		"no template": {
			func(d []string) []string {
				var left []string
				for _, document := range d {
					if !strings.Contains(document, "kind: ControllerRevision") {
						left = append(left, document)
					}
				}
				return left
			}, "no ControllerRevision",
		},
		"a template that cannot be read": {
			func(d []string) []string {
				for i := range d {
					d[i] = strings.Replace(d[i], "containers: [{name: nvidia-driver-ctr", "containers: [{name: 1", 1)
				}
				return d
			}, "cannot be created: ControllerRevision nvidia-driver-daemonset-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := backOf(g, parsed(g, test.change(twoPools())...)).Report()
			g.Expect(r.Blockers).To(ConsistOf(And(
				HaveField("Cause", ContainSubstring(test.want)), HaveField("Remedy", Not(BeEmpty())))))
		})
	}
	g := NewWithT(t)
	g.Expect(backOf(g, parsed(g, twoPools()...)).Report().Blockers).To(And(Not(BeNil()), BeEmpty()))
}

// The settings of the driver do not matter without driver pods.
func TestBackWithoutDriver(t *testing.T) {
	g := NewWithT(t)
	r := backOf(g, parsed(g, fmt.Sprintf(ownPolicy, "usePrecompiled: true, upgradePolicy: {autoUpgrade: true}"))).Report()
	g.Expect(r.Blockers).To(BeEmpty())
	pods := parsed(g, podOf("nvidia-driver-daemonset", "p", "a"))
	pods[0].SetNamespace("")
	g.Expect(backOf(g, pods).Report().Blockers).To(BeEmpty(), "without a policy")
}

// The operands are where the status of the policy says, or else this operator, NVIDIA's, or a DaemonSet of an operand.
func TestBackFindsTheNamespace(t *testing.T) {
	g := NewWithT(t)
	set := object(kindDaemonSet, "set", "")
	set.SetLabels(map[string]string{"nvidia.com/gpu-operator.operand": "dcgm"})
	set.SetNamespace("of-set")
	theirs, own := deployment("DRIVER_IMAGE"), deployment(preview.OwnVariable)
	theirs.SetNamespace("a")
	own.SetNamespace("b")
	g.Expect((&Cluster{}).Namespace()).To(BeEmpty())
	objects := []*unstructured.Unstructured{object(kindDaemonSet, "of-others", "")}
	g.Expect(backOf(g, objects).namespace).To(BeEmpty())
	for _, step := range []struct {
		more *unstructured.Unstructured
		want string
	}{
		{set, "of-set"}, {object(kindPolicy, "a", ""), "of-set"}, {theirs, "a"}, {own, "b"},
		{parsed(g, fmt.Sprintf(ownPolicy, ""))[0], "ns"},
	} {
		objects = append(objects, step.more)
		g.Expect(backOf(g, objects).namespace).To(Equal(step.want))
	}
}

func TestBackNeedsObjectsThatCanBeRead(t *testing.T) {
	for _, kind := range []string{kindNode, kindPod, kindDaemonSet, kindRevision} {
		o := object(kind, "a", "")
		o.SetNamespace("")
		g := NewWithT(t)
		g.Expect(unstructured.SetNestedField(o.Object, "one", "metadata", "generation")).To(Succeed())
		_, err := NewBack(&Cluster{Objects: []*unstructured.Unstructured{o}})
		g.Expect(err).To(MatchError(HavePrefix(kind + " a: ")))
	}
}

// A DaemonSet is NVIDIA's once its operator has written it, and, but for the driver, once its pods have been replaced.
func TestBackIsNotTakenOver(t *testing.T) {
	const updated = "{observedGeneration: 2, updatedNumberScheduled: 1, desiredNumberScheduled: 1}"
	const hash = "nvidia.com/last-applied-hash: h"
	for name, test := range map[string]struct {
		set, labels, annotations, status string
		left                             bool
	}{
		"updated":            {"nvidia-dcgm", "", hash, updated, false},
		"not written":        {"nvidia-dcgm", "", "", updated, true},
		"not observed":       {"nvidia-dcgm", "", hash, strings.Replace(updated, "2", "1", 1), true},
		"with outdated pods": {"nvidia-dcgm", "", hash, strings.Replace(updated, "Scheduled: 1}", "Scheduled: 2}", 1), true},
		"with more pods": {
			"nvidia-dcgm", "", hash, strings.Replace(updated, "Scheduled: 1,", "Scheduled: 2,", 1), false,
		},
		"a driver":            {"nvidia-driver-daemonset", "", hash, "{}", false},
		"a driver of CoreOS":  {"nvidia-driver-daemonset-418", "", "", "{}", true},
		"another by its name": {"nvidia-dcgm-418", "", "", "{}", false},
		"of others":           {"of-others", "", "", "{}", false},
		"by its operand":      {"renamed", "nvidia.com/gpu-operator.operand: dcgm", "", updated, true},
		"applied by this operator": {
			"nvidia-dcgm", "nvidia.com/gpu-operator.operand: dcgm, app.kubernetes.io/managed-by: gpu-operator",
			hash + ", nvidia.com/gpu-operator.digest: d", updated, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set := fmt.Sprintf("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: %s, namespace: nvidia, generation: 2, "+
				"labels: {%s}, annotations: {%s}}\nstatus: %s", test.set, test.labels, test.annotations, test.status)
			refusal := backOf(g, append(parsed(g, set), deployment("DRIVER_IMAGE"))).FinishRefusal()
			if !test.left {
				g.Expect(refusal).To(BeEmpty())
				return
			}
			g.Expect(refusal).To(HavePrefix("NVIDIA's operator has not taken over " + test.set + " yet"))
		})
	}
}

// Names, selectors and node selectors are those of NVIDIA's manifests.
func TestPlaces(t *testing.T) {
	var found []string
	for _, p := range places() {
		found = append(found, fmt.Sprint(p.operand, " ", p.name, " ", p.selector, " ", p.nodes))
	}
	simple := func(operand, name string) string {
		return fmt.Sprintf("%s %s map[app:%[2]s] map[nvidia.com/gpu.deploy.%[1]s:true]", operand, name)
	}
	NewWithT(t).Expect(found).To(ConsistOf(
		simple("driver", "nvidia-driver-daemonset"), simple("container-toolkit", "nvidia-container-toolkit-daemonset"),
		simple("device-plugin", "nvidia-device-plugin-daemonset"), simple("dcgm", "nvidia-dcgm"),
		simple("dcgm-exporter", "nvidia-dcgm-exporter"), simple("mig-manager", "nvidia-mig-manager"),
		simple("node-status-exporter", "nvidia-node-status-exporter"),
		"mps-control-daemon nvidia-device-plugin-mps-control-daemon map[app:nvidia-device-plugin-mps-control-daemon] "+
			"map[nvidia.com/gpu.deploy.device-plugin:true nvidia.com/mps.capable:true]",
		"gpu-feature-discovery gpu-feature-discovery map[app:gpu-feature-discovery app.kubernetes.io/part-of:nvidia-gpu] "+
			"map[nvidia.com/gpu.deploy.gpu-feature-discovery:true]",
		"operator-validator nvidia-operator-validator map[app:nvidia-operator-validator "+
			"app.kubernetes.io/part-of:gpu-operator] map[nvidia.com/gpu.deploy.operator-validator:true]",
	))
}

func TestBackByOperators(t *testing.T) {
	g := NewWithT(t)
	byOLM := deployment(preview.OwnVariable)
	byOLM.SetLabels(map[string]string{olmOwner: "gpu-operator.v1.0.0"})
	objects := append(parsed(g, twoPools()...), byOLM, deployment("DRIVER_IMAGE"))
	r := backOf(g, objects).Report()
	g.Expect(r.Blockers).To(ConsistOf(HaveField("Cause", ContainSubstring("already runs NVIDIA's operator")),
		HaveField("Remedy", HavePrefix("kubectl delete subscription,clusterserviceversion"))))
	g.Expect(r.Operators).To(ConsistOf(HaveField("Way", WayOLM)))
	g.Expect(r.Notes).To(ContainElement(ContainSubstring("operating systems ubuntu 22.04, ubuntu 24.04")))
	g.Expect(r.Operands).To(ConsistOf(Operand{DaemonSet: "nvidia-driver-daemonset", Pods: 2, Effect: EffectKept}))
}

func TestBackFinish(t *testing.T) {
	g := NewWithT(t)
	own := object("ClusterRole", "gpu-operator-nvidia-driver", "helm")
	own.SetAnnotations(map[string]string{releaseName: "ours", releaseNamespace: "nvidia"})
	own.SetLabels(map[string]string{"app.kubernetes.io/name": operatorName})
	shared := object("ServiceAccount", "nvidia-driver", "")
	shared.SetAnnotations(own.GetAnnotations())
	shared.SetLabels(own.GetLabels())
	objects := append(parsed(g, twoPools()...), deployment("DRIVER_IMAGE"), own, shared, record("ours"), record("theirs"))
	g.Expect(backOf(g, objects).FinishRefusal()).To(And(ContainSubstring("has not taken over nvidia-driver-daemonset"),
		ContainSubstring("nvidia-driver-daemonset-p24")))

	objects = append(parsed(g, fmt.Sprintf(ownPolicy, ""), strings.Replace(nodeOf("a", "22.04",
		"nvidia.com/gpu-operator.pool: p22"), "  labels:", "  annotations: {nvidia.com/gpu-operator.discovered-labels: x}\n"+
		"  labels:", 1)), deployment("DRIVER_IMAGE"), own, shared, record("ours"), record("theirs"))
	g.Expect(backOf(g, objects).FinishRefusal()).To(ContainSubstring("install Node Feature Discovery first"))
	discovered := backOf(g, objects)
	discovered.nodes[0].Annotations["nfd.node.kubernetes.io/feature-labels"] = "x"
	g.Expect(discovered.FinishRefusal()).To(BeEmpty())
	g.Expect(texts(discovered.Finish())).To(Equal([]string{
		"delete ClusterRole gpu-operator-nvidia-driver", "delete Secret nvidia/sh.helm.release.v1.ours.v1",
		"release ServiceAccount nvidia/nvidia-driver", "unmark ClusterPolicy cluster-policy", "unmark Node a",
	}))
	g.Expect(discovered.Finish()[3].StatusPatch).To(HaveKeyWithValue("status", map[string]any{
		"nodes": nil, "conditions": []any{map[string]any{"type": "Ready"}},
	}))
	g.Expect(discovered.Finish()[4].Patch).To(HaveKeyWithValue("metadata", And(
		HaveKeyWithValue("labels", And(HaveLen(1), HaveKey("nvidia.com/gpu-operator.pool"))),
		HaveKeyWithValue("annotations", And(HaveLen(1), HaveKey("nvidia.com/gpu-operator.discovered-labels"))),
	)))
}
