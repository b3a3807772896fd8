package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// operatorBinary builds the manager once for all stories.
var operatorBinary = sync.OnceValues(func() (string, error) {
	return cluster.BuildOperator(context.Background(), os.Stderr)
})

// bed is a control plane with simulated GPU nodes and nothing installed.
type bed struct {
	*WithT
	t        *testing.T
	cluster  *cluster.Cluster
	client   client.Client
	binary   string
	home     string
	operator *cluster.Operator
}

func newBed(t *testing.T, nodes int) *bed {
	t.Helper()
	return newBedOn(t, "", nodes)
}

// newBedOn starts a release of Kubernetes, as cluster.Options name it.
func newBedOn(t *testing.T, version string, nodes int) *bed {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	g := NewWithT(t)
	_, err := cluster.EnsureBinaries(t.Context(), version, os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	binary, err := operatorBinary()
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Version: version})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	timing := simulator.DefaultTiming().Scale(0.1)
	sim, err := simulator.New(simulator.Options{Config: c.SimulatorConfig, Timing: &timing, Seed: 1})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(sim.Stop)
	g.Expect(sim.Start(t.Context())).To(Succeed())
	_, err = sim.AddNodes(t.Context(), nodes)
	g.Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, nodev1.AddToScheme, v1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	admin, err := client.New(c.Config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	b := &bed{WithT: g, t: t, cluster: c, client: admin, binary: binary, home: t.TempDir()}
	t.Cleanup(b.stop)
	return b
}

// in is the bed as a subtest uses it: what fails there ends the subtest.
func (b *bed) in(t *testing.T) *bed {
	view := *b
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// helm runs Helm with all rights and returns what it prints.
func (b *bed) helm(args ...string) string {
	b.t.Helper()
	out, err := b.tryHelm(args...)
	b.Expect(err).NotTo(HaveOccurred())
	return out
}

func (b *bed) tryHelm(args ...string) (string, error) {
	b.t.Helper()
	return packaged.Helm(b.t.Context(), repo, b.home, []string{"KUBECONFIG=" + b.cluster.Kubeconfig()}, args...)
}

// kubeconfig is one with the rights of an account in the namespace, once the account is there.
func (b *bed) kubeconfig(in, account string) string {
	b.t.Helper()
	path := ""
	b.Eventually(func() (err error) {
		path, err = b.cluster.ServiceAccountKubeconfig(b.t.Context(), in, account, "")
		return err
	}).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	return path
}

// run starts the operator as a process with the account of the chart.
func (b *bed) run(in string) {
	b.t.Helper()
	operator, err := cluster.StartOperator(context.Background(), cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: b.kubeconfig(in, "gpu-operator"), Namespace: in,
		LogFile: filepath.Join(b.cluster.LogDir, "gpu-operator.log"),
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.operator = operator
}

// stop ends the operator and judges what must hold in every story: no call of it was refused for want of
// rights, and it never panicked.
func (b *bed) stop() {
	if b.operator == nil {
		return
	}
	b.Expect(b.operator.Stop()).To(Succeed())
	log, err := os.ReadFile(b.operator.LogFile)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(log)).NotTo(ContainSubstring("panic"))
	b.operator = nil
}

// noneForbidden judges the calls of the operator since a mark.
func (b *bed) noneForbidden(in string, since cluster.Mark) {
	b.t.Helper()
	calls, err := b.cluster.Since(since)
	b.Expect(err).NotTo(HaveOccurred())
	own := calls.By(cluster.ServiceAccountUser(in, "gpu-operator"))
	b.Expect(own).NotTo(BeEmpty())
	b.Expect(own.Forbidden().String()).To(BeEmpty(), "the rights of the chart must do")
}

func (b *bed) mark() cluster.Mark {
	b.t.Helper()
	mark, err := b.cluster.Mark()
	b.Expect(err).NotTo(HaveOccurred())
	return mark
}

// policy is the chart's policy; nil while there is none.
func (b *bed) policy() *v1.ClusterPolicy {
	b.t.Helper()
	policy := &v1.ClusterPolicy{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Name: "cluster-policy"}, policy)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.Expect(err).NotTo(HaveOccurred())
	return policy
}

// awaitReady waits until the operator calls its present spec ready.
func (b *bed) awaitReady() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy := b.policy()
		g.Expect(policy).NotTo(BeNil())
		text, err := yaml.Marshal(policy.Status)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%s", text)
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// pods are the UIDs of the operands' pods by their names.
func (b *bed) pods() map[string]types.UID {
	b.t.Helper()
	list := &corev1.PodList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/managed-by": "gpu-operator"})).To(Succeed())
	found := map[string]types.UID{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].UID
	}
	return found
}

// uninstall ends the operator and takes the cluster back to before the installation. What the garbage collector
// would remove is removed at once.
func (b *bed) uninstall(in string) {
	b.t.Helper()
	b.stop()
	b.helm("uninstall", release, "--namespace", in)
	b.Expect(b.policy()).To(BeNil())
	ctx := b.t.Context()
	owned := client.HasLabels{"nvidia.com/gpu-operator.operand"}
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}} {
		b.Expect(b.client.DeleteAllOf(ctx, kind, client.InNamespace(in), owned)).To(Succeed())
	}
	b.Expect(b.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		b.release(&nodes.Items[i])
	}
	b.Eventually(func() (int, error) {
		pods := &corev1.PodList{}
		err := b.client.List(ctx, pods, client.InNamespace(in))
		return len(pods.Items), err
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(BeZero())
}

// release takes the labels of NVIDIA's and the condition off a node.
func (b *bed) release(node *corev1.Node) {
	b.t.Helper()
	b.Eventually(func() error {
		if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				delete(node.Labels, key)
			}
		}
		return b.client.Update(b.t.Context(), node)
	}).WithTimeout(10 * time.Second).Should(Succeed())
}

// daemonSets are the names of those in the namespace.
func (b *bed) daemonSets(in string) []string {
	b.t.Helper()
	list := &appsv1.DaemonSetList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(in))).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
