package preview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

const (
	namespace = "gpu-operator"
	spec1     = `{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}}`
	spec2     = `{driver: {version: "580.2", upgradePolicy: {autoUpgrade: true}}}`
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// parse returns the objects of a YAML list, or of its items.
func parse(t *testing.T, text string) []manifest.Object {
	t.Helper()
	g := NewWithT(t)
	types := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(types)).To(Succeed())
	g.Expect(v1.AddToScheme(types)).To(Succeed())
	g.Expect(v1alpha1.AddToScheme(types)).To(Succeed())
	var items []map[string]any
	g.Expect(yaml.Unmarshal([]byte(text), &items)).To(Succeed(), text)
	var found []manifest.Object
	for _, item := range items {
		object := &unstructured.Unstructured{Object: item}
		if !types.Recognizes(object.GroupVersionKind()) {
			found = append(found, object)
			continue
		}
		typed, err := types.New(object.GroupVersionKind())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(item, typed, true)).To(Succeed(), text)
		known, isObject := typed.(manifest.Object)
		g.Expect(isObject).To(BeTrue())
		found = append(found, known)
	}
	return found
}

// policyOf returns a policy with a spec, as it is in the cluster.
func policyOf(t *testing.T, spec string) *v1.ClusterPolicy {
	t.Helper()
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy", UID: "policy"}}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(spec), &policy.Spec)).To(Succeed(), spec)
	return policy
}

// installed returns the objects of the operator for a policy on the nodes among the objects, with ready pods on the GPU
// nodes.
func installed(t *testing.T, policy *v1.ClusterPolicy, objects []manifest.Object, in operand.Input) []manifest.Object {
	t.Helper()
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	in.Spec, in.Namespace, in.OperatorImage = effective.Of(policy.Spec), namespace, "example.com/operator:1"
	in.Contents = catalogue.Assume(in, nil)
	decisions := plan.Decide(catalogue, in)
	var nodes []nodeinfo.Facts
	var names []string
	for _, object := range objects {
		if node, isNode := object.(*corev1.Node); isNode {
			*node = *Settled(decisions, node)
			nodes = append(nodes, observe.Facts(node))
			if nodes[len(nodes)-1].Managed() {
				names = append(names, node.Name)
			}
		}
	}
	p := plan.Compute(decisions, in.Optional, nodes)
	found := []manifest.Object{policy}
	for _, step := range p.Steps {
		if step.Action != plan.Apply {
			continue
		}
		rendered, err := render.Step(p, step, render.Owner{Name: policy.Name, UID: string(policy.UID)}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		for _, object := range rendered {
			intent, err := apply.Intent(object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(intent.Object, object)).To(Succeed())
			found = append(found, object)
			if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
				found = append(found, podsOf(ds, names)...)
			}
		}
	}
	return found
}

// podsOf gives a DaemonSet a ready pod on each of the nodes.
func podsOf(ds *appsv1.DaemonSet, nodes []string) []manifest.Object {
	var pods []manifest.Object
	for _, node := range nodes {
		ds.Status.CurrentNumberScheduled++
		pod := &corev1.Pod{
			ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy(),
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		pod.Namespace, pod.Name, pod.Spec.NodeName = ds.Namespace, ds.Name+"-"+node, node
		pod.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
		}
		pods = append(pods, pod)
	}
	return pods
}

// previewCase is the edit of a cluster.
type previewCase struct {
	// from is the spec that is installed; spec1 if it is empty, and "none" for no policy.
	from, to string
	// replaced are pairs of texts in the file with the cluster, and added is a list of objects.
	replaced []string
	added    string
	// named is a list of objects that are applied together with the policy.
	named string
	// in is what is known besides the spec where it was installed.
	in operand.Input
	// change changes the cluster.
	change func(*Cluster)
}

// cluster returns the cluster and its edit.
func (c *previewCase) cluster(t *testing.T) (*Cluster, Edit) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile("testdata/cluster.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(c.replaced); i += 2 {
		g.Expect(string(text)).To(ContainSubstring(c.replaced[i]))
	}
	objects := parse(t, strings.NewReplacer(c.replaced...).Replace(string(text)))
	found := &Cluster{Namespace: namespace, CRDs: map[string]bool{}, Read: map[string]bool{
		"Node": true, "Pod": true, "DaemonSet": true, "ConfigMap": true, "Service": true, "RuntimeClass": true,
		"ValidatingAdmissionPolicyBinding": true,
	}}
	from := c.from
	if from == "" {
		from = spec1
	}
	found.Objects = objects
	if from != "none" {
		found.Objects = append(found.Objects, installed(t, policyOf(t, from), objects, c.in)...)
	}
	found.Objects = append(found.Objects, parse(t, c.added)...)
	if c.change != nil {
		c.change(found)
	}
	edit := Edit{}
	if c.to != "" {
		edit.Policy = policyOf(t, c.to)
		edit.Policy.UID = ""
	}
	for _, object := range parse(t, c.named) {
		if driver, isDriver := object.(*v1alpha1.NVIDIADriver); isDriver {
			edit.Drivers = append(edit.Drivers, *driver)
			continue
		}
		edit.Named = append(edit.Named, object)
	}
	return found, edit
}

// short returns a preview as YAML, with each change of a value on one line.
func short(g *WithT, p *Preview, references []operand.Reference) []byte {
	text, err := json.Marshal(p)
	g.Expect(err).NotTo(HaveOccurred())
	var fields map[string]any
	g.Expect(json.Unmarshal(text, &fields)).To(Succeed())
	fields["summary"] = fmt.Sprintf("differs %t, disturbs %t, %d rounds, %d held", p.Differs(), p.Disturbs(),
		p.Upgrades.Rounds(), p.Upgrades.Held())
	if len(references) > 0 {
		fields["references"] = fmt.Sprint(references)
	}
	text, err = yaml.Marshal(withLines(fields))
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

func withLines(fields any) any {
	switch fields := fields.(type) {
	case []any:
		for i := range fields {
			fields[i] = withLines(fields[i])
		}
	case map[string]any:
		before, changes := fields["before"]
		after, set := fields["after"]
		if changes || set {
			text, _ := json.Marshal([]any{before, after})
			return fmt.Sprint(cmp.Or(fields["path"], fields["container"]), " ", string(text))
		}
		for key := range fields {
			fields[key] = withLines(fields[key])
		}
	}
	return fields
}

// TestPreviews compares all of a preview with golden files. UPDATE_GOLDEN=1 writes them.
func TestPreviews(t *testing.T) {
	for name, test := range previewCases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, edit := test.cluster(t)
			found, err := Of(cluster, edit, now)
			g.Expect(err).NotTo(HaveOccurred())
			references, err := References(cluster, edit)
			g.Expect(err).NotTo(HaveOccurred())
			golden.Compare(t, "testdata/"+name+".golden.yaml", string(short(g, found, references)))
		})
	}
}
