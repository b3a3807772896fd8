package install

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// helmsLabels are on each object of the chart but not in config/.
var helmsLabels = []string{
	"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart",
}

// onlyInTheChart are the objects that config/default does not have, with the reason.
var onlyInTheChart = map[string]string{
	"ClusterPolicy/cluster-policy":                "config/samples has it",
	"ServiceAccount/gpu-operator-upgrade-crd":     "a hook of helm upgrade",
	"ClusterRole/gpu-operator-upgrade-crd":        "a hook of helm upgrade",
	"ClusterRoleBinding/gpu-operator-upgrade-crd": "a hook of helm upgrade",
	"Job/gpu-operator-upgrade-crd":                "a hook of helm upgrade",
	"ServiceAccount/gpu-operator-uninstall":       "a hook of helm uninstall",
	"ClusterRole/gpu-operator-uninstall":          "a hook of helm uninstall",
	"ClusterRoleBinding/gpu-operator-uninstall":   "a hook of helm uninstall",
	"Job/gpu-operator-uninstall":                  "a hook of helm uninstall",
	"ServiceAccount/gpu-operator-test":            "a hook of helm test",
	"ClusterRole/gpu-operator-test":               "a hook of helm test",
	"ClusterRoleBinding/gpu-operator-test":        "a hook of helm test",
	"Pod/gpu-operator-test":                       "a hook of helm test",
}

func TestTheChartInstallsWhatKustomizeInstalls(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	want := byName(kustomize(t))
	delete(want, "Namespace/gpu-operator") // Helm creates it: --create-namespace.

	text, err := render(t, "--include-crds", "--set", "operator.image="+placeholder)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	got := byName(objects)
	for name := range onlyInTheChart {
		g.Expect(got).To(HaveKey(name))
		delete(got, name)
	}
	g.Expect(slices.Sorted(maps.Keys(got))).To(Equal(slices.Sorted(maps.Keys(want))))
	for name, object := range want {
		g.Expect(cmp.Diff(object.Object, withoutHelms(g, got[name]))).To(BeEmpty(), name)
	}
}

// No object refers to a namespace other than the release's.
func TestTheNamespaceIsThatOfTheRelease(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := render(t,
		append(set("platform.openshift=true mps.enabled=true"), "--namespace", "nvidia-gpu-operator")...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	// OpenShift's Prometheus, which a RoleBinding in the namespace of the release lets find the metrics there.
	ofAnother := map[string]string{"RoleBinding/gpu-operator-prometheus": "openshift-monitoring"}
	found := 0
	for _, object := range objects {
		name := object.GetKind() + "/" + object.GetName()
		for _, in := range namespaces(object.Object) {
			if in == ofAnother[name] {
				delete(ofAnother, name)
				continue
			}
			g.Expect(in).To(Equal("nvidia-gpu-operator"), name)
			found++
		}
	}
	g.Expect(ofAnother).To(BeEmpty())
	g.Expect(found).To(BeNumerically(">", 50))
	g.Expect(text).NotTo(MatchRegexp(`gpu-operator[.]svc|serviceaccount:gpu-operator`))
}

// namespaces returns all namespaces that an object names.
func namespaces(value any) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if in, isText := inner.(string); isText && (key == "namespace" || key == "kubernetes.io/metadata.name") {
				found = append(found, in)
			}
			found = append(found, namespaces(inner)...)
		}
	case []any:
		for _, inner := range value {
			found = append(found, namespaces(inner)...)
		}
	}
	return found
}

// withoutHelms returns an object of the chart without the labels of Helm, all of which it must have.
func withoutHelms(g *WithT, object *unstructured.Unstructured) map[string]any {
	if object.GetKind() == "CustomResourceDefinition" {
		return object.Object
	}
	labels := object.GetLabels()
	for _, label := range helmsLabels {
		g.Expect(labels).To(HaveKey(label), object.GetName())
		delete(labels, label)
	}
	object.SetLabels(labels)
	return object.Object
}

func byName(objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	named := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		named[o.GetKind()+"/"+o.GetName()] = o
	}
	return named
}

// kustomize returns what config/default installs.
func kustomize(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	objects, err := config.Build(repo + "/config/default")
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

func TestOpenShiftValueEqualsTheComponents(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	var want []*unstructured.Unstructured
	for _, name := range []string{
		"openshift/scc.yaml", "openshift/trusted_ca.yaml", "openshift/operands.yaml", "openshift-monitoring/rbac.yaml",
	} {
		data, err := os.ReadFile(repo + "/config/" + name)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := packaged.Decode(string(data))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).NotTo(BeEmpty())
		want = append(want, objects...)
	}

	text, err := render(t, set("platform.openshift=true")...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	got := byName(objects)
	for name, object := range byName(want) {
		g.Expect(got).To(HaveKey(name))
		for _, field := range []string{"rules", "roleRef", "subjects"} {
			g.Expect(cmp.Diff(object.Object[field], got[name].Object[field])).To(BeEmpty(), "%s of %s", field, name)
		}
	}

	plain, err := render(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plain).NotTo(Or(ContainSubstring("securitycontextconstraints"), ContainSubstring("openshift-monitoring")))
}

func TestGPUPodPolicyEqualsTheComponents(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for _, mode := range []string{"warn", "audit", "deny"} {
		text, err := render(t, set("gpuPodPolicy="+mode)...)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := packaged.Decode(text)
		g.Expect(err).NotTo(HaveOccurred())
		got := byName(objects)
		for _, file := range []string{"base/policy.yaml", mode + "/binding.yaml"} {
			data, err := os.ReadFile(repo + "/config/gpu-pods/" + file)
			g.Expect(err).NotTo(HaveOccurred())
			want, err := packaged.Decode(string(data))
			g.Expect(err).NotTo(HaveOccurred())
			for name, object := range byName(want) {
				g.Expect(got).To(HaveKey(name))
				g.Expect(cmp.Diff(object.Object["spec"], got[name].Object["spec"])).To(BeEmpty(), "%s: %s", mode, name)
			}
		}
	}
	elsewhere, err := render(t, append(set("gpuPodPolicy=warn"), "--namespace", "nvidia-gpu-operator")...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(elsewhere).To(MatchRegexp(`values:\n +- kube-system\n +- "nvidia-gpu-operator"\n`), "it is exempt")
	plain, err := render(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plain).NotTo(ContainSubstring("gpu-operator-gpu-pods"))
	_, err = render(t, set("gpuPodPolicy=forbid")...)
	g.Expect(err).To(MatchError(ContainSubstring("gpuPodPolicy")))
}

// A value leaves out single rules of the policy, and keeps the others as they are.
func TestDisabledRulesOfTheGPUPodPolicy(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	all := gpuPodRules(t, "")
	for rule, message := range map[string]string{
		"toleration": "does not tolerate the taint", "shares": "several shares are", "devices": "sets NVIDIA_VISIBLE_DEVICES",
	} {
		g.Expect(all).To(ContainElement(HaveKeyWithValue("messageExpression", ContainSubstring(message))))
		g.Expect(gpuPodRules(t, rule)).To(And(HaveLen(len(all)-1), HaveEach(BeElementOf(all)),
			Not(ContainElement(HaveKeyWithValue("messageExpression", ContainSubstring(message))))), rule)
	}
	g.Expect(gpuPodRules(t, "shares,devices")).To(HaveLen(1))
	for disabled, message := range map[string]string{
		"typo":                      `there is no rule "typo": the rules are toleration, shares, devices`,
		"shares,devices,toleration": "turns off every rule",
	} {
		_, err := render(t, set("gpuPodPolicy=deny gpuPodPolicyDisabledRules={"+disabled+"}")...)
		g.Expect(err).To(MatchError(ContainSubstring(message)))
	}
}

// gpuPodRules returns the rules of the policy for GPU pods with some turned off.
func gpuPodRules(t *testing.T, disabled string) []any {
	t.Helper()
	g := NewWithT(t)
	text, err := render(t, set("gpuPodPolicy=warn gpuPodPolicyDisabledRules={"+disabled+"}")...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	policy := find(objects, "ValidatingAdmissionPolicy", "gpu-operator-gpu-pods")
	rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "validations")
	g.Expect(err).NotTo(HaveOccurred())
	return rules
}

// Rendering is deterministic.
func TestRenderingIsDeterministic(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	flags := set("driver.version=1 daemonsets.labels.a=b daemonsets.labels.c=d operator.env[0].name=A " +
		"operator.labels.x=y operator.labels.z=w operator.annotations.m=n mps.enabled=true")
	first, err := render(t, flags...)
	g.Expect(err).NotTo(HaveOccurred())
	for range 3 {
		again, err := render(t, flags...)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(first))
	}
}
