package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	namespace = cluster.OperatorNamespace
	account   = "gpu-operator"
	repo      = "../.."
	policy    = "cluster-policy"
	gpuReady  = "nvidia.com/GPUReady"
)

// How long to wait for what is to happen, and for nodes to become ready, on a machine that is busy. Where a story is about
// how fast something happens, it measures that.
const (
	eventually = 30 * time.Second
	readyTime  = 3 * time.Minute
)

var (
	operatorUser = cluster.ServiceAccountUser(namespace, account)
)

// The operators are built once for all stories: the one with shorter waits, and the one that is shipped.
var (
	quickOperator   = sync.OnceValues(func() (string, error) { return cluster.BuildFastOperator(context.Background(), os.Stderr) })
	shippedOperator = sync.OnceValues(func() (string, error) { return cluster.BuildOperator(context.Background(), os.Stderr) })
)

// How long nothing must have been written before all has been: longer than counters are held back, by each operator.
const (
	quickIdle   = 4 * time.Second
	shippedIdle = 12 * time.Second
)

// bed is a control plane with simulated nodes and the operator installed, though not running.
type bed struct {
	*WithT
	t          *testing.T
	cluster    *cluster.Cluster
	sim        *simulator.Simulator
	client     client.Client
	kubeconfig string
	binary     string
	// idle is how long nothing must have been written before all has been.
	idle    time.Duration
	process *process
}

// process is the running operator; every view of a bed shares it.
type process struct {
	*cluster.Operator
	// log is the file that it writes to, and every one before it.
	log string
	// judged is where the judgement of its rights begins: a story that takes rights away judges that itself.
	judged cluster.Mark
}

// in is the bed as a subtest uses it: what fails there ends the subtest.
func (b *bed) in(t *testing.T) *bed {
	view := *b
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

type bedOptions struct {
	version string
	nodes   int
	timing  simulator.Timing
	// programs let nodes run processes.
	programs host.Programs
	// shipped runs the operator with the waits of production; the default is shorter ones.
	shipped bool
	// bare is a control plane without controllers, scheduler and kwok: the API server alone judges.
	bare bool
}

// operator is the binary to run, and how long it may hold back a write.
func (o bedOptions) operator() (binary string, idle time.Duration, err error) {
	if o.shipped {
		binary, err = shippedOperator()
		return binary, shippedIdle, err
	}
	binary, err = quickOperator()
	return binary, quickIdle, err
}

// newBed starts a control plane with GPU nodes, and installs CRD, RBAC and the operands' accounts.
func newBed(t *testing.T, o bedOptions) *bed {
	t.Helper()
	g := NewWithT(t)
	_, err := cluster.EnsureBinaries(t.Context(), o.version, os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	binary, idle, err := o.operator()
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Version: o.version, Bare: o.bare})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	g.Expect(cluster.Install(ctx, c.Config, filepath.Join(repo, "config/default"))).To(Succeed())
	sim, err := simulator.New(simulator.Options{Config: c.SimulatorConfig, Timing: &o.timing, Seed: 1, Programs: o.programs})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(sim.Stop)
	g.Expect(sim.Start(t.Context())).To(Succeed())
	_, err = sim.AddNodes(t.Context(), o.nodes)
	g.Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, nodev1.AddToScheme, v1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	admin, err := client.New(c.Config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, account, "")
	g.Expect(err).NotTo(HaveOccurred())
	b := &bed{WithT: g, t: t, cluster: c, sim: sim, client: admin, kubeconfig: kubeconfig, binary: binary, idle: idle, process: &process{}}
	t.Cleanup(b.finish)
	return b
}

// finish ends the operator and judges what must hold in every story: no call was refused for want of
// rights, and the operator never panicked nor raced with itself.
func (b *bed) finish() {
	b.endOperator()
	if b.process.log != "" {
		log, err := os.ReadFile(b.process.log)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(string(log)).NotTo(Or(ContainSubstring("panic"), ContainSubstring("DATA RACE")))
		if b.t.Failed() {
			b.t.Logf("the end of the operator's log:\n%s", tail(string(log), 20))
		}
	}
	b.Expect(b.refused().String()).To(BeEmpty(), "the shipped rights must do")
}

// refused are the operator's calls that were refused for want of rights.
func (b *bed) refused() cluster.Calls {
	b.t.Helper()
	return b.operatorCalls(b.process.judged).Forbidden()
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// run starts the operator as a process with its own account.
func (b *bed) run(args ...string) {
	b.t.Helper()
	b.runWith(b.kubeconfig, args...)
}

func (b *bed) runWith(kubeconfig string, args ...string) {
	b.t.Helper()
	operator, err := cluster.StartOperator(context.Background(), cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: kubeconfig, Args: args,
		LogFile: filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.process.Operator, b.process.log = operator, operator.LogFile
}

func (b *bed) stop() {
	b.t.Helper()
	b.Expect(b.process.Stop()).To(Succeed())
	b.process.Operator = nil
}

// endOperator ends the operator, if one runs.
func (b *bed) endOperator() {
	b.t.Helper()
	if b.process.Operator != nil {
		b.stop()
	}
}

// samplePolicy is the policy that the project shows its users.
func (b *bed) samplePolicy() *v1.ClusterPolicy {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "config/samples/clusterpolicy.yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	object := &v1.ClusterPolicy{}
	b.Expect(yaml.UnmarshalStrict(text, object)).To(Succeed())
	return object
}

func (b *bed) create(object client.Object) {
	b.t.Helper()
	b.Expect(b.client.Create(b.t.Context(), object)).To(Succeed())
}

// edit reads the object, changes it and writes it, again where another has written it meanwhile.
func (b *bed) edit(object client.Object, change func(), options ...client.UpdateOption) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return b.client.Update(b.t.Context(), object, options...)
	})
}

func (b *bed) policy() *v1.ClusterPolicy {
	b.t.Helper()
	object := &v1.ClusterPolicy{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
	return object
}

// conditionLag is by how much the conditions of nodes may follow the status of the policy: another controller writes
// them, which looks at a burst of changes once.
const conditionLag = 10 * time.Second

// awaitReady waits until the policy is ready with this many nodes, also with what is not needed to use GPUs, and returns how long it took.
func (b *bed) awaitReady(nodes int) time.Duration {
	b.t.Helper()
	begin := time.Now()
	b.Eventually(func(g Gomega) {
		object := &v1.ClusterPolicy{}
		g.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
		g.Expect(object.Status.State).To(Equal(v1.StateReady), "%s", summary(object))
		g.Expect(object.Status.ObservedGeneration).To(Equal(object.Generation))
		g.Expect(object.Status.NodeSummary.ReadyOfTotal).To(Equal(fmt.Sprintf("%d/%d", nodes, nodes)))
		g.Expect(meta.IsStatusConditionTrue(object.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue(), "%s", summary(object))
	}).WithTimeout(readyTime).WithPolling(100 * time.Millisecond).Should(Succeed())
	took := time.Since(begin)
	b.Eventually(b.nodesThatSayReady).WithTimeout(conditionLag).WithPolling(50*time.Millisecond).Should(Equal(nodes),
		"nodes whose condition says what the policy's status says")
	return took
}

// nodesThatSayReady counts the nodes whose own condition is True.
func (b *bed) nodesThatSayReady() (int, error) {
	nodes := &corev1.NodeList{}
	err := b.client.List(b.t.Context(), nodes)
	ready := 0
	for i := range nodes.Items {
		if condition := nodeCondition(&nodes.Items[i]); condition != nil && condition.Status == corev1.ConditionTrue {
			ready++
		}
	}
	return ready, err
}

func summary(object *v1.ClusterPolicy) string {
	text, err := yaml.Marshal(object.Status)
	if err != nil {
		return err.Error()
	}
	return tail(string(text), 80)
}

func (b *bed) node(name string) *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

func nodeCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == gpuReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func (b *bed) mark() cluster.Mark {
	b.t.Helper()
	mark, err := b.cluster.Mark()
	b.Expect(err).NotTo(HaveOccurred())
	return mark
}

// operatorCalls are the operator's own calls since the mark.
func (b *bed) operatorCalls(mark cluster.Mark) cluster.Calls {
	b.t.Helper()
	calls, err := b.cluster.Since(mark)
	b.Expect(err).NotTo(HaveOccurred())
	return calls.By(operatorUser)
}
