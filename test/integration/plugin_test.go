package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// plugin builds the plugin of kubectl once for all tests.
var plugin = sync.OnceValues(func() (string, error) {
	return cluster.BuildPlugin(context.Background(), os.Stderr)
})

// seenNode is what status and explain print of a node.
type seenNode struct {
	Name, Ready, Stage, Operand, Reason, Message string
	GPUs                                         struct{ Total, Usable int }
	Resources                                    []struct {
		Name        string
		Allocatable int
		Free        *int
	}
	Findings []finding
	Pods     []struct {
		Name  string
		Ready bool
	}
}

type finding struct{ Reason, Message, Cause, Next string }

// pluginCommand returns a command of the plugin, run by kubectl as users do.
func (e *env) pluginCommand(args ...string) *exec.Cmd {
	e.t.Helper()
	binary, err := plugin()
	e.Expect(err).NotTo(HaveOccurred())
	path := e.t.TempDir()
	cmd, err := cluster.PluginCommand(e.t.Context(), repo, binary, path, args...)
	e.Expect(err).NotTo(HaveOccurred())
	cmd.Env = []string{"KUBECONFIG=" + e.cluster.Kubeconfig(), "HOME=" + e.t.TempDir(), "PATH=" + path}
	return cmd
}

// kubectlGPU decodes what a command of the plugin prints with -o json.
func (e *env) kubectlGPU(into any, args ...string) {
	e.t.Helper()
	cmd, errOut := e.pluginCommand(append(args, "-o", "json")...), &bytes.Buffer{}
	cmd.Stderr = errOut
	out, err := cmd.Output()
	e.Expect(err).NotTo(HaveOccurred(), errOut.String())
	e.Expect(errOut.String()).To(BeEmpty())
	e.Expect(json.Unmarshal(out, into)).To(Succeed())
}

// TestThePluginShowsACluster: of a broken node and of pods that wait, kubectl gpu names the cause and the next step.
func TestThePluginShowsACluster(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	e.sim.Break("driver", "gpu-00002", simulator.CrashLoop)
	e.run()
	exporters, address := &exporterOf{}, hostAddress(t)
	object := e.samplePolicy()
	object.Spec.DCGMExporter.Env = []v1.EnvVar{
		{Name: "DCGM_EXPORTER_LISTEN", Value: fmt.Sprintf(":%d", serveOn(t, address, exporters, false))},
		{Name: "NGC_API_KEY", Value: planted + "-policy"},
	}
	e.create(object)
	e.Eventually(func() (found struct{ Summary map[string]int }) {
		e.kubectlGPU(&found, "status")
		return found
	}).WithTimeout(readyTime).Should(HaveField("Summary", And(HaveKeyWithValue("readyNodes", 2), HaveKeyWithValue("gpus",
		16))))
	running := e.runGPUPod("running", "gpu-00000")
	waiting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "waiting"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "example.com/cuda", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")},
		}}},
	}}
	e.create(waiting)

	var status struct {
		Policy struct{ Name, Ready, Reason string }
		Nodes  []seenNode
	}
	e.kubectlGPU(&status, "status")
	e.Expect(status.Policy.Name).To(Equal(policy))
	e.Expect(status.Policy.Ready).To(Equal("False"))
	e.Expect(status.Nodes).To(HaveLen(3))
	e.Expect(status.Nodes[0]).To(And(HaveField("Name", "gpu-00002"), HaveField("Ready", "False"),
		HaveField("Stage", "Driver"), HaveField("Operand", "driver"), HaveField("Reason", "CrashLoopBackOff")))
	e.Expect(status.Nodes[1]).To(And(HaveField("Name", "gpu-00000"), HaveField("Ready", "True"),
		HaveField("GPUs", Equal(struct{ Total, Usable int }{8, 8}))))
	e.Expect(*status.Nodes[1].Resources[0].Free).To(Equal(7), "of 8, the pod has one")

	var node seenNode
	e.kubectlGPU(&node, "explain", "gpu-00002")
	e.Expect(node.Findings).To(ConsistOf(And(HaveField("Reason", "CrashLoopBackOff"),
		HaveField("Message", ContainSubstring("simulated failure")), HaveField("Next", Not(BeEmpty())))))
	e.Expect(node.Pods).To(ContainElement(And(HaveField("Name", HavePrefix("nvidia-driver-daemonset")),
		HaveField("Ready", false))))
	var pod struct {
		Node     string
		Findings []finding
	}
	e.kubectlGPU(&pod, "explain", "pod/waiting")
	e.Expect(pod.Findings).To(ConsistOf(And(HaveField("Reason", "ResourceNotOffered"),
		HaveField("Message", ContainSubstring("no node offers nvidia.com/mig-1g.10gb; what nodes offer: nvidia.com/gpu")))))
	e.kubectlGPU(&pod, "explain", "pod/"+running.Name, "--namespace", running.Namespace)
	e.Expect(pod.Node).To(Equal("gpu-00000"))
	e.Expect(pod.Findings).To(BeEmpty())
	e.explainReadsWhatItShows(running)
	e.quotaIsExplained()
	e.statusFollows()
	e.runningExporters()
	if address != "" {
		e.answerFor(exporters, address)
	}
	t.Run("diff", func(t *testing.T) { e.in(t).diffShowsFields(object) })
	t.Run("top", func(t *testing.T) {
		needsAddress(t, address)
		e.in(t).topAsksExporters(exporters)
	})
	t.Run("collect", func(t *testing.T) {
		needsAddress(t, address)
		e.in(t).collectHasNoCredentials()
	})
}

// explainReadsWhatItShows: of all pods of the cluster only those are listed on which the explanation depends.
func (e *env) explainReadsWhatItShows(running *corev1.Pod) {
	e.t.Helper()
	const name = "explains"
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	e.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	})
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(e.t.Context(), "default", name, "")
	e.Expect(err).NotTo(HaveOccurred())
	const node, policies, nodes = "/" + namespace + "/pods", "//clusterpolicies", "//nodes"
	for _, test := range []struct {
		args  []string
		lists []string
	}{
		// The operator's pods: those on the node, and those that are not scheduled.
		{[]string{"node/gpu-00000"}, []string{node, node, policies, nodes}},
		{[]string{"node/gpu-00000", "-o", "json"}, []string{node, node, policies, nodes, "//pods"}},
		{[]string{"pod/" + running.Name}, []string{"/default/pods", "/default/events", nodes, policies}},
		{
			[]string{"pod/waiting"},
			[]string{"/default/pods", "/default/events", nodes, "//pods", policies, "//deviceclasses"},
		},
	} {
		mark, err := e.cluster.Mark()
		e.Expect(err).NotTo(HaveOccurred())
		args := append([]string{"explain", "--kubeconfig", kubeconfig, "--namespace", "default"}, test.args...)
		code, _, errOut := e.exitOf(args...)
		e.Expect(code).To(Equal(0), errOut)
		calls, err := e.cluster.Since(mark)
		e.Expect(err).NotTo(HaveOccurred())
		var lists []string
		for _, call := range calls {
			if call.User == "system:serviceaccount:default:"+name {
				e.Expect(call.Verb).To(Equal("list"))
				lists = append(lists, "/"+call.Namespace+"/"+call.Resource)
			}
		}
		e.Expect(lists).To(ConsistOf(test.lists), "%v", test.args)
	}
}

// quotaIsExplained: a Deployment whose pod a quota refuses is explained, although there is no pod.
func (e *env) quotaIsExplained() {
	e.t.Helper()
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "poor"}})
	e.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "poor", Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("0")}},
	})
	pod, labels := gpuPod("training", ""), map[string]string{"app": "training"}
	e.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "poor", Name: "training"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	})
	e.Eventually(func() string {
		cmd := e.pluginCommand("explain", "pod/training", "--namespace", "poor")
		out, err := cmd.CombinedOutput()
		return fmt.Sprint(string(out), err)
	}).Should(And(ContainSubstring("exceeded quota"), ContainSubstring("get resourcequotas"), HaveSuffix("<nil>")))
}

// statusFollows: with --watch a change of a node appears without a new call.
func (e *env) statusFollows() {
	e.t.Helper()
	cmd, lines := e.pluginCommand("status", "--watch"), &lockedBuffer{}
	cmd.Stdout = lines
	e.Expect(cmd.Start()).To(Succeed())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	e.Eventually(lines.String).Should(MatchRegexp(`(?m)^gpu-00001 +True`))
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-00001"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`)))).To(Succeed())
	e.Eventually(lines.String).Should(MatchRegexp(`(?m)^gpu-00001 +True .* yes `), "the column CORDONED")
}

// lockedBuffer is written while it is read.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestStatusOfAThousandNodes: status takes at most a second of a machine that does nothing else, and its memory is
// bounded, as it holds few pages of a list. Other tests run beside it, so that only TEST_FULL=1 judges its processor
// time; the time that has passed is printed.
func TestStatusOfAThousandNodes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes, maxMemory, maxProcessor = 1000, 60 << 20, 400 * time.Millisecond
	e := newEnv(t, envOptions{bare: true})
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		e.createLargeNode(name)
		pod := gpuPod("user-of-"+name, "")
		pod.Spec.NodeName = name
		e.create(pod)
	}
	// The API server compiles the rules of a definition at the first request for its objects, which takes a second.
	e.Expect(e.client.List(t.Context(), &v1.ClusterPolicyList{})).To(Succeed())
	cmd, out := e.pluginCommand("status"), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	begin := time.Now()
	e.Expect(cmd.Start()).To(Succeed())
	memory := peakMemory(cmd)
	e.Expect(cmd.Wait()).To(Succeed(), out.String())
	took := time.Since(begin)
	e.Expect(out.String()).To(ContainSubstring("1000 of 1000 nodes ready, 8000 of 8000 GPUs usable, 7000 whole GPUs free"))
	processor := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	t.Logf("kubectl gpu status of %d nodes: %s, %s of processor time, at most %d MB", nodes,
		took.Round(time.Millisecond), processor.Round(time.Millisecond), memory>>20)
	e.Expect(memory).To(And(BeNumerically(">", 0), BeNumerically("<=", maxMemory)))
	if cluster.FullCampaigns() { // Beside other work, the same instructions take longer.
		e.Expect(processor).To(BeNumerically("<=", maxProcessor))
	}
}

// peakMemory returns the peak of the resident memory of a process, in bytes, once it ends.
func peakMemory(cmd *exec.Cmd) int64 {
	peak := int64(0)
	for {
		usage, err := cluster.UsageOf(cmd.Process.Pid)
		if err != nil || usage.RSS == 0 { // It has ended, and nobody has waited for it yet.
			return peak
		}
		peak = max(peak, usage.PeakRSS)
		time.Sleep(2 * time.Millisecond)
	}
}

// createLargeNode creates a node of the size that kubelets report, with 50 images and 8 GPUs.
func (e *env) createLargeNode(name string) {
	e.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8",
	}}}
	e.create(node)
	for i := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 30, Names: []string{
			fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", i, i),
			fmt.Sprintf("registry.example.com/team/image-%d:v1", i),
		}})
	}
	node.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"),
		"pods": resource.MustParse("110")}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: gpuReady, Status: corev1.ConditionTrue, Reason: "GPUReady", Message: name + ": GPUs can be used",
		LastTransitionTime: metav1.Now(),
	}}
	e.Expect(e.client.Status().Update(e.t.Context(), node)).To(Succeed())
}
