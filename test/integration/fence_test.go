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

// TestTheAPIServerFences: what each account that writes nodes or pods may do ends at what is its own, on the newest and
// the oldest Kubernetes that is supported. The API server judges, by the admission policies that are installed.
func TestTheAPIServerFences(t *testing.T) {
	t.Parallel()
	gpuNode, _, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{cluster.Newest, cluster.Oldest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, bedOptions{version: version, timing: simulator.DefaultTiming().Scale(0.2)})
			t.Run("type check", func(t *testing.T) { b.in(t).typeChecked() })
			t.Run("what RBAC refuses", func(t *testing.T) { b.in(t).rightsEnd() })
			t.Run("tokens", func(t *testing.T) { b.in(t).tokensEndAtTheirNode() })
			t.Run("discovery", func(t *testing.T) { b.in(t).discoveryIsFenced() })
			t.Run("writers of nodes", func(t *testing.T) { b.in(t).writersOfNodesAreFenced() })
			t.Run("validator", func(t *testing.T) { b.in(t).validatorIsFenced(gpuNode) })
		})
	}
}

// rightsEnd: no role gives what the policies leave out, some of which kubelets and the scheduler write all the time.
func (b *bed) rightsEnd() {
	for _, right := range []struct{ account, verb, resource, subresource string }{
		{discoveryAccount, "patch", "nodes", "status"},
		{discoveryAccount, "update", "nodes", "status"},
		{migManagerAccount, "patch", "nodes", "status"},
		{migManagerAccount, "update", "nodes", "status"},
		{migManagerAccount, "deletecollection", "pods", ""},
		{migManagerAccount, "create", "pods", "eviction"},
		{migManagerAccount, "delete", "configmaps", ""},
		{driverAccount, "patch", "nodes", "status"},
		{driverAccount, "update", "nodes", ""},
		{driverAccount, "delete", "pods", ""},
		{driverAccount, "patch", "configmaps", ""},
		{validatorAccount, "patch", "pods", "status"},
		{validatorAccount, "update", "pods", "status"},
		{validatorAccount, "create", "pods", "binding"},
	} {
		b.t.Run(right.account+" "+right.verb+" "+right.resource+"/"+right.subresource, func(t *testing.T) {
			b.in(t).Expect(b.may(right.account, right.verb, right.resource, right.subresource)).To(BeFalse())
		})
	}
	b.Expect(b.may(validatorAccount, "create", "pods", "")).To(BeTrue(), "the accounts are those of the roles")
	b.Expect(b.may(migManagerAccount, "patch", "nodes", "")).To(BeTrue(), "the accounts are those of the roles")
	b.Expect(b.may(discoveryAccount, "patch", "nodes", "")).To(BeTrue(), "the accounts are those of the roles")
}

// may reports whether RBAC allows an account of the operator's namespace to do this.
func (b *bed) may(account, verb, resource, subresource string) bool {
	b.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Resource: resource, Subresource: subresource,
		},
	}}
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
	answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(b.t.Context(), review, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	return answer.Status.Allowed
}

// twoNodes adds two nodes.
func (b *bed) twoNodes() (own, other string) {
	b.t.Helper()
	added, err := b.sim.AddNodes(b.t.Context(), 2)
	b.Expect(err).NotTo(HaveOccurred())
	return added[0], added[1]
}

// discoveryIsFenced: the right of node discovery to patch nodes ends at the discovery labels of the
// node that its pod runs on.
func (b *bed) discoveryIsFenced() {
	t := b.t
	own, other := b.twoNodes()
	bound := b.boundTo(own)
	b.policyInForce(bound, other)

	allowed := map[string]any{
		"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/kernel-version.full": nil,
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.compute.major": "9",
		"nvidia.com/cuda.driver-version.full": "595.91.07", "nvidia.com/mig.capable": "true", "nvidia.com/mig-1g.10gb.count": "7",
		"nvidia.com/mps.capable": "false", "nvidia.com/vgpu.present": "false", "nvidia.com/gfd.timestamp": "1",
	}
	for key, value := range allowed {
		t.Run("allowed: "+key, func(t *testing.T) {
			b.in(t).Expect(patchNode(t, bound, own, "labels", key, value)).To(Succeed())
		})
	}
	t.Run("allowed: what it owns", func(t *testing.T) {
		b.in(t).Expect(patchNode(t, bound, own, "annotations", "nvidia.com/gpu-operator.discovered-labels", "a,b")).To(Succeed())
	})
	foreign := []string{
		"nvidia.com/gpu.present", "nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.operands", "nvidia.com/gpu-operator.pool",
		"nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/vgpu.config", "nvidia.com/gpu.workload.config",
		"nvidia.com/device-plugin.config", "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/cc.mode",
		"node-role.kubernetes.io/control-plane", "kubernetes.io/os", "team",
	}
	for _, key := range foreign {
		t.Run("refused: "+key, func(t *testing.T) {
			b.in(t).Expect(patchNode(t, bound, own, "labels", key, "true")).To(forbidden("node discovery may not change the labels " + key))
		})
	}
	t.Run("refused: to take away what others wrote", func(t *testing.T) {
		b.in(t).Expect(patchNode(t, bound, own, "labels", "topology.kubernetes.io/zone", nil)).To(forbidden("may not change the labels topology.kubernetes.io/zone"))
	})
	t.Run("refused: another annotation", func(t *testing.T) {
		b.in(t).Expect(patchNode(t, bound, own, "annotations", "team", "x")).To(forbidden("may not change the annotations team"))
	})
	t.Run("refused: finalizers", func(t *testing.T) {
		b.in(t).Expect(patch(t, bound, own, `{"metadata":{"finalizers":["example.com/x"]}}`)).To(forbidden("may change only the labels of a node"))
	})
	t.Run("refused: taints", func(t *testing.T) {
		b.in(t).Expect(patch(t, bound, own, `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`)).To(forbidden("may change only the labels of a node"))
	})
	t.Run("refused: cordon", func(t *testing.T) {
		b.in(t).Expect(patch(t, bound, own, `{"spec":{"unschedulable":true}}`)).To(forbidden("may change only the labels of a node"))
	})
	t.Run("refused: another node", func(t *testing.T) {
		b.in(t).Expect(patchNode(t, bound, other, "labels", "nvidia.com/gpu.count", "1")).To(
			forbidden("node discovery may only label the node that its pod runs on, which is " + own + ", not " + other))
	})
	t.Run("refused: a token that names no node", func(t *testing.T) {
		unbound, err := b.cluster.ServiceAccountConfig(t.Context(), namespace, discoveryAccount)
		b.in(t).Expect(err).NotTo(HaveOccurred())
		b.in(t).Expect(patchNode(t, kubernetes.NewForConfigOrDie(unbound), own, "labels", "nvidia.com/gpu.count", "1")).To(
			forbidden("which is not named in its token"))
	})
	t.Run("others are not fenced", func(t *testing.T) {
		admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
		b.in(t).Expect(patchNode(t, admin, other, "labels", "team", "ml")).To(Succeed())
	})
}

// boundTo is a client with the token of a pod of node discovery on this node, as the kubelet hands it
// out.
func (b *bed) boundTo(node string) kubernetes.Interface {
	b.t.Helper()
	client, _ := b.podBound(discoveryAccount, b.podFor(discoveryAccount, node))
	return client
}

// podFor creates a pod with this service account on this node.
func (b *bed) podFor(account, node string) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-on-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/x:1"}},
		},
	}
	b.create(pod)
	return pod
}

// podBound returns the token of the account that is bound to the pod, as the kubelet hands it out, and a
// client with it.
func (b *bed) podBound(account string, pod *corev1.Pod) (kubernetes.Interface, string) {
	b.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(b.t.Context(), account, request, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	cfg := rest.CopyConfig(b.cluster.Config)
	cfg.BearerToken = token.Status.Token
	return kubernetes.NewForConfigOrDie(cfg), token.Status.Token
}

// policyInForce returns once the API server enforces the admission policies: it takes them up some
// time after they are created.
func (b *bed) policyInForce(bound kubernetes.Interface, other string) {
	b.t.Helper()
	b.Eventually(func() error {
		return patchNode(b.t, bound, other, "labels", "nvidia.com/gpu.count", fmt.Sprint(time.Now().UnixNano()))
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
