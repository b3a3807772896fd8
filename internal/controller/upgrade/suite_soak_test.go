package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

const (
	// soakPasses is the number of passes of the soak, and settledPasses that after which nothing more may be kept.
	soakPasses, settledPasses = 2000, 200
	// maxGrowth limits how many bytes more may live after the soak. That is less than 3 kB for each pass: a pass reads
	// several times as much.
	maxGrowth = 5 << 20
	// maxUsers is the number of pods of users before they end.
	maxUsers = 20
)

// soakPass runs a pass after changes of the cluster: each 200 passes there is a new driver, which is installed by the
// next ones, a label changes each 5 passes, and pods of users come each 10 and go. Nodes leave and others join: while
// the evictions of their pods are rejected, just after a write to them, and while writes to them fail.
func (f *fixture) soakPass(ctx context.Context, pass int) {
	GinkgoHelper()
	phase := pass % 200
	switch phase {
	case 2:
		f.blocked.Store(true)
	case 8:
		f.replaceNode(ctx, 0, fmt.Sprint("node-", pass))
		f.blocked.Store(false)
	case 50, 60:
		f.update(ctx, f.nodes[1], func(node *corev1.Node) {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, labels.UpgradeRecord, "{")
		})
		if phase == 60 {
			f.failNext(patchNode, apierrors.NewInternalError(errors.New("etcd is full")))
		}
	case 51, 61:
		f.replaceNode(ctx, 1, fmt.Sprint("node-", pass))
	}
	node := f.nodes[pass%len(f.nodes)]
	if phase == 0 {
		f.target = fmt.Sprint("driver-", pass)
	}
	if pass%5 == 0 {
		f.update(ctx, node, func(node *corev1.Node) { node.Labels["example.com/changes"] = fmt.Sprint(pass) })
	}
	if pass%10 == 0 {
		f.addUser(ctx, fmt.Sprint("train-", pass), node, 1)
	}
	if phase < 40 {
		f.play(ctx)
	}
	_, err := f.pass(ctx, f.manager, 10*time.Second)
	Expect(err).NotTo(HaveOccurred())
	if phase == 40 {
		// The other node has joined with the new driver.
		Expect(f.reported()).To(BeEmpty())
		Expect(f.node(ctx, f.nodes[1]).Labels).To(HaveKeyWithValue(labels.UpgradeState, "upgrade-done"))
	}
	if phase == 199 {
		// As the API server drops old Events, and as users end their pods.
		Expect(f.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default"))).To(Succeed())
		Expect(f.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(users))).To(Succeed())
		f.takeWrites()
	}
}

// replaceNode removes a node with its pods, and adds one with another name.
func (f *fixture) replaceNode(ctx context.Context, i int, name string) {
	GinkgoHelper()
	left := f.nodes[i]
	pods := &corev1.PodList{}
	Expect(f.client.List(ctx, pods)).To(Succeed())
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == left {
			f.deletePod(ctx, &pods.Items[i])
		}
	}
	Expect(f.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: left}})).To(Succeed())
	f.fleet.Delete(left)
	f.nodes[i] = name
	f.addNode(ctx, name)
	f.play(ctx)
}

var _ = Describe("The memory of many passes", func() {
	It("does not grow", func(ctx SpecContext) {
		quiet := log.IntoContext(ctx, logr.Discard())
		f := newFakeFixture(quiet, automatic(), "a", "b")
		var settled int64
		var goroutines int
		most := map[string]int{}
		for pass := range soakPasses {
			f.soakPass(quiet, pass)
			for what, size := range f.reconciler.Remembered() {
				most[what] = max(most[what], size)
			}
			if pass == settledPasses {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		grown := heap.Live() - settled
		GinkgoWriter.Printf("heap after %d passes: %d kB, and %d kB more at the end\n", settledPasses, settled>>10, grown>>10)
		Expect(grown).To(BeNumerically("<", maxGrowth))
		for _, what := range []string{"versions", "failures", "replaced"} {
			Expect(most[what]).To(And(BeNumerically(">", 0), BeNumerically("<=", len(f.nodes))), what)
		}
		Expect(most["rejected"]).To(And(BeNumerically(">", 0), BeNumerically("<=", maxUsers)), "pods of users")
		Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
		runtime.KeepAlive(f)
	})
})
