package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/migration"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// deployment is the name of the operator's Deployment and of its account, in whichever namespace.
	deployment = "gpu-operator"
	poll       = 100 * time.Millisecond
	// blockTime is how long the commands of a block may take, on a busy machine.
	blockTime = 10 * time.Minute
	// nvidiasDriver is the version of the driver on a cluster with NVIDIA's operator.
	nvidiasDriver = "580.95.05"
)

// binaries are the programs that the commands use, built once.
type binaries struct {
	operator, plugin, kubectl, helm string
}

var programsOnce = sync.OnceValues(func() (binaries, error) {
	ctx := context.Background()
	var b binaries
	var errs [5]error
	_, errs[0] = cluster.EnsureBinaries(ctx, "", os.Stderr)
	b.operator, errs[1] = cluster.BuildFastOperator(ctx, os.Stderr)
	b.plugin, errs[2] = cluster.BuildPlugin(ctx, os.Stderr)
	b.kubectl, errs[3] = pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	b.helm, errs[4] = pinned.Tool(repo, "helm", "helm", "helm.sh/helm/v4")
	return b, errors.Join(errs[:]...)
})

// env is a cluster whose kubelets are simulated. What a Deployment of the operator and the pods of its hooks would run
// in containers runs as processes with their accounts, see play.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	client  client.Client
	sim     *simulator.Simulator
	built   binaries
	// dir is the folder that the commands run in, path that of the programs, and deploy that of make deploy: one for each
	// cluster, as they are used at the same time.
	dir, path, deploy string
}

// newEnv starts a cluster of the list.
func newEnv(t *testing.T, wanted clusterEntry) *env {
	t.Helper()
	g := NewWithT(t)
	built, err := programsOnce()
	g.Expect(err).NotTo(HaveOccurred())
	c, timing := cluster.StartFor(t, cluster.Options{}), simulator.DefaultTiming().Scale(0.1)
	e := &env{
		WithT: g, t: t, cluster: c, built: built, dir: t.TempDir(), path: t.TempDir(),
		client: cluster.NewClient(t, c.SimulatorConfig),
	}
	e.link()
	e.sim = simulator.Play(t, simulator.Options{Config: c.SimulatorConfig, Timing: &timing, Seed: 1, Modules: true})
	_, err = e.sim.AddNodesOf(t.Context(), wanted.Nodes, simulator.NodeSpec{Model: simulator.ModelH100})
	g.Expect(err).NotTo(HaveOccurred())
	if wanted.NVIDIA {
		e.startNVIDIA()
	}
	e.play()
	return e
}

// link puts the programs and what pages name of the repository into their folders.
func (e *env) link() {
	e.t.Helper()
	root, err := filepath.Abs(repo)
	e.Expect(err).NotTo(HaveOccurred())
	e.deploy, err = os.MkdirTemp(filepath.Join(root, ".cache"), "deploy-")
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(func() { e.Expect(os.RemoveAll(e.deploy)).To(Succeed()) })
	for _, name := range []string{"config", "bundle"} {
		e.Expect(os.Symlink(filepath.Join(root, name), filepath.Join(e.dir, name))).To(Succeed())
	}
	for name, program := range map[string]string{
		"kubectl": e.built.kubectl, "kubectl-gpu": e.built.plugin, "helm": e.built.helm,
	} {
		e.Expect(os.Symlink(program, filepath.Join(e.path, name))).To(Succeed())
	}
}

// startNVIDIA makes the cluster one on which NVIDIA's operator runs.
func (e *env) startNVIDIA() {
	e.t.Helper()
	ctx := e.t.Context()
	objects, err := cluster.Render(filepath.Join(repo, "config/default"))
	e.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if kind := object.GetKind(); kind == "CustomResourceDefinition" || kind == "Namespace" {
			e.Expect(cluster.InstallObjects(ctx, e.cluster.SimulatorConfig, append(objects[:0:0], object))).To(Succeed())
		}
	}
	policy := cluster.PolicyFor(e.t)
	// NVIDIA's chart writes the version of its release into the policy.
	policy.Spec.Driver.Version = nvidiasDriver
	e.Expect(e.client.Create(ctx, policy)).To(Succeed())
	as := rest.CopyConfig(e.cluster.SimulatorConfig)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: cluster.ServiceAccountUser(cluster.OperatorNamespace, deployment), Groups: []string{"system:masters"},
	}
	theirs, err := client.New(as, client.Options{Scheme: e.client.Scheme()})
	e.Expect(err).NotTo(HaveOccurred())
	player := migration.NewPlayer(theirs, cluster.OperatorNamespace, "nvcr.io/nvidia/driver:"+nvidiasDriver+"-ubuntu24.04")
	e.Expect(player.Reconcile(ctx, policy)).To(Succeed())
}

// prelude defines what the shell of a reader has: make in the repository, the client of OpenShift, and a finger on
// Ctrl-C for commands that watch.
const prelude = `set -euo pipefail
make() { command make --no-print-directory -C "$REPOSITORY" "$@"; }
oc() { kubectl "$@"; }
kubectl() {
  case " $* " in
  *" --watch "*) timeout --signal=INT 4 kubectl "$@" || case $? in 124|130) ;; *) return 1 ;; esac ;;
  *) command kubectl "$@" ;;
  esac
}
`

// shell runs commands and returns what they print.
func (e *env) shell(commands string) (string, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), blockTime)
	defer cancel()
	root, err := filepath.Abs(repo)
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", prelude+commands)
	cmd.Dir = e.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "PATH="+e.path+":"+os.Getenv("PATH"), "REPOSITORY="+root, "TERM=dumb",
		"MAKEFLAGS=", "MAKELEVEL=", "DEPLOY_DIR="+e.deploy, "KUBECONFIG="+e.cluster.Kubeconfig(),
		"HELM_CACHE_HOME="+e.path, "HELM_CONFIG_HOME="+e.path, "HELM_DATA_HOME="+e.path)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// play stands in for the kubelet of the operator's own pods until the test ends: it runs the operator while there is a
// Deployment of it, and the command of each pod of a hook.
func (e *env) play() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := player{env: e, hooks: map[string]bool{}}
		for ctx.Err() == nil {
			p.playOperator(ctx)
			p.playHooks(ctx)
			time.Sleep(poll)
		}
		p.stop()
	}()
	e.t.Cleanup(func() { cancel(); <-done })
}

// player is what play has started.
type player struct {
	*env
	// operator runs for the Deployment with this UID; nil if none does.
	operator *cluster.Operator
	uid      types.UID
	// hooks are the pods that were run, by UID.
	hooks map[string]bool
}

// playOperator starts or ends the operator. Failures are tried again, as by a kubelet: the account may not exist yet.
func (p *player) playOperator(ctx context.Context) {
	list := &appsv1.DeploymentList{}
	if err := p.client.List(ctx, list); err != nil {
		return
	}
	at := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool {
		return d.Name == deployment && d.DeletionTimestamp == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
	})
	if at < 0 {
		p.stop()
		return
	}
	wanted := list.Items[at]
	// The account of another Deployment is another one, and a container that has ended is started again.
	if p.operator != nil && (p.uid != wanted.UID || ended(p.operator)) {
		p.stop()
	}
	if p.operator != nil {
		return
	}
	kubeconfig, err := p.cluster.ServiceAccountKubeconfig(ctx, wanted.Namespace, deployment, "")
	if err != nil {
		return
	}
	operator, err := cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary: p.built.operator, Kubeconfig: kubeconfig, Namespace: wanted.Namespace,
		Env:     variables(wanted.Spec.Template.Spec.Containers[0]),
		LogFile: filepath.Join(p.cluster.LogDir, "gpu-operator.log"),
	})
	if err == nil {
		p.operator, p.uid = operator, wanted.UID
	}
}

// stop ends the operator, if it runs.
func (p *player) stop() {
	if p.operator != nil {
		_ = p.operator.Stop()
	}
	p.operator = nil
}

func ended(operator *cluster.Operator) bool {
	select {
	case <-operator.Done():
		return true
	default:
		return false
	}
}

// variables are those of a container that have a literal value.
func variables(container corev1.Container) []string {
	var all []string
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			all = append(all, variable.Name+"="+variable.Value)
		}
	}
	return all
}

// playHooks runs the pods of the chart's Jobs and of its test, each once.
func (p *player) playHooks(ctx context.Context) {
	pods := &corev1.PodList{}
	if err := p.client.List(ctx, pods); err != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !strings.HasPrefix(pod.Labels["app"], deployment+"-") || ended || p.hooks[string(pod.UID)] {
			continue
		}
		kubeconfig, err := p.cluster.ServiceAccountKubeconfig(ctx, pod.Namespace, pod.Spec.ServiceAccountName, "")
		if err != nil {
			continue
		}
		p.hooks[string(pod.UID)] = true
		go p.playHook(ctx, pod, kubeconfig)
	}
}

// playHook runs the command of a pod and writes its result, as a kubelet does.
func (e *env) playHook(ctx context.Context, pod *corev1.Pod, kubeconfig string) {
	cmd := exec.CommandContext(ctx, e.built.operator, pod.Spec.Containers[0].Args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + e.path, "PATH=" + os.Getenv("PATH")}
	output, failed := cmd.CombinedOutput()
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if failed != nil {
		pod.Status.Phase, pod.Status.Message = corev1.PodFailed, string(output)
	}
	_ = e.client.Status().Patch(ctx, pod, client.MergeFrom(before))
}
