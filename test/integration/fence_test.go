package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const discoveryAccount = "nvidia-node-discovery"

// TestAdmissionPolicies: the installed admission policies limit each account that writes nodes or pods to its own
// objects and fields, on the newest and the oldest supported Kubernetes.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	gpuNode, _, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range cluster.Releases() {
		t.Run(version, func(t *testing.T) {
			if version == cluster.Oldest {
				cluster.SkipInSample(t)
			}
			t.Parallel()
			e := newEnv(t, envOptions{version: version, timing: simulator.DefaultTiming().Scale(0.2)})
			t.Run("type check", func(t *testing.T) { e.in(t).typeChecked() })
			t.Run("what RBAC refuses", func(t *testing.T) { e.in(t).rightsEnd() })
			t.Run("tokens", func(t *testing.T) { e.in(t).tokensEndAtTheirNode() })
			t.Run("discovery", func(t *testing.T) { e.in(t).discoveryIsLimited() })
			t.Run("writers of nodes", func(t *testing.T) { e.in(t).nodeWritersAreLimited() })
			t.Run("validator", func(t *testing.T) { e.in(t).validatorIsLimited(gpuNode) })
		})
	}
}

// rightsEnd: no role permits what the policies do not cover, some of which kubelets and the scheduler write
// constantly.
func (e *env) rightsEnd() {
	for _, right := range []struct{ account, verb, resource, subresource string }{
		{discoveryAccount, "patch", "nodes", "status"},
		{discoveryAccount, "update", "nodes", "status"},
		{healthAccount, "patch", "nodes", "status"},
		{healthAccount, "update", "nodes", ""},
		{migManagerAccount, "patch", "nodes", "status"},
		{migManagerAccount, "update", "nodes", "status"},
		{migManagerAccount, "deletecollection", "pods", ""},
		{migManagerAccount, "create", "pods", "eviction"},
		{migManagerAccount, "delete", "configmaps", ""},
		{driverAccount, "patch", "nodes", "status"},
		{driverAccount, "update", "nodes", ""},
		{driverAccount, "delete", "pods", ""},
		{driverAccount, "create", "pods", "eviction"},
		{driverAccount, "patch", "configmaps", ""},
		{validatorAccount, "patch", "pods", "status"},
		{validatorAccount, "update", "pods", "status"},
		{validatorAccount, "create", "pods", "binding"},
	} {
		e.t.Run(right.account+" "+right.verb+" "+right.resource+"/"+right.subresource, func(t *testing.T) {
			e.in(t).Expect(e.may(right.account, right.verb, right.resource, right.subresource)).To(BeFalse())
		})
	}
	e.Expect(e.may(validatorAccount, "create", "pods", "")).To(BeTrue(), "the accounts are those of the roles")
	e.Expect(e.may(migManagerAccount, "patch", "nodes", "")).To(BeTrue(), "the accounts are those of the roles")
	e.Expect(e.may(discoveryAccount, "patch", "nodes", "")).To(BeTrue(), "the accounts are those of the roles")
}

// may reports whether RBAC allows an account of the operator's namespace to do this.
func (e *env) may(account, verb, resource, subresource string) bool {
	e.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Resource: resource, Subresource: subresource,
		},
	}}
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(e.t.Context(), review, metav1.CreateOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	return answer.Status.Allowed
}

// twoNodes adds two nodes.
func (e *env) twoNodes() (own, other string) {
	e.t.Helper()
	added, err := e.sim.AddNodes(e.t.Context(), 2)
	e.Expect(err).NotTo(HaveOccurred())
	return added[0], added[1]
}

// discoveryIsLimited: node discovery may only patch the discovery labels of the node that its pod runs on.
func (e *env) discoveryIsLimited() {
	t := e.t
	own, other := e.twoNodes()
	bound := e.boundTo(own)
	e.policyInForce(bound, other)

	allowed := map[string]any{
		"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/kernel-version.full": nil,
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.compute.major": "9",
		"nvidia.com/cuda.driver-version.full": "595.91.07", "nvidia.com/mig.capable": "true",
		"nvidia.com/mig-1g.10gb.count": "7",
		"nvidia.com/mps.capable":       "false", "nvidia.com/vgpu.present": "false", "nvidia.com/gfd.timestamp": "1",
	}
	for key, value := range allowed {
		t.Run("allowed: "+key, func(t *testing.T) {
			e.in(t).Expect(patchNode(t, bound, own, "labels", key, value)).To(Succeed())
		})
	}
	t.Run("allowed: its own labels", func(t *testing.T) {
		e.in(t).Expect(patchNode(t, bound, own, "annotations", "nvidia.com/gpu-operator.discovered-labels",
			"a,b")).To(Succeed())
	})
	foreign := []string{
		"nvidia.com/gpu.present", "nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.operands",
		"nvidia.com/gpu-operator.pool",
		"nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/vgpu.config", "nvidia.com/gpu.workload.config",
		"nvidia.com/device-plugin.config", "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/cc.mode",
		"node-role.kubernetes.io/control-plane", "kubernetes.io/os", "team",
	}
	for _, key := range foreign {
		t.Run("refused: "+key, func(t *testing.T) {
			e.in(t).Expect(patchNode(t, bound, own, "labels", key,
				"true")).To(forbidden("node discovery may not change the labels " + key))
		})
	}
	t.Run("refused: removing a label of another writer", func(t *testing.T) {
		e.in(t).Expect(patchNode(t, bound, own, "labels", "topology.kubernetes.io/zone",
			nil)).To(forbidden("may not change the labels topology.kubernetes.io/zone"))
	})
	t.Run("refused: another annotation", func(t *testing.T) {
		e.in(t).Expect(patchNode(t, bound, own, "annotations", "team",
			"x")).To(forbidden("may not change the annotations team"))
	})
	t.Run("refused: finalizers", func(t *testing.T) {
		e.in(t).Expect(patch(t, bound, own,
			`{"metadata":{"finalizers":["example.com/x"]}}`)).To(forbidden("node discovery may not change finalizers or owners"))
	})
	t.Run("refused: taints", func(t *testing.T) {
		e.in(t).Expect(patch(t, bound, own,
			`{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`)).To(forbidden("may not change spec.taints"))
	})
	t.Run("refused: cordon", func(t *testing.T) {
		e.in(t).Expect(patch(t, bound, own,
			`{"spec":{"unschedulable":true}}`)).To(forbidden("may not change spec.unschedulable"))
	})
	t.Run("refused: another node", func(t *testing.T) {
		e.in(t).Expect(patchNode(t, bound, other, "labels", "nvidia.com/gpu.count", "1")).To(
			forbidden("node discovery may only change the node that its pod runs on, which is " + own + ", not " + other))
	})
	t.Run("refused: a token without a node", func(t *testing.T) {
		unbound, err := e.cluster.ServiceAccountConfig(t.Context(), namespace, discoveryAccount)
		e.in(t).Expect(err).NotTo(HaveOccurred())
		e.in(t).Expect(patchNode(t, kubernetes.NewForConfigOrDie(unbound), own, "labels", "nvidia.com/gpu.count", "1")).To(
			forbidden("which is not named in its token"))
	})
	t.Run("other accounts are not limited", func(t *testing.T) {
		admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
		e.in(t).Expect(patchNode(t, admin, other, "labels", "team", "ml")).To(Succeed())
	})
}

// boundTo returns a client with the token of a node discovery pod on this node, as issued to the kubelet.
func (e *env) boundTo(node string) kubernetes.Interface {
	e.t.Helper()
	client, _ := e.podBound(discoveryAccount, e.podFor(discoveryAccount, node))
	return client
}

// podFor creates a pod with this service account on this node.
func (e *env) podFor(account, node string) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-on-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/x:1"}},
		},
	}
	e.create(pod)
	return pod
}

// podBound returns the token of the account that is bound to the pod, as issued to the kubelet, and a client with it.
func (e *env) podBound(account string, pod *corev1.Pod) (kubernetes.Interface, string) {
	e.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(e.t.Context(), account, request,
		metav1.CreateOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	cfg := rest.CopyConfig(e.cluster.Config)
	cfg.BearerToken = token.Status.Token
	return kubernetes.NewForConfigOrDie(cfg), token.Status.Token
}

// policyInForce returns once the API server enforces the admission policies, which is some time after they are
// created.
func (e *env) policyInForce(bound kubernetes.Interface, other string) {
	e.t.Helper()
	e.Eventually(func() error {
		return patchNode(e.t, bound, other, "labels", "nvidia.com/gpu.count", fmt.Sprint(time.Now().UnixNano()))
	}).WithPolling(100 * time.Millisecond).Should(forbidden(""))
}

func patchNode(t *testing.T, c kubernetes.Interface, node, field, key string, value any) error {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}})
	if err != nil {
		return err
	}
	return patch(t, c, node, string(body))
}

func patch(t *testing.T, c kubernetes.Interface, node, body string) error {
	t.Helper()
	_, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// forbidden matches a refusal with reason Forbidden and this message.
func forbidden(message string) OmegaMatcher {
	return And(
		Satisfy(apierrors.IsForbidden),
		MatchError(ContainSubstring(message)),
	)
}
