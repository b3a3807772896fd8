package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	// defaultFolder has the kustomization of the operator.
	defaultFolder = repo + "/config/default"
	policy        = "cluster-policy"
	gpuReady      = "nvidia.com/GPUReady"
)

// Timeouts for events and for nodes to become ready, on a busy machine. A test about the speed of something measures
// it.
const (
	eventually = 30 * time.Second
	readyTime  = 3 * time.Minute
)

// clusters are lent to the tests.
var clusters = cluster.Pool{Folder: defaultFolder}

var (
	operatorUser = cluster.ServiceAccountUser(namespace, account)
)

// How long the operator must write nothing to be at rest: longer than the delay of its counters.
const (
	quickIdle   = 4 * time.Second
	shippedIdle = 12 * time.Second
)

// env is a control plane with simulated nodes and the operator installed, but not running.
type env struct {
	*WithT
	t          *testing.T
	cluster    *cluster.Cluster
	sim        *simulator.Simulator
	client     client.Client
	kubeconfig string
	binary     string
	// idle is how long the operator must write nothing to be at rest.
	idle    time.Duration
	process *process
	// begin is where the requests of this test begin: a control plane is lent to several tests, one at a time.
	begin cluster.Mark
	// logDir has the logs of this test's operators.
	logDir string
}

// process is the running operator; all views of an env share it.
type process struct {
	*cluster.Operator
	// log is the file that it and all its predecessors write to.
	log string
	// judged is where the check of its permissions begins: a test that removes permissions checks that itself.
	judged cluster.Mark
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

type envOptions struct {
	version string
	nodes   int
	timing  simulator.Timing
	// programs let nodes run processes.
	programs host.Programs
	// shipped runs the operator with the timing of production; the default is a faster one.
	shipped bool
	// bare starts no controllers, scheduler and kwok.
	bare bool
}

// controlPlane returns a control plane on which CRD, RBAC and the operands' accounts are installed.
func (o envOptions) controlPlane(t *testing.T) *cluster.Cluster {
	t.Helper()
	if o.bare {
		return cluster.StartFor(t, cluster.Options{Version: o.version, Bare: true}, defaultFolder)
	}
	return clusters.Lend(t, o.version)
}

// newEnv returns a control plane with GPU nodes.
func newEnv(t *testing.T, o envOptions) *env {
	t.Helper()
	c := o.controlPlane(t)
	e := &env{
		WithT: NewWithT(t), t: t, cluster: c, client: cluster.NewClient(t, c.Config), idle: quickIdle,
		process: &process{}, begin: c.MarkFor(t), logDir: t.TempDir(), sim: simulator.Play(t, simulator.Options{
			Config: c.SimulatorConfig, Timing: &o.timing, Seed: 1, Programs: o.programs,
		}),
	}
	if o.shipped {
		e.binary, e.idle = cluster.ShippedOperator(t), shippedIdle
	} else {
		e.binary = cluster.FastOperator(t)
	}
	_, err := e.sim.AddNodes(t.Context(), o.nodes)
	e.Expect(err).NotTo(HaveOccurred())
	e.kubeconfig, err = c.ServiceAccountKubeconfig(t.Context(), namespace, account, "")
	e.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.finish)
	return e
}

// finish ends the operator and checks what applies to every test: no request was denied, and the operator had no
// panic and no data race.
func (e *env) finish() {
	e.endOperator()
	if e.process.log != "" {
		log, err := os.ReadFile(e.process.log)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(string(log)).NotTo(Or(ContainSubstring("panic"), ContainSubstring("DATA RACE")))
		if e.t.Failed() {
			e.t.Logf("the end of the operator's log:\n%s", tail(string(log), 20))
		}
	}
	e.Expect(e.refused().String()).To(BeEmpty(), "the shipped permissions must suffice")
}

// refused returns the operator's requests that were denied.
func (e *env) refused() cluster.Calls {
	e.t.Helper()
	return e.operatorCalls(e.process.judged).Forbidden()
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// run starts the operator as a process with its own ServiceAccount.
func (e *env) run(args ...string) {
	e.t.Helper()
	e.runWith(e.kubeconfig, args...)
}

func (e *env) runWith(kubeconfig string, args ...string) {
	e.t.Helper()
	operator, err := cluster.StartOperator(context.Background(), cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: kubeconfig, Args: args,
		LogFile: filepath.Join(e.logDir, "gpu-operator.log"),
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.process.Operator, e.process.log = operator, operator.LogFile
}

func (e *env) stop() {
	e.t.Helper()
	e.Expect(e.process.Stop()).To(Succeed())
	e.process.Operator = nil
}

// endOperator ends the operator, if one runs.
func (e *env) endOperator() {
	e.t.Helper()
	if e.process.Operator != nil {
		e.stop()
	}
}

// samplePolicy returns the default sample.
func (e *env) samplePolicy() *v1.ClusterPolicy {
	e.t.Helper()
	return cluster.PolicyFor(e.t)
}

func (e *env) create(object client.Object) {
	e.t.Helper()
	e.Expect(e.client.Create(e.t.Context(), object)).To(Succeed())
}

// edit reads the object, changes it and writes it, with a retry on conflict.
func (e *env) edit(object client.Object, change func(), options ...client.UpdateOption) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return e.client.Update(e.t.Context(), object, options...)
	})
}

func (e *env) policy() *v1.ClusterPolicy {
	e.t.Helper()
	object := &v1.ClusterPolicy{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
	return object
}

// awaitReady waits until the policy is ready with this many nodes, including auxiliary operands, and returns how long
// it took.
func (e *env) awaitReady(nodes int) time.Duration {
	e.t.Helper()
	return e.awaitReadyWithin(readyTime, nodes)
}

// awaitReadyWithin is awaitReady with another timeout.
func (e *env) awaitReadyWithin(limit time.Duration, nodes int) time.Duration {
	e.t.Helper()
	begin := time.Now()
	e.Eventually(func(g Gomega) {
		object := &v1.ClusterPolicy{}
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
		g.Expect(object.Status.State).To(Equal(v1.StateReady), e.describe(object))
		g.Expect(object.Status.ObservedGeneration).To(Equal(object.Generation))
		g.Expect(object.Status.NodeSummary.ReadyOfTotal).To(Equal(fmt.Sprintf("%d/%d", nodes, nodes)))
		g.Expect(meta.IsStatusConditionTrue(object.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue(),
			e.describe(object))
	}).WithTimeout(limit).WithPolling(100 * time.Millisecond).Should(Succeed())
	took := time.Since(begin)
	// Another controller writes them, which debounces changes.
	e.Eventually(e.nodesWithReadyCondition).WithPolling(50*time.Millisecond).Should(Equal(nodes),
		"nodes whose condition matches the policy's status")
	return took
}

// nodesWithReadyCondition counts the nodes whose own condition is True.
func (e *env) nodesWithReadyCondition() (int, error) {
	nodes := &corev1.NodeList{}
	err := e.client.List(e.t.Context(), nodes)
	ready := 0
	for i := range nodes.Items {
		if condition := nodeCondition(&nodes.Items[i]); condition != nil && condition.Status == corev1.ConditionTrue {
			ready++
		}
	}
	return ready, err
}

// describe returns a function that prints the policy's status, the nodes' metadata and the pods on them, for a failure.
func (e *env) describe(object *v1.ClusterPolicy) func() string {
	return func() string {
		nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
		if err := errors.Join(e.client.List(e.t.Context(), nodes),
			e.client.List(e.t.Context(), pods, client.InNamespace(namespace))); err != nil {
			return err.Error()
		}
		text := &strings.Builder{}
		fmt.Fprintln(text, summary(object))
		for i := range nodes.Items[:min(len(nodes.Items), 3)] {
			node := &nodes.Items[i]
			fmt.Fprintf(text, "Node %s: labels %v, annotations %v\n", node.Name, node.Labels, node.Annotations)
			for j := range pods.Items {
				if pod := &pods.Items[j]; pod.Spec.NodeName == node.Name {
					fmt.Fprintf(text, "Pod %s: %s, deleted %v, owners %v, labels %v\n", pod.Name, pod.Status.Phase,
						pod.DeletionTimestamp, pod.OwnerReferences, pod.Labels)
				}
			}
		}
		return text.String()
	}
}

func summary(object *v1.ClusterPolicy) string {
	text, err := yaml.Marshal(object.Status)
	if err != nil {
		return err.Error()
	}
	return tail(string(text), 80)
}

func (e *env) node(name string) *corev1.Node {
	e.t.Helper()
	node := &corev1.Node{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
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

func (e *env) mark() cluster.Mark {
	e.t.Helper()
	return e.cluster.MarkFor(e.t)
}

// operatorCalls returns the operator's requests in this test since the mark.
func (e *env) operatorCalls(mark cluster.Mark) cluster.Calls {
	e.t.Helper()
	calls, err := e.cluster.Since(max(mark, e.begin))
	e.Expect(err).NotTo(HaveOccurred())
	return calls.By(operatorUser)
}
