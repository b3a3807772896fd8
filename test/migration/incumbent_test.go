package migration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// release is the name under which users install NVIDIA's chart.
	release = "gpu-operator"
	// operatorApp is the app of the pods of both operators.
	operatorApp = "gpu-operator"
)

// incumbent is NVIDIA's own operator, installed by its chart.
type incumbent struct {
	*env
	built cluster.Incumbent
	helm  packaged.Client
	// process is its program, which runs while pod does.
	process *cluster.Operator
	pod     *corev1.Pod
}

// newIncumbent installs it by its chart on eight GPU nodes, starts its program, and awaits that it is ready.
// Node Feature Discovery is played.
func newIncumbent(t *testing.T) *incumbent {
	t.Helper()
	built, err := cluster.EnsureIncumbent(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	e := newNodes(t, []simulator.NodeSpec{{OSVersion: "24.04"}})
	i := &incumbent{env: e, built: built, helm: packaged.Client{
		Repo: repo, Home: t.TempDir(), Kubeconfig: e.cluster.Kubeconfig(), Namespace: namespace, Release: packaged.Helm3,
	}}
	i.helms("install", release, built.Chart(), "--create-namespace", "--set", "nfd.enabled=false")
	i.startTheirs()
	i.awaitTheirs()
	return i
}

// helms runs Helm.
func (i *incumbent) helms(args ...string) {
	i.t.Helper()
	_, err := i.helm.Run(i.t.Context(), args...)
	i.Expect(err).NotTo(HaveOccurred())
}

// kubectl runs the pinned kubectl.
func (i *incumbent) kubectl(args ...string) {
	i.t.Helper()
	binary, err := pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	i.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(i.t.Context(), binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + i.cluster.Kubeconfig(), "HOME=" + i.helm.Home}
	out, err := cmd.CombinedOutput()
	i.Expect(err).NotTo(HaveOccurred(), "%s", out)
}

// theirPods returns the pods of NVIDIA's Deployment.
func (i *incumbent) theirPods() ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := i.client.List(i.t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{
		"app": "gpu-operator", component: "gpu-operator", "nvidia.com/gpu-driver-upgrade-drain.skip": "true",
	})
	return list.Items, err
}

// startTheirs starts the program once its pod runs, with the rights of its account.
func (i *incumbent) startTheirs() {
	i.t.Helper()
	i.Eventually(i.theirPods).Should(HaveExactElements(HaveField("Status.Phase", corev1.PodRunning)))
	pods, err := i.theirPods()
	i.Expect(err).NotTo(HaveOccurred())
	i.pod = &pods[0]
	kubeconfig, err := i.cluster.ServiceAccountKubeconfig(i.t.Context(), namespace, i.pod.Spec.ServiceAccountName, "")
	i.Expect(err).NotTo(HaveOccurred())
	files, err := i.built.Files(i.t.TempDir(), namespace)
	i.Expect(err).NotTo(HaveOccurred())
	container := i.pod.Spec.Containers[0]
	variables := []string{"OPERATOR_NAMESPACE=" + namespace}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			variables = append(variables, variable.Name+"="+variable.Value)
		}
	}
	i.process, err = cluster.StartProgram(cluster.ProgramOptions{
		Binary: i.built.Program, Kubeconfig: kubeconfig, Files: files, Env: variables,
		Args:    append(container.Args, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"),
		LogFile: filepath.Join(i.logDir, "nvidia.log"),
	})
	i.Expect(err).NotTo(HaveOccurred())
	process := i.process
	i.t.Cleanup(func() {
		process.Kill()
		if log, err := os.ReadFile(process.LogFile); i.t.Failed() {
			i.t.Logf("the log of NVIDIA's operator (%v):\n%s", err, log[max(0, len(log)-20_000):])
		}
	})
}

// endTheirs ends the program as a kubelet does, when its pod is deleted.
func (i *incumbent) endTheirs() {
	i.t.Helper()
	i.Expect(i.client.Get(i.t.Context(), client.ObjectKeyFromObject(i.pod), &corev1.Pod{})).
		NotTo(Succeed(), "the pod of NVIDIA's operator")
	i.Expect(i.process.Stop()).To(Succeed())
}

// awaitTheirs waits until NVIDIA's operator reports that it is ready, and its stack runs.
func (i *incumbent) awaitTheirs() {
	i.t.Helper()
	i.Eventually(func() any { return i.policy().Status.State }).Should(BeEquivalentTo("ready"))
	i.awaitPods(false)
}
