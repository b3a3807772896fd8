package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// offering is a node with these devices, of which it has had two GPUs.
func offering(name, devices string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: %s,
		capacity: {nvidia.com/gpu: "2", nvidia.com/mig-1g.10gb: "1"}}}`, name, devices)
}

// testable are nodes with a GPU and a MIG device and their pods of the validator. All GPUs of mixed are taken.
func testable() [][]byte {
	return [][]byte{
		operandPods()[0],
		offering("a", `{nvidia.com/gpu: "2", nvidia.com/mig-1g.10gb: "1"}`), offering("b", `{nvidia.com/gpu: "1"}`),
		offering("none", `{nvidia.com/gpu: "0"}`), offering("mixed", `{nvidia.com/gpu: "1", nvidia.com/mig-1g.10gb: "2"}`),
		validatorPod("mixed"), []byte(`{apiVersion: v1, kind: Pod, metadata: {name: training, namespace: team, uid: t},
			spec: {nodeName: mixed, containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"},
			requests: {nvidia.com/gpu: "1"}}}]}}`),
		validatorPod("a"),
	}
}

func validatorPod(node string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Pod, metadata: {name: validator-%[1]s, namespace: gpus, labels: {
		app.kubernetes.io/managed-by: gpu-operator, nvidia.com/gpu-operator.operand: operator-validator}},
		spec: {nodeName: %[1]s, runtimeClassName: nvidia, serviceAccountName: validates, imagePullSecrets: [{name: s}],
		containers: [{name: main, image: "example.com/operator:1", imagePullPolicy: Always}]}}`, node)
}

// kubelet creates the test pod with a status, and deletes it.
type kubelet struct {
	*apiServer
	status string
	// created is what was requested; nil for none.
	created *corev1.Pod
	// deleted is how often it was deleted. refusesDeletion: it is forbidden. gone: others have deleted it.
	deleted               int
	refusesDeletion, gone bool
	// asked is called for each look at the pod.
	looked func()
}

func newKubelet(t *testing.T, status string) *kubelet {
	t.Helper()
	k := &kubelet{apiServer: newAPIServer(t, testable()...), status: status, looked: func() {}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	k.url = server.URL
	k.logs = map[string]string{"kubectl-gpu-test-x?container=kubectl-gpu-test&tailLines=20": "GPU-1: correct\n"}
	return k
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		object, _, _ := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		k.created, _ = object.(*corev1.Pod)
		pod := k.created.DeepCopy()
		pod.Name, pod.UID, pod.Spec.NodeName = pod.GenerateName+"x", "u", "a"
		_ = yaml.Unmarshal([]byte(k.status), &pod.Status)
		fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		one := unstructured.Unstructured{Object: fields}
		one.SetAPIVersion("v1")
		one.SetKind("Pod")
		if !k.gone {
			k.objects = append(k.objects, one)
		}
		writeAnswer(w, one.Object, http.StatusCreated)
	case r.Method == http.MethodDelete && !k.refusesDeletion:
		if text, _ := io.ReadAll(r.Body); strings.Contains(string(text), "u") {
			k.deleted++
		}
		writeAnswer(w, map[string]string{"kind": "Status", "apiVersion": "v1"}, http.StatusOK)
	case r.Method == http.MethodDelete:
		answer, code := refusal("Forbidden", http.StatusForbidden)
		writeAnswer(w, answer, code)
	default:
		if strings.HasSuffix(r.URL.Path, "/kubectl-gpu-test-x") {
			k.looked()
		}
		k.apiServer.ServeHTTP(w, r)
	}
}

// terminated is the status of a pod whose container has ended.
const terminated = `{phase: Failed, containerStatuses: [{name: kubectl-gpu-test, state: {terminated: {exitCode: 1,
	reason: Error, message: "GPU-1: correct\ncuInit fails: no device\n"}}}]}`

// full is what the scheduler reports of a node without a free GPU.
const full = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
	message: "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity."}]}`

// Each end of a test pod has its words and its exit code, and leaves no pod.
func TestTestOfANode(t *testing.T) {
	const refusedDeletion = "kubectl gpu: the test pod is not deleted: run kubectl -n gpus delete pod " +
		"kubectl-gpu-test-x: Error from server (Forbidden): refused\n"
	for name, test := range map[string]struct {
		line, in, status string
		gone, keeps      bool
		code             int
		// kept: no pod is created.
		kept     bool
		out, err string
	}{
		"success": {line: "a --yes", status: `{phase: Succeeded}`,
			out: "GPU-1: correct\nA pod got 1 nvidia.com/gpu of node a and computed on it, in 0s.\n"},
		"it asks": {line: "a", in: "y\n", status: `{phase: Succeeded}`,
			out: "A pod in namespace gpus takes 1 nvidia.com/gpu of node a for at most 4m0s, if one is free. No pod is " +
				"evicted for it.\nImage: example.com/operator:1\nRun it? [y/N]: \n"},
		"it is not confirmed": {line: "a", in: "n\n", kept: true, code: 1, err: "not confirmed, and nothing was changed\n"},
		"another resource": {line: "a --yes --resource nvidia.com/mig-1g.10gb", status: `{phase: Succeeded}`,
			out: "A pod got 1 nvidia.com/mig-1g.10gb of node a"},
		"the first resource with a free device": {line: "mixed --yes", status: `{phase: Succeeded}`,
			out: "A pod got 1 nvidia.com/mig-1g.10gb of node"},
		"a resource that is not offered": {line: "a --yes --resource x", kept: true, code: 1,
			err: "node a does not offer --resource x: give one of [nvidia.com/gpu nvidia.com/mig-1g.10gb]\n"},
		"a node without GPUs": {line: "none --yes", kept: true, code: 1,
			err: "node none offers no GPU: see kubectl gpu explain none\n"},
		"a node without the validator": {line: "b --yes", kept: true, code: 1, err: "node b has no pod of the operand " +
			"operator-validator, whose image the test uses: see kubectl gpu explain b\n"},
		"no such node": {line: "z --yes", kept: true, code: 1, err: "Error from server (NotFound): refused\n"},
		"it fails": {line: "a --yes", status: terminated, code: 1, out: "GPU-1: correct\n",
			err: "kubectl gpu: the computation failed: exit code 1: Error: cuInit fails: no device\n"},
		"the kubelet refuses it": {line: "a --yes", status: `{phase: Failed, reason: UnexpectedAdmissionError, message: m}`,
			code: 1, err: "kubectl gpu: the test pod failed: UnexpectedAdmissionError: m\n"},
		"the image cannot be pulled": {line: "a --yes", code: 1, status: `{phase: Pending, conditions: [{type: PodScheduled,
			status: "True"}], containerStatuses: [{name: kubectl-gpu-test, image: "example.com/operator:1", state: {waiting: {
			reason: ErrImagePull, message: "failed to pull and unpack image: unauthorized"}}}]}`,
			err: "does not start with the image example.com/operator:1: container kubectl-gpu-test: ImagePullBackOff"},
		"no GPU is free": {line: "a --yes --timeout 1s", status: full, code: 3,
			err: "no GPU is free: other pods have each nvidia.com/gpu of the node, which shows that it can be allocated\n"},
		"the kubelet has no free GPU": {line: "a --yes", status: `{phase: Failed, reason: OutOfnvidia.com/gpu}`, code: 3,
			err: "no GPU is free"},
		"it is preempted": {line: "a --yes", code: 1, status: `{phase: Running, conditions: [{type: DisruptionTarget,
			status: "True"}]}`, err: "was evicted or deleted before it ended"},
		"it is deleted": {line: "a --yes", gone: true, code: 1, err: "was evicted or deleted before it ended"},
		"it does not end": {line: "a --yes --timeout 1s", code: 1, status: `{phase: Pending, conditions: [{type: PodScheduled,
			status: "True"}]}`, err: "the test pod has not ended in time, see --timeout: the pod is starting\n"},
		"it cannot be deleted": {line: "a --yes", status: `{phase: Succeeded}`, keeps: true, code: 1, err: refusedDeletion},
		"too short a time":     {line: "a --timeout 999ms", kept: true, code: 2, err: "--timeout: give at least 1s"},
		"no node":              {kept: true, code: 2, err: "accepts 1 arg(s), received 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := NewWithT(t), newKubelet(t, test.status)
			k.gone, k.refusesDeletion = test.gone, test.keeps
			got := kubectlGPU(test.in, append(append([]string{"test"}, strings.Fields(test.line)...),
				"--kubeconfig", k.kubeconfig(t), "--context", "c")...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.out).To(ContainSubstring(test.out))
			g.Expect(got.errOut).To(ContainSubstring(test.err))
			g.Expect(k.created == nil).To(Equal(test.kept))
			deletions := 1
			if test.kept || test.keeps {
				deletions = 0
			}
			g.Expect(k.deleted).To(Equal(deletions))
		})
	}
}

// The pod is like those of the validator: it takes one device of the node that is free, and evicts no pod.
func TestTheTestPod(t *testing.T) {
	g, k := NewWithT(t), newKubelet(t, `{phase: Succeeded}`)
	got := kubectlGPU("", "test", "a", "--yes", "--timeout", "90s", "--kubeconfig", k.kubeconfig(t), "--context", "c")
	g.Expect(got.code).To(BeZero(), got.errOut)
	text, err := yaml.Marshal(k.created)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchYAML(`
apiVersion: v1
kind: Pod
metadata: {generateName: kubectl-gpu-test-, namespace: gpus, labels: {app: kubectl-gpu-test}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  activeDeadlineSeconds: 90
  serviceAccountName: validates
  automountServiceAccountToken: false
  runtimeClassName: nvidia
  priorityClassName: gpu-operator-validation
  imagePullSecrets: [{name: s}]
  tolerations: [{operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}
  containers:
  - name: kubectl-gpu-test
    image: example.com/operator:1
    imagePullPolicy: Always
    command: [/usr/bin/gpu-node-cuda]
    resources: {limits: {nvidia.com/gpu: "1"}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]},
      seccompProfile: {type: RuntimeDefault}}
    terminationMessagePolicy: FallbackToLogsOnError
status: {}
`))
}

// Ctrl-C ends the test, and the pod is deleted all the same.
func TestTestIsInterrupted(t *testing.T) {
	g, k := NewWithT(t), newKubelet(t, `{phase: Running}`)
	self, err := os.FindProcess(os.Getpid())
	g.Expect(err).NotTo(HaveOccurred())
	k.looked = func() { _ = self.Signal(os.Interrupt) }
	got := kubectlGPU("", "test", "a", "--yes", "--kubeconfig", k.kubeconfig(t), "--context", "c")
	g.Expect(got.code).To(Equal(130))
	g.Expect(got.errOut).To(Equal("kubectl gpu: interrupted: the test pod has not ended\n"))
	g.Expect(k.deleted).To(Equal(1))
}

// A node counts as full after a while: just after a pod has ended, the scheduler may not know that its GPU is free.
func TestFullNode(t *testing.T) {
	g, pod := NewWithT(t), &corev1.Pod{}
	g.Expect(yaml.Unmarshal([]byte("status: "+full), pod)).To(Succeed())
	for waits, want := range map[time.Duration]bool{fullAfter - 1: false, fullAfter: true} {
		ended, err := (&podRun{pod: pod, resource: "nvidia.com/gpu"}).verdict(waits)
		g.Expect(ended).To(BeFalse())
		g.Expect(err != nil).To(Equal(want), waits.String())
	}
	_, err := (&podRun{pod: pod, resource: "nvidia.com/mig-1g.10gb"}).verdict(fullAfter)
	g.Expect(err).To(MatchError(HavePrefix("the scheduler does not place the test pod: 0/4 nodes are available: ")))
}
