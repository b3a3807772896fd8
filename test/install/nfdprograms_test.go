package install

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/nfd"
)

// podKept is the finalizer of the pods of Node Feature Discovery: as with a kubelet, such a pod is there until its
// process has ended.
const podKept = "simulator.gpu-operator/process"

// processes runs the programs of some pods as processes, as a kubelet does: while the pod is there, again if one ends.
type processes struct {
	*env
	// start starts the program of a pod, by the label app.
	start map[string]func(*corev1.Pod) (*cluster.Operator, error)
	// running are the processes by the UID of their pod.
	running map[types.UID]*cluster.Operator
	// failures are errors of starts and stops.
	failures []error
}

// runNFD runs the programs of Node Feature Discovery, and gpu-node discover, on a machine for each node. It returns
// once nfd-master has labelled all nodes. The function that it returns ends all processes.
func (e *env) runNFD() (end func()) {
	e.t.Helper()
	programs := &nfd.Programs{
		Kubeconfig: e.kubeconfig(namespace, nfd.Account), Namespace: namespace, LogDir: e.logDir,
	}
	e.Expect(programs.Build(e.t.Context(), os.Stderr)).To(Succeed())
	gpuNode, _, err := cluster.BuildNodePrograms(e.t.Context(), os.Stderr)
	e.Expect(err).NotTo(HaveOccurred())
	machines := map[string]string{}
	devices := [][]nfd.Device{{nfd.Bridge, nfd.T4}, {nfd.H100, nfd.H100, nfd.ConnectX}}
	for i, name := range e.nodeNames() {
		machines[name] = e.t.TempDir()
		release := nfd.OSRelease("ubuntu", "24.04")
		e.Expect(nfd.NewMachine(machines[name], release, devices[i%len(devices)]...)).To(Succeed())
	}
	p := &processes{env: e, running: map[types.UID]*cluster.Operator{}}
	p.start = map[string]func(*corev1.Pod) (*cluster.Operator, error){
		"nfd-master": func(pod *corev1.Pod) (*cluster.Operator, error) { return programs.Master(nfdPod(pod)) },
		"nfd-gc":     func(pod *corev1.Pod) (*cluster.Operator, error) { return programs.Collector(nfdPod(pod)) },
		"nfd-worker": func(pod *corev1.Pod) (*cluster.Operator, error) {
			return programs.Worker(machines[pod.Spec.NodeName], nfd.ChartOptions, nfdPod(pod))
		},
		"nvidia-node-discovery": func(pod *corev1.Pod) (*cluster.Operator, error) {
			return e.startDiscovery(gpuNode, machines[pod.Spec.NodeName], pod)
		},
	}
	e.t.Cleanup(p.logEnds)
	end = p.run()
	e.Eventually(func(g Gomega) {
		for name := range machines {
			g.Expect(e.node(name).Labels).To(And(HaveKey(discoveryPrefix+"pci-10de.present"), HaveKey(nfdOfRule)), name)
		}
	}).WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
	return end
}

func nfdPod(pod *corev1.Pod) nfd.Pod {
	return nfd.Pod{Node: pod.Spec.NodeName, Name: pod.Name, UID: string(pod.UID)}
}

// logEnds shows the end of each log of a failed test.
func (p *processes) logEnds() {
	if !p.t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(p.logDir, "*.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		p.t.Logf("%s ends with:\n%s", filepath.Base(path), text[max(0, len(text)-2000):])
	}
}

// run looks at the pods until the function that it returns is called.
func (p *processes) run() (end func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.round(ctx)
			}
		}
	})
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for _, process := range p.running {
			p.note(process.Stop())
		}
		p.Expect(p.failures).To(BeEmpty())
	})
	p.t.Cleanup(end)
	return end
}

func (p *processes) note(err error) {
	if err != nil {
		p.failures = append(p.failures, err)
	}
}

// round starts the process of each pod that has none, and ends those whose pod is deleted.
func (p *processes) round(ctx context.Context) {
	pods := &corev1.PodList{}
	if err := p.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return
	}
	there := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		start := p.start[pod.Labels["app"]]
		if start == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		there[pod.UID] = true
		if process := p.running[pod.UID]; process != nil && !hasEnded(process) {
			continue
		}
		process, err := start(pod)
		if p.note(err); err == nil {
			p.running[pod.UID] = process
		}
	}
	for uid, process := range p.running {
		if !there[uid] {
			p.note(process.Stop())
			delete(p.running, uid)
		}
	}
	p.release(ctx, pods.Items)
}

// release lets those pods go that are deleted: their processes have ended.
func (p *processes) release(ctx context.Context, pods []corev1.Pod) {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil && slices.Contains(pod.Finalizers, podKept) {
			released := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
			p.note(client.IgnoreNotFound(p.client.Patch(ctx, pod, released)))
		}
	}
}

func hasEnded(process *cluster.Operator) bool {
	select {
	case <-process.Done():
		return true
	default:
		return false
	}
}

// startDiscovery starts gpu-node discover with the token of its pod, which the admission policies read.
func (e *env) startDiscovery(gpuNode, machine string, pod *corev1.Pod) (*cluster.Operator, error) {
	account, err := e.mountAccount(pod)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(e.cluster.Config.Host)
	if err != nil {
		return nil, err
	}
	return cluster.StartProgram(cluster.ProgramOptions{
		Binary: gpuNode,
		Args: []string{
			"discover", "--resync=1s", "--sys-root=" + machine + "/sys", "--host-root=" + machine,
			"--features-dir=" + machine + "/features.d", "--service-account-dir=" + account,
		},
		Env: []string{
			"NODE_NAME=" + pod.Spec.NodeName,
			"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
		},
		LogFile: filepath.Join(e.logDir, "node-discovery-"+pod.Spec.NodeName+".log"),
	})
}

// mountAccount writes what the kubelet mounts of a pod's ServiceAccount, and returns the folder.
func (e *env) mountAccount(pod *corev1.Pod) (string, error) {
	clientset, err := kubernetes.NewForConfig(e.cluster.SimulatorConfig)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	token, err := clientset.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(e.t.Context(), pod.Spec.ServiceAccountName,
		request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.logDir, string(pod.UID))
	for name, content := range map[string][]byte{
		"token": []byte(token.Status.Token), "ca.crt": e.cluster.Config.CAData,
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}
