package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestThePolicyAgreesWithItsNodes: while nodes start, fail, recover, are excluded and join, the number of ready nodes
// in the policy follows the conditions of the Nodes within a second of a machine that does nothing else, and no
// operand that is ready on all nodes says that it is not scheduled.
func TestThePolicyAgreesWithItsNodes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	most := 5 * time.Second
	if cluster.FullCampaigns() { // Beside other work, each write and each event takes longer.
		most = 1500 * time.Millisecond
	}
	e := newEnv(t, envOptions{nodes: 4, timing: simulator.DefaultTiming().Scale(0.3), shipped: true})
	seen := e.followAgreement()
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(4)
	const node, plugin = "gpu-00001", "nvidia-device-plugin-daemonset"
	named := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for name, change := range map[string]struct{ do, undo func() }{
		"a device plugin fails": {
			do:   func() { e.sim.Break("device-plugin", node, simulator.CrashLoop); e.deletePod(plugin, node) },
			undo: func() { e.sim.Heal("device-plugin", node) },
		},
		"a node is opted out": {
			do:   func() { e.patch(named, `{"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}}}`) },
			undo: func() { e.patch(named, `{"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": null}}}`) },
		},
	} {
		change.do()
		e.Eventually(func() string { return e.policy().Status.NodeSummary.ReadyOfTotal }).WithTimeout(readyTime).
			Should(Equal("3/4"), name)
		change.undo()
		e.awaitReady(4)
	}
	e.deletePod("nvidia-driver-daemonset", node)
	e.settled()
	e.awaitReady(4)
	e.patch(named, `{"metadata": {"labels": {"nvidia.com/gpu.deploy.operands": "false"}}}`)
	e.awaitReady(3)
	e.patch(named, `{"metadata": {"labels": {"nvidia.com/gpu.deploy.operands": null}}}`)
	e.awaitReady(4)
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "joins"})
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(5)
	e.settled()

	longest, what := seen.longest()
	t.Logf("the longest disagreement of %d revisions lasted %s: %s", seen.revisions, longest, what)
	e.Expect(seen.revisions).To(BeNumerically(">", 10))
	e.Expect(longest).To(BeNumerically("<=", most), what)
	e.Expect(seen.contradictions).To(BeEmpty())
}

// agreement compares each stored revision of the policy with those of the Nodes.
type agreement struct {
	mu sync.Mutex
	// ready has the nodes whose condition is True.
	ready  map[string]bool
	counts int32
	// since is when the last disagreement began; zero while policy and nodes agree.
	since time.Time
	what  string
	// lasted is how long the longest one lasted, and of what it was.
	lasted time.Duration
	of     string

	revisions int
	// contradictions are operands that are ready on all nodes and said not to be scheduled.
	contradictions []string
}

// followAgreement follows the policy and the Nodes until the test ends.
func (e *env) followAgreement() *agreement {
	e.t.Helper()
	seen := &agreement{ready: map[string]bool{}}
	scheme := e.client.Scheme()
	policies, err := client.NewWithWatch(e.cluster.Config, client.Options{Scheme: scheme})
	e.Expect(err).NotTo(HaveOccurred())
	ofPolicies, err := policies.Watch(e.t.Context(), &v1.ClusterPolicyList{})
	e.Expect(err).NotTo(HaveOccurred())
	ofNodes, err := kubernetes.NewForConfigOrDie(e.cluster.Config).CoreV1().Nodes().
		Watch(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	for _, events := range []watch.Interface{ofPolicies, ofNodes} {
		e.t.Cleanup(events.Stop)
		go func() {
			for event := range events.ResultChan() {
				seen.see(event)
			}
		}()
	}
	return seen
}

func (a *agreement) see(event watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.Node:
		condition := nodeCondition(object)
		a.ready[object.Name] = condition != nil && condition.Status == corev1.ConditionTrue
	case *v1.ClusterPolicy:
		a.revisions++
		a.seePolicy(object)
	}
	a.judge()
}

func (a *agreement) seePolicy(policy *v1.ClusterPolicy) {
	if summary := policy.Status.NodeSummary; summary != nil {
		a.counts = summary.Ready
	}
	for _, operand := range policy.Status.Operands {
		if operand.Reason == v1.ReasonNotScheduled && operand.Ready == operand.Desired {
			a.contradictions = append(a.contradictions, operand.Name+": "+operand.Message)
		}
	}
}

// judge begins or ends a disagreement.
func (a *agreement) judge() {
	ready := int32(0)
	for _, is := range a.ready {
		if is {
			ready++
		}
	}
	switch {
	case ready != a.counts && a.since.IsZero():
		a.since = time.Now()
	case ready == a.counts && !a.since.IsZero():
		a.end()
	}
	if ready != a.counts {
		a.what = fmt.Sprintf("%d nodes are ready, and the policy counts %d", ready, a.counts)
	}
}

func (a *agreement) end() {
	if lasted := time.Since(a.since); lasted > a.lasted {
		a.lasted, a.of = lasted, a.what
	}
	a.since = time.Time{}
}

// longest returns how long the longest disagreement has lasted, and its numbers at its end.
func (a *agreement) longest() (time.Duration, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.IsZero() {
		a.end()
	}
	return a.lasted.Round(time.Millisecond), a.of
}
