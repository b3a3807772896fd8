package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	driverAccount = "nvidia-driver"
	gfdAccount    = "nvidia-gpu-feature-discovery"
)

// tokenRight is a write permission of an operand's account, and a request that uses it for an object of a node.
type tokenRight struct {
	account, verb, resource string
	// refusal is the message for another node, empty if no policy can refuse it.
	refusal string
	// try makes a dry-run request for an object of the node.
	try func(f *tokenFence, c kubernetes.Interface, node string) error
}

func (r tokenRight) String() string { return r.account + " " + r.verb + " " + r.resource }

// tokenRights returns all of them, each also a line of docs/privileges.md.
func tokenRights() []tokenRight {
	const ofDriver, ofMIG = "the driver may only change the node", "mig-manager may only "
	const ofConfigMap = ofMIG + "write the ConfigMap of the node"
	return []tokenRight{
		{
			account: driverAccount, verb: "patch", resource: "nodes", refusal: ofDriver,
			try: patching(`{"spec":{"unschedulable":true}}`),
		},
		{
			account: gfdAccount, verb: "create", resource: "nfd.k8s-sigs.io/nodefeatures",
			refusal: "may only write the NodeFeature of the node", try: (*tokenFence).createFeature,
		},
		{
			account: gfdAccount, verb: "update", resource: "nfd.k8s-sigs.io/nodefeatures",
			refusal: "may only write the NodeFeature of the node", try: (*tokenFence).updateFeature,
		},
		{
			account: migManagerAccount, verb: "patch", resource: "nodes", refusal: ofMIG + "change the node",
			try: patching(labelled("nvidia.com/mig.config.state", "failed")),
		},
		{
			account: migManagerAccount, verb: "update", resource: "nodes", refusal: ofMIG + "change the node",
			try: (*tokenFence).updateNode,
		},
		{
			account: migManagerAccount, verb: "delete", resource: "pods", refusal: ofMIG + "delete pods of the node",
			try: (*tokenFence).deletePod,
		},
		{
			account: migManagerAccount, verb: "create", resource: "configmaps", refusal: ofConfigMap,
			try: (*tokenFence).createConfigMap,
		},
		{
			account: migManagerAccount, verb: "patch", resource: "configmaps", refusal: ofConfigMap,
			try: (*tokenFence).patchConfigMap,
		},
		{
			account: migManagerAccount, verb: "update", resource: "configmaps", refusal: ofConfigMap,
			try: (*tokenFence).updateConfigMap,
		},
		{
			account: healthAccount, verb: "patch", resource: "nodes", refusal: "the health agent may only change the node",
			try: patching(`{"metadata":{"annotations":{"` + healthAnnotation + `":"{}"}}}`),
		},
		{
			account: discoveryAccount, verb: "patch", resource: "nodes", refusal: "node discovery may only change the node",
			try: patching(labelled("nvidia.com/gpu.count", "1")),
		},
		{
			account: validatorAccount, verb: "create", resource: "pods",
			refusal: "the validator may only create and delete the pod that is named after its own node",
			try:     (*tokenFence).createWorkload,
		},
		{
			account: validatorAccount, verb: "delete", resource: "pods",
			refusal: "the validator may only create and delete the pod that is named after its own node",
			try:     (*tokenFence).deleteWorkload,
		},
	}
}

// tokensEndAtTheirNode: with the shipped permissions, a pod's token only permits writes to objects of its own node; a
// token without a node permits none.
func (e *env) tokensEndAtTheirNode() {
	f := newTokenFence(e)
	for _, right := range tokenRights() {
		e.t.Run(right.String(), func(t *testing.T) { f.in(t).judge(right) })
	}
	e.t.Run("each right is one of these", func(t *testing.T) { e.in(t).allWritesAreKnown() })
	e.t.Run("a pod that runs as root", func(t *testing.T) { f.in(t).scriptsAreOutOfReach() })
	// Other tests list all pods of this type.
	for _, node := range []string{f.own, f.other} {
		e.Expect(e.client.Delete(e.t.Context(), leftover(node, "1"), client.GracePeriodSeconds(0))).To(Succeed())
	}
}

// tokenFence is an env with two nodes, each of which has all objects that operands write.
type tokenFence struct {
	*env
	own, other string
	// bound are clients with the tokens of pods on node own, and pods are these pods, by account.
	bound map[string]kubernetes.Interface
	pods  map[string]*corev1.Pod
}

func (f *tokenFence) in(t *testing.T) *tokenFence {
	view := *f
	view.env = f.env.in(t)
	return &view
}

func newTokenFence(e *env) *tokenFence {
	e.t.Helper()
	f := &tokenFence{env: e, bound: map[string]kubernetes.Interface{}, pods: map[string]*corev1.Pod{}}
	f.own, f.other = e.twoNodes()
	for _, right := range tokenRights() {
		if f.bound[right.account] == nil {
			f.pods[right.account] = e.podFor(right.account, f.own)
			f.bound[right.account], _ = e.podBound(right.account, f.pods[right.account])
		}
	}
	e.create(e.definition(featureGroup, "v1alpha1", "NodeFeature", "nodefeatures"))
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	for _, node := range []string{f.own, f.other} {
		workload := leftover(node, "1")
		workload.Spec.NodeName = node
		e.create(workload)
		e.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: layoutsOf(node)}})
		e.Eventually(func() error { return f.write(admin, nodeFeature(node, node), "POST", "", nil) }).Should(Succeed())
	}
	return f
}

// judge tries the permission on the token's own node, on another, and with a token without a node.
func (f *tokenFence) judge(right tokenRight) {
	bound := f.bound[right.account]
	// An admitted dry run fails if an object of the same name exists.
	f.Expect(right.try(f, bound, f.own)).To(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)), "its own node")
	config, err := f.cluster.ServiceAccountConfig(f.t.Context(), namespace, right.account)
	f.Expect(err).NotTo(HaveOccurred())
	unbound := kubernetes.NewForConfigOrDie(config)
	if right.refusal == "" {
		f.Expect(right.try(f, bound, f.other)).To(Succeed(), "no policy can refuse it: %s", right)
		return
	}
	// The API server enforces a policy some time after it was created.
	f.Eventually(func() error { return right.try(f, bound, f.other) }).WithPolling(100*time.Millisecond).
		Should(forbidden(right.refusal), "another node")
	f.Expect(right.try(f, unbound, f.own)).To(forbidden("token"), "a token without a node")
}

// scriptsAreOutOfReach: the account that may write ConfigMaps cannot write those of the stack or of users.
func (f *tokenFence) scriptsAreOutOfReach() {
	for _, name := range []string{
		"default-gpu-clients", "default-mig-parted-config", "nvidia-driver-startup-probe", f.own, f.own + "-mig-config-more",
	} {
		f.Expect(f.writeConfigMap(f.bound[migManagerAccount], name)).To(forbidden("which is "+layoutsOf(f.own)+", not "+name),
			name)
	}
}

// allWritesAreKnown requires that all write permissions of the shipped roles are tried, and that docs/privileges.md
// has a line for each.
func (e *env) allWritesAreKnown() {
	objects, err := cluster.Render(filepath.Join(repo, "config/rbac/operands"))
	e.Expect(err).NotTo(HaveOccurred())
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if object.GetKind() == "Role" || object.GetKind() == "ClusterRole" {
			var role rbacv1.ClusterRole
			e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role)).To(Succeed())
			rules[object.GetKind()+"/"+role.Name] = role.Rules
		}
	}
	var granted []string
	for _, object := range objects {
		if object.GetKind() != "RoleBinding" && object.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding)).To(Succeed())
		for _, r := range rightsOf(e.t, rbacv1.ClusterRole{Rules: rules[binding.RoleRef.Kind+"/"+binding.RoleRef.Name]}) {
			if !slices.Contains([]string{"get", "list", "watch"}, r.verb) {
				granted = append(granted, binding.Subjects[0].Name+" "+r.verb+" "+strings.Trim(r.group+"/"+r.resource, "/"))
			}
		}
	}
	document, err := os.ReadFile(filepath.Join(repo, "docs/privileges.md"))
	e.Expect(err).NotTo(HaveOccurred())
	var tried []string
	for _, right := range tokenRights() {
		tried = append(tried, right.String())
		line := fmt.Sprintf("\n| `%s` | `%s %s` |", right.account, right.verb, right.resource)
		e.Expect(strings.Count(string(document), line)).To(Equal(1), "lines of docs/privileges.md that begin with %q", line)
	}
	e.Expect(granted).To(ConsistOf(tried))
}

var dry = []string{metav1.DryRunAll}

func patching(body string) func(*tokenFence, kubernetes.Interface, string) error {
	return func(f *tokenFence, c kubernetes.Interface, node string) error {
		return dryRun(f.t, c, node, nodeChange{patch: body})
	}
}

func (f *tokenFence) updateNode(c kubernetes.Interface, node string) error {
	object, err := c.CoreV1().Nodes().Get(f.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.ResourceVersion = ""
	object.Labels["nvidia.com/mig.config.state"] = "failed"
	_, err = c.CoreV1().Nodes().Update(f.t.Context(), object, metav1.UpdateOptions{DryRun: dry})
	return err
}

func (f *tokenFence) deletePod(c kubernetes.Interface, node string) error {
	return f.deleteWorkload(c, node)
}

func (f *tokenFence) deleteWorkload(c kubernetes.Interface, node string) error {
	return c.CoreV1().Pods(namespace).Delete(f.t.Context(), testPodName(node), metav1.DeleteOptions{DryRun: dry})
}

// createWorkload creates the pod that the validator creates on its node, with the given node in its name and its
// affinity.
func (f *tokenFence) createWorkload(c kubernetes.Interface, node string) error {
	pod, owner := leftover(node, "1"), f.pods[validatorAccount]
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID}}
	pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken = validatorAccount, new(false)
	pod.Spec.PriorityClassName = "gpu-operator-validation"
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
	_, err := c.CoreV1().Pods(namespace).Create(f.t.Context(), pod, metav1.CreateOptions{DryRun: dry})
	return err
}

// layoutsOf returns the name of mig-manager's ConfigMap with the layouts of a node.
func layoutsOf(node string) string { return node + "-mig-config" }

func (f *tokenFence) createConfigMap(c kubernetes.Interface, node string) error {
	return f.writeConfigMap(c, layoutsOf(node))
}

func (f *tokenFence) writeConfigMap(c kubernetes.Interface, name string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"config.yaml": "{}"}}
	_, err := c.CoreV1().ConfigMaps(namespace).Create(f.t.Context(), object, metav1.CreateOptions{DryRun: dry})
	return err
}

func (f *tokenFence) patchConfigMap(c kubernetes.Interface, node string) error {
	_, err := c.CoreV1().ConfigMaps(namespace).Patch(f.t.Context(), layoutsOf(node), types.MergePatchType,
		[]byte(`{"data":{"config.yaml":"{}"}}`), metav1.PatchOptions{DryRun: dry})
	return err
}

func (f *tokenFence) updateConfigMap(c kubernetes.Interface, node string) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: layoutsOf(node)}, Data: map[string]string{"config.yaml": "{}"},
	}
	_, err := c.CoreV1().ConfigMaps(namespace).Update(f.t.Context(), object, metav1.UpdateOptions{DryRun: dry})
	return err
}

const featureGroup = "nfd.k8s-sigs.io"

// nodeFeature returns an object of this name, by which Node Feature Discovery labels the node.
func nodeFeature(name, node string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": featureGroup + "/v1alpha1", "kind": "NodeFeature", "metadata": map[string]any{
			"name": "nvidia-features-for-" + name, "namespace": namespace, "labels": map[string]any{
				"nfd.node.kubernetes.io/node-name": node,
			},
		},
	}}
}

func (f *tokenFence) createFeature(c kubernetes.Interface, node string) error {
	return f.write(c, nodeFeature("another-"+f.own, node), "POST", "", dry)
}

// updateFeature labels the node's object as that of the token's node.
func (f *tokenFence) updateFeature(c kubernetes.Interface, node string) error {
	object := nodeFeature(node, f.own)
	have := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind()},
	}
	if err := f.client.Get(
		f.t.Context(), types.NamespacedName{Namespace: namespace, Name: object.GetName()}, have,
	); err != nil {
		return err
	}
	object.SetResourceVersion(have.GetResourceVersion())
	return f.write(c, object, "PUT", object.GetName(), dry)
}

func (f *tokenFence) write(
	c kubernetes.Interface, object *unstructured.Unstructured, verb, name string, dryRun []string,
) error {
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	call := c.Discovery().RESTClient().Verb(verb).
		AbsPath("/apis", object.GetAPIVersion(), "namespaces", namespace, "nodefeatures", name).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	for _, value := range dryRun {
		call = call.Param("dryRun", value)
	}
	if err := call.Do(f.t.Context()).Error(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, object.GetName(), err)
	}
	return nil
}
