package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// played is an API server that lists the objects of a cluster.
type played struct {
	mu     sync.Mutex
	nodes  corev1.NodeList
	pods   corev1.PodList
	policy v1.ClusterPolicy
	// fails: each request is refused.
	fails atomic.Bool
	// kubeconfig is a file with the server as context production.
	kubeconfig string
}

// model is one of the nodes' GPUs.
type model struct{ product, driver string }

var models = []model{
	{"NVIDIA-H100-80GB-HBM3", "595.71.05"}, {"NVIDIA-H100-80GB-HBM3", "595.71.05"}, {"NVIDIA-H200", "595.71.05"},
	{"NVIDIA-A100-SXM4-80GB", "580.95.05"}, {"NVIDIA-L40S", "595.71.05"},
}

// fault is why a node is not ready.
type fault struct {
	stage           v1.Stage
	operand, reason string
	message         string
}

var faults = []fault{
	{v1.StageDriver, "driver", v1.ReasonCrashLoopBackOff, "container nvidia-driver-ctr: CrashLoopBackOff, exit code 1: " +
		"the kernel headers of 6.8.0-60-generic are not found"},
	{v1.StageAllocatable, "device-plugin", v1.ReasonNotAllocatable, "the node offers 7 of 8 GPUs"},
	{v1.StageDriver, "driver", v1.ReasonImagePullBackOff, "image nvcr.io/nvidia/driver:595.71.05-ubuntu24.04: " +
		"ImagePullBackOff: toomanyrequests"},
}

// newCluster plays a cluster with this many nodes of 8 GPUs. Each unready-th node is not ready.
func newCluster(t *testing.T, count, unready int) *played {
	t.Helper()
	p := &played{
		nodes: corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}},
		pods:  corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}},
		policy: v1.ClusterPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.ClusterPolicyKind.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy", UID: "policy", Generation: 1},
		},
	}
	status := &p.policy.Status
	failed := 0
	for i := range count {
		node := readyNode(i)
		switch {
		case i%unready == 1:
			f := faults[failed%len(faults)]
			failed++
			breakNode(&node, f)
			status.Nodes = append(status.Nodes, v1.NodeStatus{Name: node.Name, Stage: f.stage, Operand: f.operand})
		case i%7 == 3:
			p.pods.Items = append(p.pods.Items, podOn(node.Name, i))
		}
		p.nodes.Items = append(p.nodes.Items, node)
	}
	status.Conditions = []metav1.Condition{{
		Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonOperandFailed, ObservedGeneration: 1,
		Message: fmt.Sprintf("%d of %d GPU nodes have failed: gpu-00001 (Driver: CrashLoopBackOff)", failed, count),
	}}
	status.Upgrade = &v1.UpgradeStatus{
		Target: "595.71.05", Pending: 3, InProgress: 2, Done: int32(count - 5), RemainingSeconds: 1500, //nolint:gosec // Few.
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	NewWithT(t).Expect(os.WriteFile(p.kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config,
		clusters: [{name: s, cluster: {server: %q}}], users: [{name: u, user: {token: t}}], current-context: production,
		contexts: [{name: production, context: {cluster: s, user: u}}]}`, server.URL), 0o600)).To(Succeed())
	return p
}

// add adds a node to the cluster.
func (p *played) add(node corev1.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes.Items = append(p.nodes.Items, node)
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lists := map[string]any{
		"/api/v1/nodes": p.nodes, "/api/v1/pods": p.pods,
		"/apis/nvidia.com/v1/clusterpolicies": map[string]any{
			"apiVersion": p.policy.APIVersion, "kind": p.policy.Kind + "List", "metadata": map[string]any{},
			"items": []any{p.policy},
		},
	}
	answer := lists[r.URL.Path]
	w.Header().Set("Content-Type", "application/json")
	if answer == nil || p.fails.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Message: "etcd <is> gone", Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable,
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// readyNode returns a node that is ready.
func readyNode(i int) corev1.Node {
	name, m := fmt.Sprintf("gpu-%05d", i), models[i%len(models)]
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{
				labels.GPUPresent: labels.True, labels.GPUProduct: m.product, labels.DriverVersion: m.driver,
			},
		},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")},
			Capacity:    corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")},
			Conditions:  []corev1.NodeCondition{condition(corev1.ConditionTrue, v1.ReasonGPUReady, "")},
		},
	}
}

// breakNode makes a node not ready, and some also unhealthy and cordoned.
func breakNode(node *corev1.Node, f fault) {
	node.Status.Conditions = []corev1.NodeCondition{condition(corev1.ConditionFalse, f.reason, f.message)}
	if f.stage == v1.StageDriver {
		delete(node.Labels, labels.DriverVersion)
		node.Status.Allocatable = nil
		return
	}
	node.Spec.Unschedulable = true
	unhealthy := condition(corev1.ConditionFalse, "GPULost", "GPU 3 has fallen off the bus (Xid 79)")
	unhealthy.Type = labels.ConditionGPUHealthy
	node.Status.Allocatable[labels.ResourceGPU] = resource.MustParse("7")
	node.Status.Conditions = append(node.Status.Conditions, unhealthy)
}

func condition(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: labels.ConditionGPUReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
	}
}

// podOn returns a pod that has 4 GPUs of a node.
func podOn(node string, i int) corev1.Pod {
	name := fmt.Sprintf("training-%d", i)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{labels.ResourceGPU: resource.MustParse("4")},
				Requests: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("4")},
			},
		}}},
	}
}
