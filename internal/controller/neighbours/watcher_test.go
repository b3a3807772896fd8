package neighbours

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"weak"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// env is a Watcher with a fake API server, and a fleet with the GPU node "a".
type env struct {
	*WithT
	t       *testing.T
	client  client.Client
	clock   *clocktesting.FakeClock
	fleet   *fleet.Fleet
	watcher *Watcher
	lists   int
	listErr error
	// read are the lists of pods that were read.
	read []weak.Pointer[corev1.Pod]
	// ctx is that of the steps; logged are the lines that they log.
	ctx    context.Context //nolint:containedctx // That of one test.
	logged []string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(begin), fleet: fleet.New()}
	e.client = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			e.lists++
			deadline, limited := ctx.Deadline()
			e.Expect(limited).To(BeTrue())
			e.Expect(time.Until(deadline)).To(BeNumerically("<=", DefaultTiming().Deadline))
			if e.listErr != nil {
				return e.listErr
			}
			err := c.List(ctx, list, options...)
			if pods, is := list.(*corev1.PodList); is && len(pods.Items) > 0 {
				e.read = append(e.read, weak.Make(&pods.Items[0]))
			}
			return err
		},
	}).Build()
	e.ctx = log.IntoContext(t.Context(), funcr.New(func(_, line string) { e.logged = append(e.logged, line) },
		funcr.Options{}))
	e.watcher = New(Options{
		Live: e.client, Fleet: e.fleet, Namespace: "gpu-operator", Clock: e.clock, Timing: DefaultTiming(),
	})
	return e
}

func (e *env) joins() {
	e.fleet.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: "a", HasGPU: true, HasDiscoveryLabels: true}})
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}
	e.fleet.Publish(fleet.Basis{Decisions: plan.Decide(nil, in)}, begin)
}

// step takes a step after this time.
func (e *env) step(after time.Duration) time.Duration {
	e.t.Helper()
	selectors, err := neighbour.Selectors()
	e.Expect(err).NotTo(HaveOccurred())
	e.clock.Step(after)
	return e.watcher.step(e.ctx, selectors)
}

// expectJittered expects the delay with up to a tenth added.
func (e *env) expectJittered(got, want time.Duration) {
	e.t.Helper()
	e.Expect(got).To(And(BeNumerically(">=", want), BeNumerically("<=", want+want/10)))
}

func (e *env) plugin(node string) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "plugin-" + node, Labels: map[string]string{"name": "nvidia-device-plugin-ds"},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: "nvcr.io/nvidia/k8s-device-plugin:v1"}}},
	}
	e.Expect(e.client.Create(e.t.Context(), pod)).To(Succeed())
	return pod
}

// Without a GPU node nothing is read. With one, pods are listed every 10 minutes.
func TestLooksNowAndThen(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.step(0)).To(Equal(2 * time.Second))
	e.Expect(e.lists).To(BeZero())
	e.joins()
	e.expectJittered(e.step(2*time.Second), time.Minute)
	once := e.lists
	e.Expect(once).To(And(BeNumerically(">", 1), BeNumerically("<", 8)), "one for each key of a label")
	e.plugin("a")
	for range 9 {
		e.Expect(e.step(time.Minute)).To(Equal(time.Minute), "the next check")
	}
	e.Expect(e.lists).To(Equal(once))
	found, known := e.fleet.Neighbours("a")
	e.Expect(found).To(BeEmpty())
	e.Expect(known).To(BeTrue())
	e.step(2 * time.Minute)
	e.Expect(e.lists).To(Equal(2 * once))
	found, _ = e.fleet.Neighbours("a")
	e.Expect(found).To(ConsistOf(neighbour.Neighbour{Kind: neighbour.DevicePlugin, Workload: "Pod kube-system/plugin-a"}))
	e.Expect(DefaultTiming()).To(Equal(Timing{
		Idle: 2 * time.Second, Interval: 10 * time.Minute, FoundInterval: time.Minute, Deadline: 10 * time.Second,
	}))
}

// While a node reports its neighbours, their end is noticed within about a minute.
func TestLooksAgainWhileSomethingIsReported(t *testing.T) {
	e := newEnv(t)
	e.joins()
	pod := e.plugin("a")
	e.expectJittered(e.step(0), time.Minute)
	reported := assess.Assessment{}
	reported.Reason = "DuplicateDevicePlugin"
	entry := *e.fleet.Get("a")
	entry.Latest = reported
	e.fleet.Set(&entry)
	e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
	e.step(time.Minute)
	found, _ := e.fleet.Neighbours("a")
	e.Expect(found).To(BeEmpty())
}

// A DRA driver that is missing in one look is still there, as its pod is replaced during an update; in two it is gone.
// Others are gone at once.
func TestADRADriverThatIsUpdatedStays(t *testing.T) {
	e := newEnv(t)
	e.joins()
	found := func() []neighbour.Kind {
		var kinds []neighbour.Kind
		neighbours, _ := e.fleet.Neighbours("a")
		for _, n := range neighbours {
			kinds = append(kinds, n.Kind)
		}
		return kinds
	}
	plugin, driver := e.plugin("a"), e.draDriver("a")
	e.step(0)
	e.Expect(found()).To(Equal([]neighbour.Kind{neighbour.DevicePlugin, neighbour.DRADriver}))
	e.Expect(e.client.Delete(t.Context(), plugin)).To(Succeed())
	e.Expect(e.client.Delete(t.Context(), driver)).To(Succeed())
	e.step(20 * time.Minute)
	e.Expect(found()).To(Equal([]neighbour.Kind{neighbour.DRADriver}), "between two pods")
	driver = e.draDriver("a")
	e.step(20 * time.Minute)
	e.Expect(found()).To(Equal([]neighbour.Kind{neighbour.DRADriver}))
	e.Expect(e.client.Delete(t.Context(), driver)).To(Succeed())
	e.step(20 * time.Minute)
	e.Expect(found()).To(Equal([]neighbour.Kind{neighbour.DRADriver}), "missing once again")
	e.listErr = errors.New("unavailable")
	e.step(20 * time.Minute)
	e.listErr = nil
	e.Expect(found()).To(Equal([]neighbour.Kind{neighbour.DRADriver}), "a look that failed")
	e.step(20 * time.Minute)
	e.Expect(found()).To(BeEmpty(), "gone")
}

// What is kept of the last look is not part of this one, whatever else is on the node.
func TestADRADriverAmongOthersGoes(t *testing.T) {
	e := newEnv(t)
	e.joins()
	e.plugin("a")
	for _, name := range []string{"one", "two"} {
		e.running(name, "a", "dcgm-exporter", "dcgm-exporter")
	}
	driver := e.draDriver("a")
	e.step(0)
	e.Expect(e.client.Delete(t.Context(), driver)).To(Succeed())
	for _, left := range []int{4, 3, 3} {
		e.step(20 * time.Minute)
		found, _ := e.fleet.Neighbours("a")
		e.Expect(found).To(HaveLen(left))
	}
}

// draDriver creates a pod of a DRA driver on the node.
func (e *env) draDriver(node string) *corev1.Pod {
	e.t.Helper()
	return e.running("driver-"+node, node, "dra-driver-nvidia-gpu", "gpu-kubelet-plugin")
}

// running creates a pod with this label and program on the node.
func (e *env) running(name, node, label, program string) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "dra", Name: name, Labels: map[string]string{"app.kubernetes.io/name": label},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Command: []string{program}}}},
	}
	e.Expect(e.client.Create(e.t.Context(), pod)).To(Succeed())
	return pod
}

// What was found stays while the API server does not answer, which is tried again soon. The first of several failures
// is logged, but not that of a Watcher that is stopped.
func TestFailedLooks(t *testing.T) {
	e := newEnv(t)
	e.joins()
	e.listErr = errors.New("unavailable")
	stopped, stop := context.WithCancel(e.ctx)
	stop()
	running := e.ctx
	e.ctx = stopped
	e.step(0)
	e.Expect(e.logged).To(BeEmpty())
	e.ctx, e.watcher.failed = running, false
	for range 3 {
		e.expectJittered(e.step(0), time.Minute)
	}
	e.Expect(e.logged).To(ConsistOf(MatchRegexp("Failed to look .*listing pods with .*: unavailable")))
	_, known := e.fleet.Neighbours("a")
	e.Expect(known).To(BeFalse())
	e.listErr = nil
	e.plugin("a")
	e.step(time.Minute)
	found, _ := e.fleet.Neighbours("a")
	e.Expect(found).To(HaveLen(1))
	e.Expect(e.logged).To(HaveLen(1), "nothing else is logged")
	e.listErr = errors.New("unavailable")
	e.step(20 * time.Minute)
	e.Expect(e.logged).To(HaveLen(2), "a failure after a look")
	found, _ = e.fleet.Neighbours("a")
	e.Expect(found).To(HaveLen(1))
}

// Of the pods that were read only the neighbours stay in memory: a cluster may have many other pods in their lists.
func TestPodsAreReleased(t *testing.T) {
	e := newEnv(t)
	e.joins()
	e.plugin("a")
	for range 3 {
		e.step(20 * time.Minute)
	}
	e.Expect(e.read).To(HaveLen(3))
	heap.Collect()
	for i, pods := range e.read {
		alive := pods.Value() != nil
		e.Expect(alive).To(BeFalse(), "list %d", i+1)
	}
	found, _ := e.fleet.Neighbours("a")
	e.Expect(found).To(HaveLen(1))
}

// pages answers lists in pages of one pod.
type pages struct {
	client.Reader
	options []client.ListOptions
}

func (p *pages) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	p.options = append(p.options, *asked)
	first := 0
	if _, err := fmt.Sscan("0"+asked.Continue, &first); err != nil {
		return err
	}
	all := &corev1.PodList{}
	if err := p.Reader.List(ctx, all, &client.ListOptions{LabelSelector: asked.LabelSelector}); err != nil {
		return err
	}
	pods, isPods := list.(*corev1.PodList)
	if !isPods {
		return fmt.Errorf("unexpected list of %T", list)
	}
	if first < len(all.Items) {
		pods.Items = all.Items[first : first+1]
	}
	if first+1 < len(all.Items) {
		pods.Continue = fmt.Sprint(first + 1)
	}
	return nil
}

// All pages are read, and each fits in memory, however large the pods are: 25 have at most 40 MB. With a resource
// version the API server would not divide the list, or refuse it.
func TestReadsAllPages(t *testing.T) {
	e := newEnv(t)
	e.joins()
	paged := &pages{Reader: e.client}
	e.watcher.Live = paged
	for _, node := range []string{"a", "b", "c"} {
		e.plugin(node)
	}
	e.step(0)
	for _, node := range []string{"a", "b", "c"} {
		found, _ := e.fleet.Neighbours(node)
		e.Expect(found).To(HaveLen(1), node)
	}
	for _, asked := range paged.options {
		e.Expect(asked.Raw).To(BeNil())
		e.Expect(asked.Limit).To(BeNumerically("~", 25, 24))
	}
}

// Start looks until the context ends, on the leader only.
func TestStart(t *testing.T) {
	e := newEnv(t)
	e.joins()
	e.plugin("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	e.Eventually(e.fleet.NeighboursChanged()).WithTimeout(time.Minute).Should(Receive())
	cancel()
	e.Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	e.Expect(e.watcher.NeedLeaderElection()).To(BeTrue())
}
