package install

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// notInABundle reports whether OLM does not create an object: the namespace, as the Subscription is in an existing
// one (the bundle suggests its name), and kinds that it does not support.
func notInABundle() []string {
	objects := []string{"Namespace/gpu-operator"}
	for _, name := range []string{
		"operator", "node-agents", "gpu-feature-discovery", "mig-manager-pods", "mig-manager-configmaps",
		"operator-validator", "placement", "deletion",
	} {
		name = "gpu-operator-" + name
		objects = append(objects, "ValidatingAdmissionPolicy/"+name, "ValidatingAdmissionPolicyBinding/"+name)
	}
	return objects
}

// TestAllMethodsInstallTheSame compares kustomize, Helm and OLM on OpenShift, which supports all three: the
// permissions of each account, whatever the names of the roles, and every other object field by field.
func TestAllMethodsInstallTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	built, err := config.Build(repo + "/config/manifests")
	g.Expect(err).NotTo(HaveOccurred())
	kustomized := effects(g, built)

	flags := append(set("platform.openshift=true operator.image="+placeholder), "--include-crds", "--no-hooks")
	text, err := render(t, flags...)
	g.Expect(err).NotTo(HaveOccurred())
	rendered, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range rendered {
		object.Object = withoutHelms(g, object)
	}
	helms := effects(g, rendered)
	// config/samples has it, and the bundle as an example.
	delete(helms, "ClusterPolicy/cluster-policy")
	helms["Namespace/gpu-operator"] = kustomized["Namespace/gpu-operator"] // --create-namespace creates it.
	same(g, kustomized, helms, "Helm")

	objects, err := openBundle(g).Objects(namespace)
	g.Expect(err).NotTo(HaveOccurred())
	olms := effects(g, objects)
	// A cluster administrator applies the rest, all but the namespace.
	beside := effects(g, admissionManifest(g))
	g.Expect(beside).To(HaveLen(len(notInABundle()) - 1))
	for name, object := range beside {
		g.Expect(notInABundle()).To(ContainElement(name))
		g.Expect(cmp.Diff(kustomized[name], object)).To(BeEmpty(), "%s in %s", name, bundle)
	}
	for _, name := range notInABundle() {
		g.Expect(kustomized).To(HaveKey(name))
		g.Expect(olms).NotTo(HaveKey(name))
		delete(kustomized, name)
	}
	same(g, kustomized, olms, "OLM")
	t.Logf("%d objects and permissions are equal for three methods, %d are not in the bundle", len(olms),
		len(notInABundle()))
}

// admissionManifest returns the admission policies that are shipped beside the bundle.
func admissionManifest(g *WithT) []*unstructured.Unstructured {
	text, err := os.ReadFile(filepath.Join(bundle, "admission.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(string(text))
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// same compares the result of one method with that of kustomize.
func same(g *WithT, want, got map[string]any, way string) {
	g.Expect(slices.Sorted(maps.Keys(got))).To(Equal(slices.Sorted(maps.Keys(want))), way)
	for name := range want {
		g.Expect(cmp.Diff(want[name], got[name])).To(BeEmpty(), "%s by %s", name, way)
	}
}

// effects returns the permissions of each account, and all objects other than roles and bindings, whose names and
// division do not matter.
func effects(g *WithT, objects []*unstructured.Unstructured) map[string]any {
	found, bound := boundRights(g, objects)
	for _, object := range objects {
		name := object.GetKind() + "/" + object.GetName()
		switch {
		case bound[name], object.GetKind() == "RoleBinding", object.GetKind() == "ClusterRoleBinding":
		case object.GetKind() == "ServiceAccount":
			found[name] = object.GetNamespace()
		case object.GetKind() == "Deployment":
			// OLM's copy has been encoded from the Go type, which includes empty fields.
			deployment := &appsv1.Deployment{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)).To(Succeed())
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment)
			g.Expect(err).NotTo(HaveOccurred())
			found[name] = content
		default:
			found[name] = object.Object
		}
	}
	return found
}

// boundRights returns the permissions of each account by bindings, and the roles that are bound.
func boundRights(g *WithT, objects []*unstructured.Unstructured) (map[string]any, map[string]bool) {
	roles := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			role := rbacv1.ClusterRole{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role)).To(Succeed())
			roles[kind+"/"+role.Name] = role.Rules
		}
	}
	found, bound := map[string]any{}, map[string]bool{}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		binding := rbacv1.RoleBinding{}
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding)).To(Succeed())
		role := binding.RoleRef.Kind + "/" + binding.RoleRef.Name
		g.Expect(roles).To(HaveKey(role))
		bound[role] = true
		for _, subject := range binding.Subjects {
			g.Expect(subject.Namespace).To(BeElementOf(namespace, "openshift-monitoring"))
			name := fmt.Sprintf("permissions of %s/%s by %s", subject.Namespace, subject.Name, object.GetKind())
			before, _ := found[name].([]string)
			found[name] = slices.Sorted(maps.Keys(rights(before, roles[role])))
		}
	}
	return found, bound
}

// rights adds the single permissions of rules to the given ones.
func rights(before []string, rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, right := range before {
		all[right] = true
	}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[fmt.Sprintf("%s/%s %s %s", group, resource, verb, rule.ResourceNames)] = true
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			all[fmt.Sprintf("%s %s", url, rule.Verbs)] = true
		}
	}
	return all
}
