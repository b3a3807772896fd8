package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	namespace     = cluster.OperatorNamespace
	account       = "gpu-operator"
	repo          = "../.."
	tenantApp     = "training"
	nodes         = 8
	driverVersion = "580.95.05"
	readyTime     = 4 * time.Minute
	// idle is how long the operator must write nothing to be at rest.
	idle = 4 * time.Second
)

// clusters are lent to the tests.
var clusters cluster.Pool

// env is a control plane with GPU nodes on which NVIDIA's operator has run, with a GPU pod on each.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	// logDir has the logs of this test's operators.
	logDir   string
	client   client.Client
	theirs   *Player
	watch    *Watcher
	operator *cluster.Operator
	// running: the operator has not been ended.
	running bool
}

// newEnv starts the cluster, and awaits that NVIDIA's stack runs.
func newEnv(t *testing.T, runs stack) *env {
	t.Helper()
	e := newCluster(t, runs)
	e.Expect(e.theirs.Reconcile(t.Context(), e.policy())).To(Succeed())
	e.awaitPods(false)
	e.deployTenants()
	e.watch = NewWatcher(t, e.cluster.SimulatorConfig)
	return e
}

// newNodes starts the cluster with nodes of these kinds in turn, and nothing else.
func newNodes(t *testing.T, kinds []simulator.NodeSpec) *env {
	t.Helper()
	c := clusters.Lend(t, "")
	e := &env{
		WithT: NewWithT(t), t: t, cluster: c, logDir: t.TempDir(), client: cluster.NewClient(t, c.SimulatorConfig),
	}
	e.simulate(kinds)
	t.Cleanup(e.finish)
	return e
}

// newCluster starts the cluster with the nodes and the policy of the stack, and no operator.
func newCluster(t *testing.T, runs stack) *env {
	t.Helper()
	e := newNodes(t, runs.nodes)
	// The CRD of NVIDIA's operator has fewer fields. What counts here is that it and the namespace exist.
	objects, err := cluster.Render(filepath.Join(repo, "config/default"))
	e.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if kind := object.GetKind(); kind == "CustomResourceDefinition" || kind == "Namespace" {
			one := append(objects[:0:0], object)
			e.Expect(cluster.InstallObjects(t.Context(), e.cluster.SimulatorConfig, one)).To(Succeed())
		}
	}
	e.createPolicy(runs.driver)
	// The account of NVIDIA's operator has the same name.
	as := rest.CopyConfig(e.cluster.SimulatorConfig)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: cluster.ServiceAccountUser(namespace, account), Groups: []string{"system:masters"},
	}
	theirs, err := client.New(as, client.Options{Scheme: e.client.Scheme()})
	e.Expect(err).NotTo(HaveOccurred())
	e.theirs = NewPlayer(theirs, namespace, "nvcr.io/nvidia/driver:"+driverVersion+"-ubuntu24.04")
	if runs.drivers != nil {
		e.theirs.Drivers = runs.drivers(e)
	}
	return e
}

// simulate starts nodes of these kinds in turn.
func (e *env) simulate(kinds []simulator.NodeSpec) {
	e.t.Helper()
	timing := simulator.DefaultTiming().Scale(0.1)
	sim := simulator.Play(e.t, simulator.Options{Config: e.cluster.SimulatorConfig, Timing: &timing, Modules: true})
	for i := range nodes {
		node := kinds[i%len(kinds)]
		node.Name = fmt.Sprintf("node-%d", i)
		_, err := sim.AddNode(e.t.Context(), node)
		e.Expect(err).NotTo(HaveOccurred())
	}
}

// createPolicy creates the sample policy with the driver of NVIDIA's stack, which may be changed.
func (e *env) createPolicy(change func(*v1.DriverSpec)) {
	e.t.Helper()
	policy := cluster.PolicyFor(e.t)
	policy.Spec.Driver.Repository, policy.Spec.Driver.Image = "nvcr.io/nvidia", "driver"
	policy.Spec.Driver.Version = driverVersion
	if change != nil {
		change(policy.Spec.Driver)
	}
	e.Expect(e.client.Create(e.t.Context(), policy)).To(Succeed())
}

func (e *env) policy() *v1.ClusterPolicy {
	e.t.Helper()
	policy := &v1.ClusterPolicy{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: "cluster-policy"}, policy)).To(Succeed())
	return policy
}

// deployTenants runs a pod with a GPU on each node.
func (e *env) deployTenants() {
	e.t.Helper()
	labels := map[string]string{"app": tenantApp}
	e.Expect(e.client.Create(e.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tenantApp},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "example.com/training",
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
						"nvidia.com/gpu": resource.MustParse("1"),
					}},
				}}},
			},
		},
	})).To(Succeed())
	e.Eventually(func() int { return len(e.pods("default", true)) }).Should(Equal(nodes), "GPU pods")
}

// pods returns the pods of a namespace, all or the ready ones.
func (e *env) pods(in string, ready bool) []corev1.Pod {
	e.t.Helper()
	list := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(in))).To(Succeed())
	var found []corev1.Pod
	for _, pod := range list.Items {
		if !ready || isReady(&pod) && pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	return found
}

// awaitPods waits until nothing is unfinished.
func (e *env) awaitPods(ours bool) {
	e.t.Helper()
	e.Eventually(func() string { return e.unfinished(ours) }).Should(BeEmpty())
}

// unfinished describes a DaemonSet that is not of this operator, or if ours is false of NVIDIA's, or that does not have
// updated and ready pods on all of its nodes; empty if there is none. Drivers need not be updated.
func (e *env) unfinished(ours bool) string {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	drivers := 0
	for i := range list.Items {
		ds := &list.Items[i]
		status := ds.Status
		isDriver := ds.Labels[component] == driverComponent
		if !ours && !isDriver &&
			!slices.ContainsFunc(daemonSets(), func(d daemonSet) bool { return d.name == ds.Name }) {
			continue
		}
		if _, applied := ds.Annotations["nvidia.com/gpu-operator.digest"]; applied != ours {
			return fmt.Sprintf("%s is of the other operator", ds.Name)
		}
		if status.ObservedGeneration != ds.Generation || status.NumberReady != status.DesiredNumberScheduled ||
			!isDriver && status.UpdatedNumberScheduled != status.DesiredNumberScheduled {
			return fmt.Sprintf("%s: %+v", ds.Name, status)
		}
		if isDriver {
			drivers += int(status.NumberReady)
		}
	}
	if drivers != nodes {
		return fmt.Sprintf("%d drivers in %d DaemonSets", drivers, len(list.Items))
	}
	return ""
}

// install installs this operator as kubectl does, without starting it.
func (e *env) install() {
	e.t.Helper()
	err := cluster.Install(e.t.Context(), e.cluster.SimulatorConfig, filepath.Join(repo, "config/default"))
	e.Expect(err).NotTo(HaveOccurred())
}

// start starts this operator.
func (e *env) start() {
	e.t.Helper()
	e.startAs(account)
}

// startAs starts this operator with the rights of an account and with flags.
func (e *env) startAs(account string, flags ...string) {
	e.t.Helper()
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(e.t.Context(), namespace, account, "")
	e.Expect(err).NotTo(HaveOccurred())
	e.operator, err = cluster.StartOperator(e.t.Context(), cluster.OperatorOptions{
		Binary: cluster.FastOperator(e.t), Kubeconfig: kubeconfig, Args: flags,
		LogFile: filepath.Join(e.logDir, "gpu-operator.log"),
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.running = true
}

// stop ends this operator.
func (e *env) stop() {
	if e.running {
		e.operator.Kill()
	}
	e.running = false
}

// awaitReady waits until the policy has this state and GPUs can be used on all nodes.
func (e *env) awaitReady(state v1.State) {
	e.t.Helper()
	e.Eventually(func() string {
		status := e.policy().Status
		if status.NodeSummary == nil {
			return "no summary"
		}
		return fmt.Sprintf("%s %d/%d", status.State, status.NodeSummary.Ready, status.NodeSummary.Total)
	}).Should(Equal(fmt.Sprintf("%s %d/%d", state, nodes, nodes)))
}

// calls returns this operator's writes since the mark.
func (e *env) calls(mark cluster.Mark) cluster.Calls {
	e.t.Helper()
	calls, err := e.cluster.Since(mark)
	e.Expect(err).NotTo(HaveOccurred())
	return calls.By(cluster.ServiceAccountUser(namespace, account))
}

func (e *env) mark() cluster.Mark {
	e.t.Helper()
	return e.cluster.MarkFor(e.t)
}

// finish ends the operator, and prints its log if the test has failed.
func (e *env) finish() {
	if e.operator == nil {
		return
	}
	e.stop()
	e.Expect(e.calls(0).Forbidden().String()).To(BeEmpty(), "the shipped permissions must suffice")
	if log, err := os.ReadFile(e.operator.LogFile); e.t.Failed() {
		e.t.Logf("the operator's log (%v):\n%s", err, log)
		list := &corev1.PodList{}
		_ = e.client.List(context.Background(), list, client.InNamespace(namespace))
		for _, pod := range list.Items {
			e.t.Logf("%s %s %v %s", pod.Name, pod.Spec.NodeName, isReady(&pod), pod.Status.Phase)
		}
	}
}
