package previews

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// objects returns the objects of an edit, in the order in which they are applied.
func (c *trial) objects(e *edit) []*unstructured.Unstructured {
	policy := object(v1.GroupVersion.String(), v1.ClusterPolicyKind.Kind, policyName)
	policy.Object["spec"] = runtime.DeepCopyJSON(e.spec)
	return append(append([]*unstructured.Unstructured{}, e.drivers...), policy)
}

// file returns the file of an edit.
func (c *trial) file(e *edit) string {
	c.t.Helper()
	all := c.objects(e)
	if c.given {
		for _, one := range c.named {
			all = append(all, inNamespace(one))
		}
	}
	var text strings.Builder
	for _, one := range all {
		document, err := yaml.Marshal(one.Object)
		c.Expect(err).NotTo(HaveOccurred())
		text.WriteString("---\n" + string(document))
	}
	return text.String()
}

// nodesFile writes the nodes as kubectl get nodes -o yaml prints them, and returns the path.
func (c *trial) nodesFile() string {
	c.t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, node := range c.list(schema.GroupVersionKind{Version: "v1", Kind: "Node"}) {
		items = append(items, node.Object)
	}
	list["items"] = items
	text, err := json.Marshal(list)
	c.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(c.dir, "nodes.json")
	c.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	return path
}

// try returns why the API server refuses the objects of an edit; nil if it does not.
func (c *trial) try(e *edit) error {
	c.t.Helper()
	for _, one := range c.objects(e) {
		if err := c.write(one, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

// addNode creates a node with its status.
func (c *trial) addNode(node *corev1.Node) {
	c.t.Helper()
	made := node.DeepCopy()
	c.Expect(c.client.Create(c.t.Context(), made)).To(Succeed())
	c.Eventually(func() error {
		if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(node), made); err != nil {
			return err
		}
		made.Status.NodeInfo = node.Status.NodeInfo
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return c.client.Status().Update(c.t.Context(), made)
	}).Should(Succeed())
}

// runDrivers creates a ready pod of each driver on each node that its DaemonSet selects.
func (c *trial) runDrivers() {
	c.t.Helper()
	for _, one := range c.stack() {
		if one.GetLabels()["nvidia.com/gpu-operator.operand"] != "driver" || one.GetKind() != "DaemonSet" {
			continue
		}
		ds, node := &appsv1.DaemonSet{}, &corev1.Node{}
		c.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, ds)).To(Succeed())
		for _, found := range c.list(schema.GroupVersionKind{Version: "v1", Kind: "Node"}) {
			c.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, node)).To(Succeed())

			if readiness.Selects(ds, node) {
				c.addPod(ds, node.Name)
				c.result.Drivers++
			}
		}
	}
}

// addPod creates a ready pod of a DaemonSet on a node.
func (c *trial) addPod(ds *appsv1.DaemonSet, node string) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.Spec.NodeName = namespace, ds.Name+"-"+node, node
	pod.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
	}
	c.Expect(c.client.Create(c.t.Context(), pod)).To(Succeed())
	pod.Status.Phase = corev1.PodRunning
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		})
	}
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Ready: true, Started: new(true), Image: container.Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	c.Expect(c.client.Status().Update(c.t.Context(), pod)).To(Succeed())
}

// deletePods deletes all pods.
func (w *world) deletePods() {
	w.t.Helper()
	for _, pod := range w.list(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}) {
		w.delete(context.WithoutCancel(w.t.Context()), pod)
	}
}

// clear removes everything of the case, also of one that has failed.
func (c *trial) clear() {
	c.t.Helper()
	c.remove()
	for _, driver := range c.list(v1alpha1.NVIDIADriverKind) {
		c.delete(context.WithoutCancel(c.t.Context()), driver)
	}
	for _, one := range c.named {
		c.delete(context.WithoutCancel(c.t.Context()), inNamespace(one))
	}
}

// remove removes the nodes, as no pod would clean them up, and the policy, with which the operator removes the stack.
func (c *trial) remove() {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	c.deletePods()
	for _, node := range c.list(schema.GroupVersionKind{Version: "v1", Kind: "Node"}) {
		c.delete(ctx, node)
	}
	policy := object(v1.GroupVersion.String(), v1.ClusterPolicyKind.Kind, policyName)
	c.delete(ctx, policy)
	c.Eventually(func() bool {
		return apierrors.IsNotFound(c.client.Get(ctx, client.ObjectKeyFromObject(policy), policy.DeepCopy()))
	}).Should(BeTrue(), "the policy is not removed")
	c.Eventually(c.stack).Should(BeEmpty(), "the stack is not removed")
}
