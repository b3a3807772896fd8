package install

import (
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keptByOLM are the objects that remain when OLM has removed the operator: docs/install.md deletes them.
var keptByOLM = []string{
	"CustomResourceDefinition/clusterpolicies.nvidia.com", "CustomResourceDefinition/nvidiadrivers.nvidia.com",
	"PriorityClass/gpu-operator-validation", "ClusterRole/gpu-operator-metrics-reader",
	"ClusterRole/gpu-operator-viewer",
}

// onlyDefinitions matches the objects that Helm keeps.
func onlyDefinitions() types.GomegaMatcher {
	return ConsistOf("CustomResourceDefinition/clusterpolicies.nvidia.com",
		"CustomResourceDefinition/nvidiadrivers.nvidia.com")
}

// removeAsDocumented removes the policy, then what OLM deletes with the ClusterServiceVersion, then what OLM keeps, and
// checks that nothing remains in the cluster.
func (e *env) removeAsDocumented(in string, objects []*unstructured.Unstructured) {
	e.t.Helper()
	e.Expect(e.client.Delete(e.t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() []string { return e.daemonSets(in) }).WithTimeout(time.Minute).Should(BeEmpty())
	e.Eventually(e.markedNodes).WithTimeout(time.Minute).Should(BeEmpty())
	e.Eventually(e.policy).WithTimeout(time.Minute).Should(BeNil(), "the operator removes its finalizer last")
	e.stop()
	kept := admissionManifest(e.WithT)
	for _, object := range objects {
		if slices.Contains(keptByOLM, object.GetKind()+"/"+object.GetName()) {
			kept = append(kept, object)
			continue
		}
		e.Expect(client.IgnoreNotFound(e.client.Delete(e.t.Context(), object))).To(Succeed())
	}
	e.Expect(kept).To(HaveLen(len(notInABundle()) - 1 + len(keptByOLM)))
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).Should(HaveLen(len(kept)), "what OLM keeps")
	for _, object := range kept {
		e.Expect(e.client.Delete(e.t.Context(), object)).To(Succeed())
	}
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).Should(BeEmpty())
	e.kubectl("delete", "namespace", in)
}

// markedNodes returns the labels, annotations, taints and conditions of the operator on nodes.
func (e *env) markedNodes() (found []string, err error) {
	nodes := &corev1.NodeList{}
	err = e.client.List(e.t.Context(), nodes)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		for key := range maps.Keys(node.Labels) {
			found = append(found, node.Name+" label "+key)
		}
		for key := range maps.Keys(node.Annotations) {
			found = append(found, node.Name+" annotation "+key)
		}
		for _, condition := range node.Status.Conditions {
			found = append(found, node.Name+" condition "+string(condition.Type))
		}
	}
	return slices.DeleteFunc(found, func(what string) bool {
		return !strings.Contains(what, "nvidia.com/") && !strings.Contains(what, "clusterpolicy.github.io/")
	}), err
}

// ownObjects returns the objects of an installation and of the stack in the whole cluster, of all kinds that these
// have.
func (e *env) ownObjects() ([]string, error) {
	var found []string
	for kind, version := range map[string]string{
		"CustomResourceDefinition": "apiextensions.k8s.io/v1", "ClusterRole": "rbac.authorization.k8s.io/v1",
		"ClusterRoleBinding": "rbac.authorization.k8s.io/v1", "Role": "rbac.authorization.k8s.io/v1",
		"RoleBinding": "rbac.authorization.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1",
		"ValidatingAdmissionPolicy":        "admissionregistration.k8s.io/v1",
		"ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1", "RuntimeClass": "node.k8s.io/v1",
		"Service": "v1", "ConfigMap": "v1", "ServiceAccount": "v1", "Pod": "v1", "DaemonSet": "apps/v1",
		"NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1",
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		if err := e.client.List(e.t.Context(), list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if name := list.Items[i].GetName(); strings.Contains(name, "nvidia") || strings.Contains(name, "gpu-operator") {
				found = append(found, kind+"/"+name)
			}
		}
	}
	return found, nil
}
