//go:build linux

package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// failure is one line of the table of failures.
type failure struct {
	target target
	mode   mode
	// reported is how long it took until the failure and its cause were reported, message what was reported;
	// recorded how long until there was an Event of it, with this reason.
	reported, recorded time.Duration
	message, reason    string
	// recovery is how long after the repair all was healthy again, without further action.
	recovery time.Duration
	// hidden: the failure cannot be detected, see mode; done: all was healthy in the end.
	hidden, done bool
}

// round are failures at the same time, at most one of which makes GPUs unusable.
type round struct {
	targets []target
	mode    mode
	// again waits until it has failed once more; leave does not wait until all is healthy.
	again, leave bool
}

func (r round) name() string {
	var names []string
	for _, p := range r.targets {
		names = append(names, p.program)
	}
	return strings.Join(names, ", ") + ": " + r.mode.name
}

// sampleRounds are the rounds of every run, which take little time. The last one is left to the restart of the node
// that follows, as a failure counts for another minute.
func sampleRounds() []round {
	return []round{
		{targets: []target{devicePlugin}, mode: hangs},
		{targets: []target{discovery}, mode: exits, leave: true},
	}
}

// allRounds are all modes of failing for all programs that are played.
func allRounds() []round {
	var all []round
	for _, targets := range [][]target{
		{driverManager}, {driver}, {toolkit}, {devicePlugin}, {discovery, exporter, engine, partitions},
	} {
		for _, m := range []mode{exits, hangs, slow, memory, missing} {
			all = append(all, round{targets: targets, mode: m, again: m.name == exits.name})
		}
	}
	return all
}

// TestFailures checks that each failure of each program is reported, by the policy and by the node, with operand,
// container and cause, and that all is healthy again once the cause is gone.
func TestFailures(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skip("all failures take half an hour: set TEST_FULL=1; TestFromNothingToValidated has some of them")
	}
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	b.createPolicy(limited())
	b.awaitHealthy("3m")
	b.checkFailures(allRounds())
}

// crashLoop is the name of an exit that repeats.
const crashLoop = "crash loop"

// checkFailures goes through the rounds, and prints the table.
func (b *env) checkFailures(rounds []round) {
	var table []*failure
	for _, r := range rounds {
		var lines, again []*failure
		for _, p := range r.targets {
			lines = append(lines, &failure{target: p, mode: r.mode})
			if r.again {
				loop := r.mode
				loop.name = crashLoop
				again = append(again, &failure{target: p, mode: loop})
			}
		}
		lines = append(lines, again...)
		table = append(table, lines...)
		b.t.Run(r.name(), func(t *testing.T) { b.in(t).checkRound(r, lines) })
	}
	b.t.Log(failureTable(table))
}

func (b *env) checkRound(r round, lines []*failure) {
	b.awaitHealthy("4m")
	begin := time.Now()
	repairs := b.inflict(r)
	for _, line := range lines {
		if line.mode.name == crashLoop {
			b.awaitRestarts(line.target, 2)
		}
		b.awaitReported(line, begin)
		b.awaitRecorded(line, begin)
	}
	repaired := time.Now()
	for _, repair := range repairs {
		repair()
	}
	if r.leave {
		return
	}
	b.awaitHealthy("4m")
	for _, line := range lines {
		b.awaitWork(line.target)
	}
	b.t.Logf("all was healthy %s after the repair", since(repaired))
	for _, line := range lines {
		line.recovery, line.done = since(repaired), true
	}
}

// inflict makes the targets of a round fail, and restarts their pods. It returns functions that remove the causes.
func (b *env) inflict(r round) (repairs []func()) {
	for _, p := range r.targets {
		repairs = append(repairs, b.breakTarget(p, r.mode))
	}
	for _, p := range r.targets {
		b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(b.t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "app=" + p.app})).To(Succeed())
	}
	for _, p := range r.targets {
		if p == toolkit && r.mode.pending {
			b.renewNeeding(p)
		}
	}
	return repairs
}

// renewNeeding restarts the pods of the device plugin if the toolkit has no probe, because pods that run need nothing
// more of it. As on a node that joins, they start when the former toolkit has removed its handler.
func (b *env) renewNeeding(p target) {
	b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).State.Running).NotTo(BeNil()) }, "60s", "50ms").
		Should(Succeed(), b.describe)
	b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(b.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app=" + devicePlugin.app})).To(Succeed())
}

func (b *env) breakTarget(p target, m mode) (repair func()) {
	if m.order != nil {
		b.Expect(b.machine.Order(p.program, m.order)).To(Succeed())
		undo := func() { b.Expect(b.machine.Order(p.program, nil)).To(Succeed()) }
		b.t.Cleanup(undo)
		if m.itself {
			return func() {}
		}
		return undo
	}
	name, err := node.ImageName(p.component)
	b.Expect(err).NotTo(HaveOccurred())
	kept := "example.com/kept:" + p.component
	b.Expect(b.machine.Tag(b.t.Context(), name, kept)).To(Succeed())
	b.Expect(b.machine.Untag(b.t.Context(), name)).To(Succeed())
	undo := func() { b.Expect(b.machine.Tag(context.Background(), kept, name)).To(Succeed()) }
	b.t.Cleanup(undo)
	return undo
}

// awaitReported waits until the policy and the node report a failure.
func (b *env) awaitReported(line *failure, begin time.Time) {
	b.t.Helper()
	p := line.target
	if line.hidden = line.mode.hidden(p); line.hidden {
		b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).State.Running).NotTo(BeNil()) }, "30s", "100ms").
			Should(Succeed(), b.describe)
		return
	}
	causes := containAll(append(line.mode.causes(p), machineName))
	auxiliary := b.isAuxiliary(p.operand)
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		condition := b.gpuReady(g)
		if auxiliary {
			g.Expect(policy.Status.State).To(Equal(v1.StateReady))
			g.Expect(meta.IsStatusConditionFalse(policy.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue())
			g.Expect(condition.Status).To(Equal(corev1.ConditionTrue), condition.Message)
			line.message = operandMessage(policy, string(p.operand))
			g.Expect(line.message).To(causes)
			return
		}
		g.Expect(policy.Status.State).To(Equal(v1.StateNotReady))
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
		g.Expect(condition.Message).To(And(causes, ContainSubstring("operand "+string(p.operand)+":")))
		line.message = condition.Message
		g.Expect(policy.Status.Nodes).To(HaveLen(1))
		listed := policy.Status.Nodes[0]
		g.Expect(listed.Operand).To(Equal(string(p.operand)))
		g.Expect(listed.Name + " " + listed.Reason + " " + listed.Message).To(causes)
	}, "2m", "100ms").Should(Succeed(), b.describe)
	line.reported = since(begin)
	b.t.Logf("%s after %s: %s", line.mode.name, line.reported, line.message)
}

func containAll(parts []string) OmegaMatcher {
	var all []OmegaMatcher
	for _, part := range parts {
		all = append(all, ContainSubstring(part))
	}
	return And(all...)
}

func operandMessage(policy *v1.ClusterPolicy, name string) string {
	for _, o := range policy.Status.Operands {
		if o.Name == name {
			return fmt.Sprintf("%s: %s", o.Reason, o.Message)
		}
	}
	return ""
}

// gpuReady returns the node's condition.
func (b *env) gpuReady(g Gomega) corev1.NodeCondition {
	object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, condition := range object.Status.Conditions {
		if condition.Type == gpuReady {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// container returns the state of the target's container in its new pod.
func (b *env) container(g Gomega, p target) corev1.ContainerStatus {
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + p.app})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(HaveLen(1))
	g.Expect(pods.Items[0].DeletionTimestamp).To(BeNil())
	statuses := pods.Items[0].Status
	for _, status := range slices.Concat(statuses.InitContainerStatuses, statuses.ContainerStatuses) {
		if status.Name == p.container {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// awaitRestarts waits until the kubelet has restarted the target's container this often.
func (b *env) awaitRestarts(p target, count int32) {
	b.t.Helper()
	b.Eventually(func(g Gomega) { g.Expect(b.container(g, p).RestartCount).To(BeNumerically(">=", count)) },
		"2m", "200ms").Should(Succeed(), b.describe)
}

// awaitWork waits until the target prints that it works, if it does so.
func (b *env) awaitWork(p target) {
	b.t.Helper()
	b.Eventually(func(g Gomega) { g.Expect(b.log(g, p)).To(ContainSubstring(p.works)) }, "30s", "200ms").
		Should(Succeed(), b.describe)
}

// log returns what the target's container has printed since it was last started.
func (b *env) log(g Gomega, p target) string {
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + p.app})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(HaveLen(1))
	log, err := b.client.CoreV1().Pods(namespace).
		GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Container: p.container}).DoRaw(b.t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return string(log)
}

// awaitHealthy waits until the policy and each pod of the operands are ready.
func (b *env) awaitHealthy(within string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status.Conditions)
		g.Expect(meta.IsStatusConditionTrue(policy.Status.Conditions, v1.ConditionAuxiliaryReady)).
			To(BeTrue(), "%+v", policy.Status.Conditions)
		g.Expect(b.gpuReady(g).Status).To(Equal(corev1.ConditionTrue))
	}, within, "100ms").Should(Succeed(), b.describe)
}
