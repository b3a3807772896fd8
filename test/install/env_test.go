package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// clusters are lent to the tests.
var clusters cluster.Pool

// env is a control plane with simulated GPU nodes and nothing installed.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	// logDir has the logs of this test's operators.
	logDir string
	client client.Client
	binary string
	// tool is the user's Helm.
	tool packaged.Client
	// variables are further ones of the operator.
	variables []string
	operator  *cluster.Operator
}

func newEnv(t *testing.T, nodes int) *env {
	t.Helper()
	return newEnvOn(t, "", nodes)
}

// newEnvOn starts a release of Kubernetes, named as in cluster.Options.
func newEnvOn(t *testing.T, version string, nodes int) *env {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	c, timing := clusters.Lend(t, version), simulator.DefaultTiming().Scale(0.1)
	sim := simulator.Play(t, simulator.Options{Config: c.SimulatorConfig, Timing: &timing, Seed: 1})
	e := &env{
		WithT: NewWithT(t), t: t, cluster: c, logDir: t.TempDir(), client: cluster.NewClient(t, c.Config),
		binary: cluster.ShippedOperator(t), tool: packaged.Client{
			Repo: repo, Home: t.TempDir(), Kubeconfig: c.Kubeconfig(), Namespace: namespace,
		},
	}
	_, err := sim.AddNodes(t.Context(), nodes)
	e.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.stop)
	return e
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// helm runs Helm with all permissions and returns its output.
func (e *env) helm(args ...string) string {
	e.t.Helper()
	out, err := e.tryHelm(args...)
	e.Expect(err).NotTo(HaveOccurred())
	return out
}

func (e *env) tryHelm(args ...string) (string, error) {
	e.t.Helper()
	return e.tool.Run(e.t.Context(), args...)
}

// kubeconfig returns one with the permissions of an account in the namespace, once the account exists.
func (e *env) kubeconfig(in, account string) string {
	e.t.Helper()
	path := ""
	e.Eventually(func() (err error) {
		path, err = e.cluster.ServiceAccountKubeconfig(e.t.Context(), in, account, "")
		return err
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
	return path
}

// run starts the operator as a process with the chart's ServiceAccount, and with further variables, as NAME=value.
func (e *env) run(in string, variables ...string) {
	e.t.Helper()
	operator, err := cluster.StartOperator(context.Background(), cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: e.kubeconfig(in, "gpu-operator"), Namespace: in, Env: append(variables, e.variables...),
		LogFile: filepath.Join(e.logDir, "gpu-operator.log"),
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.operator = operator
}

// stop ends the operator and checks what applies to every test: no request of it was denied, and it never panicked.
func (e *env) stop() {
	if e.operator == nil {
		return
	}
	e.Expect(e.operator.Stop()).To(Succeed())
	log, err := os.ReadFile(e.operator.LogFile)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(string(log)).NotTo(ContainSubstring("panic"))
	e.operator = nil
}

// noneForbidden checks the requests of the operator since a mark.
func (e *env) noneForbidden(in string, since cluster.Mark) {
	e.t.Helper()
	calls, err := e.cluster.Since(since)
	e.Expect(err).NotTo(HaveOccurred())
	own := calls.By(cluster.ServiceAccountUser(in, "gpu-operator"))
	e.Expect(own).NotTo(BeEmpty())
	e.Expect(own.Forbidden().String()).To(BeEmpty(), "the permissions of the chart must suffice")
}

func (e *env) mark() cluster.Mark {
	e.t.Helper()
	return e.cluster.MarkFor(e.t)
}

// policy returns the chart's policy; nil while there is none.
func (e *env) policy() *v1.ClusterPolicy {
	e.t.Helper()
	policy := &v1.ClusterPolicy{}
	err := e.client.Get(e.t.Context(), client.ObjectKey{Name: "cluster-policy"}, policy)
	if apierrors.IsNotFound(err) {
		return nil
	}
	e.Expect(err).NotTo(HaveOccurred())
	return policy
}

// awaitReady waits until the operator reports the current spec as ready.
func (e *env) awaitReady() {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		policy := e.policy()
		g.Expect(policy).NotTo(BeNil())
		text, err := yaml.Marshal(policy.Status)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%s", text)
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// pods returns the UIDs of the operands' pods by name.
func (e *env) pods() map[string]types.UID {
	e.t.Helper()
	list := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace),
		client.MatchingLabels{"app.kubernetes.io/managed-by": "gpu-operator"})).To(Succeed())
	found := map[string]types.UID{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].UID
	}
	return found
}

// uninstall ends the operator and resets the cluster to before the installation, without waiting for the garbage
// collector.
func (e *env) uninstall(in string) {
	e.t.Helper()
	e.stop()
	e.helm("uninstall", release, "--namespace", in, "--no-hooks")
	e.abandon()
	ctx := e.t.Context()
	owned := client.HasLabels{"nvidia.com/gpu-operator.operand"}
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}} {
		e.Expect(e.client.DeleteAllOf(ctx, kind, client.InNamespace(in), owned)).To(Succeed())
	}
	e.Expect(e.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		e.release(&nodes.Items[i])
	}
	e.Eventually(func() (int, error) {
		pods := &corev1.PodList{}
		err := e.client.List(ctx, pods, client.InNamespace(in))
		return len(pods.Items), err
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(BeZero())
}

// abandon takes the finalizer off a policy that no operator removes any more.
func (e *env) abandon() {
	e.t.Helper()
	policy := e.policy()
	if policy == nil {
		return
	}
	e.Expect(policy.DeletionTimestamp).NotTo(BeNil())
	e.Expect(cluster.DropFinalizers(e.t.Context(), e.client, policy)).To(Succeed())
	e.Expect(e.policy()).To(BeNil())
}

// release removes the labels of nvidia.com and the condition from a node.
func (e *env) release(node *corev1.Node) {
	e.t.Helper()
	e.Eventually(func() error {
		if err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				delete(node.Labels, key)
			}
		}
		return e.client.Update(e.t.Context(), node)
	}).WithTimeout(time.Minute).Should(Succeed())
}

// daemonSets returns the names of the DaemonSets in the namespace.
func (e *env) daemonSets(in string) []string {
	e.t.Helper()
	var names []string
	for _, ds := range e.daemonSetsOf(in) {
		names = append(names, ds.Name)
	}
	return names
}

func (e *env) daemonSetsOf(in string) []appsv1.DaemonSet {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(in))).To(Succeed())
	return list.Items
}
