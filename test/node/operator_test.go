//go:build linux

package node_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	namespace = cluster.OperatorNamespace
	account   = "gpu-operator"
	lease     = "53822513.nvidia.com"
	// operatorProgram is its path in the containers.
	operatorProgram = "/usr/bin/gpu-operator"
	// mostMemory limits the memory of an operator at rest, in bytes.
	mostMemory = 40 << 20
)

// Levels of Pod Security. config/default has the first for the operands.
const (
	privileged = "privileged"
	restricted = "restricted"
)

// deployOperator does what "make deploy" does, into a namespace that enforces this level of Pod Security, and returns
// once both operators are ready.
func (b *env) deployOperator(level string) {
	b.t.Helper()
	// Without an archive the image is there.
	if path := os.Getenv(operatorImageVariable); path != "" {
		archive, err := os.Open(path)
		b.Expect(err).NotTo(HaveOccurred())
		defer archive.Close()
		b.Expect(b.machine.Import(b.t.Context(), archive)).To(Succeed())
	}
	objects, err := cluster.Render(b.overlay())
	b.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() == "Namespace" {
			const enforce = "pod-security.kubernetes.io/enforce"
			b.Expect(unstructured.SetNestedField(object.Object, level, "metadata", "labels", enforce)).
				To(Succeed())
		}
	}
	b.installObjects(objects)
	b.Eventually(func(g Gomega) {
		deployment, err := b.client.AppsV1().Deployments(namespace).Get(b.t.Context(), account, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(deployment.Status.ReadyReplicas).To(Equal(*deployment.Spec.Replicas), "%s", b.describe())
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
	b.t.Cleanup(b.checkOperatorRights)
}

// installObjects creates objects of which the Deployments are in the operator's namespace.
func (b *env) installObjects(objects []*unstructured.Unstructured) {
	b.t.Helper()
	b.Expect(cluster.InstallObjects(b.t.Context(), b.cluster.Config, objects)).To(Succeed())
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		b.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, deployment, true)).
			To(Succeed())
		_, err := b.client.AppsV1().Deployments(namespace).Create(b.t.Context(), deployment, metav1.CreateOptions{})
		b.Expect(err).NotTo(HaveOccurred())
	}
}

// overlay is config/default with the image of the test, as "make deployment" writes it.
func (b *env) overlay() string {
	b.t.Helper()
	dir := b.t.TempDir()
	shipped, err := filepath.Abs(filepath.Join(repository, "config"))
	b.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(filepath.Join(shipped, "manager", "operator_image.yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.WriteFile(filepath.Join(dir, "operator_image.yaml"), content, 0o600)).To(Succeed())
	relative, err := filepath.Rel(dir, filepath.Join(shipped, "default"))
	b.Expect(err).NotTo(HaveOccurred())
	overlay := fmt.Sprintf(
		"resources: [%q]\nimages: [{name: IMAGE-NOT-SET, newName: %s, newTag: %s}]\n"+
			"replacements: [{path: operator_image.yaml}]\n", relative, operatorImage, operatorTag,
	)
	b.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
	return dir
}

// checkOperatorRights checks that the operators had all permissions that they used.
func (b *env) checkOperatorRights() {
	calls, err := b.cluster.Since(0)
	b.Expect(err).NotTo(HaveOccurred())
	own := calls.By(cluster.ServiceAccountUser(namespace, account))
	b.Expect(own).NotTo(BeEmpty())
	b.Expect(own.Forbidden().String()).To(BeEmpty(), "the shipped rights must do")
}

// operators returns the operator's pods.
func (b *env) operators() []corev1.Pod {
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + account})
	b.Expect(err).NotTo(HaveOccurred())
	return pods.Items
}

// leader returns the name of the leading pod; empty if none leads.
func (b *env) leader(g Gomega) string {
	object, err := b.client.CoordinationV1().Leases(namespace).Get(b.t.Context(), lease, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, pod := range b.operators() {
		if holder := object.Spec.HolderIdentity; holder != nil && len(*holder) > len(pod.Name) &&
			(*holder)[:len(pod.Name)+1] == pod.Name+"_" {
			return pod.Name
		}
	}
	return ""
}

// TestTheOperatorRunsInTheCluster runs its image, from config/default, with the API server behind its Service.
func TestTheOperatorRunsInTheCluster(t *testing.T) {
	b := newEnv(t)
	begin := time.Now()
	b.deployOperator(restricted)
	t.Logf("both operators were ready after %s", since(begin))
	t.Run("one leads, and another after it", func(t *testing.T) {
		b := b.in(t)
		var first string
		b.Eventually(func(g Gomega) {
			first = b.leader(g)
			g.Expect(first).NotTo(BeEmpty())
		}, "20s", "50ms").Should(Succeed())
		b.Expect(b.client.CoreV1().Pods(namespace).Delete(t.Context(), first, metav1.DeleteOptions{})).To(Succeed())
		begin := time.Now()
		b.Eventually(func(g Gomega) { g.Expect(b.leader(g)).NotTo(BeElementOf("", first)) }, "20s", "50ms").Should(Succeed())
		t.Logf("the other one led after %s", since(begin))
		b.Eventually(func(g Gomega) {
			g.Expect(b.operators()).To(HaveLen(2))
			g.Expect(b.operators()).To(HaveEach(HaveField("Status.ContainerStatuses", HaveEach(And(
				HaveField("Ready", true), HaveField("RestartCount", int32(0)))))))
		}, "30s", "100ms").Should(Succeed())
	})
	t.Run("it may do nothing on its node", func(t *testing.T) { b.in(t).checkConfinement() })
	t.Run("access to the metrics", func(t *testing.T) { b.in(t).checkMetrics() })
	t.Run("memory", func(t *testing.T) { b.in(t).checkMemory() })
}

// checkConfinement reads from the kernel what the operators' processes may do.
func (b *env) checkConfinement() {
	found := b.machine.Processes(operatorProgram)
	b.Expect(found).To(HaveLen(2))
	for _, pid := range found {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(string(status)).To(And(
			MatchRegexp(`(?m)^Uid:\t65532\t65532\t65532\t65532$`), MatchRegexp(`(?m)^Gid:\t65532\t65532\t65532\t65532$`),
			MatchRegexp(`(?m)^CapEff:\t0+$`), MatchRegexp(`(?m)^CapBnd:\t0+$`),
			MatchRegexp(`(?m)^NoNewPrivs:\t1$`), MatchRegexp(`(?m)^Seccomp:\t2$`)))
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(string(mounts)).To(MatchRegexp(`(?m)^overlay / overlay ro,`))
	}
}

// checkMetrics requests the metrics of an operator without a token, without the permission, and as a reader of metrics.
func (b *env) checkMetrics() {
	ctx := b.t.Context()
	for _, name := range []string{"reader", "unauthorized"} {
		_, err := b.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		b.Expect(err).NotTo(HaveOccurred())
	}
	_, err := b.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gpu-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "reader"}},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	address := "https://" + b.operators()[0].Status.PodIP + ":8080/metrics"
	b.Expect(b.get(address, "")).To(HaveHTTPStatus(http.StatusUnauthorized))
	b.Expect(b.get(address, b.token("unauthorized"))).To(HaveHTTPStatus(http.StatusForbidden))
	b.Expect(b.get(address, b.token("reader"))).To(And(
		HaveHTTPStatus(http.StatusOK), HaveHTTPBody(ContainSubstring("process_resident_memory_bytes"))))
}

func (b *env) token(name string) string {
	request, err := b.client.CoreV1().
		ServiceAccounts(namespace).
		CreateToken(b.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

// get sends a request to a server with a self-signed certificate.
func (b *env) get(url, token string) *http.Response {
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, nil)
	b.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(func() { _, _ = io.Copy(io.Discard, response.Body); response.Body.Close() })
	return response
}

// checkMemory reads the operators' memory from the kubelet.
func (b *env) checkMemory() {
	b.Eventually(func(g Gomega) {
		content, err := b.client.CoreV1().RESTClient().Get().
			AbsPath("/api/v1/nodes/" + machineName + "/proxy/stats/summary").DoRaw(b.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		var summary struct {
			Pods []struct {
				PodRef     struct{ Name, Namespace string }
				Containers []struct {
					Name   string
					Memory struct{ WorkingSetBytes int64 }
				}
			}
		}
		g.Expect(json.Unmarshal(content, &summary)).To(Succeed())
		used := map[string]int64{}
		for _, pod := range summary.Pods {
			if pod.PodRef.Namespace == namespace && len(pod.Containers) == 1 {
				used[pod.PodRef.Name] = pod.Containers[0].Memory.WorkingSetBytes
			}
		}
		g.Expect(used).To(HaveLen(2))
		g.Expect(used).To(HaveEach(And(BeNumerically(">", 0), BeNumerically("<=", mostMemory))))
		for name, bytes := range used {
			b.t.Logf("%s has %d MB", name, bytes>>20)
		}
	}, "60s", "1s").Should(Succeed())
}
