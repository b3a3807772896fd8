package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// leaseTime is how long a leader that vanished counts as one, with a try every 2 s after it; a leader that
	// ends in order gives its lease back.
	leaseTime, handedOver = 20 * time.Second, 5 * time.Second
)

// TestTheOtherOperatorTakesOver: of two operators one leads. Where it ends, and where it vanishes, the other
// goes on in its place, and finds nothing to write but what has changed meanwhile.
func TestTheOtherOperatorTakesOver(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	first := b.another("first.log")
	b.Eventually(b.leader).WithTimeout(leaseTime).ShouldNot(BeEmpty())
	leader := b.leader()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	b.settled()
	second := b.another("second.log")

	for _, end := range []struct {
		how    string
		within time.Duration
		leave  func()
	}{
		{"it ends", handedOver, func() { b.Expect(first.Stop()).To(Succeed()) }},
		{"it vanishes", leaseTime, func() { first = b.another("third.log"); second.Kill() }},
	} {
		mark := b.mark()
		end.leave()
		begin := time.Now()
		b.Eventually(b.leader).WithTimeout(end.within).WithPolling(50 * time.Millisecond).ShouldNot(Or(BeEmpty(), Equal(leader)))
		t.Logf("%s: another leads after %s", end.how, time.Since(begin).Round(100*time.Millisecond))
		leader = b.leader()
		b.quietSince("a new leader where "+end.how, mark, 3*time.Second)
		b.Expect(patchNode(t, kubernetes.NewForConfigOrDie(b.cluster.Config), "gpu-00000", "labels", "nvidia.com/gpu.present", nil)).To(Succeed())
		b.Eventually(func() map[string]string { return b.node("gpu-00000").Labels }).
			Should(HaveKeyWithValue("nvidia.com/gpu.present", "true"), "it works")
		b.settled()
	}
	b.Expect(first.Stop()).To(Succeed())
}

// TestALeaderThatWasFrozenWritesNoMore: a process that goes on after another one has taken over begins no write, whatever
// it finds to repair.
func TestALeaderThatWasFrozenWritesNoMore(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(t.Context(), namespace, account, "")
	b.Expect(err).NotTo(HaveOccurred())
	frozen := b.anotherWith(kubeconfig, "frozen.log")
	b.Eventually(b.leader).WithTimeout(leaseTime).ShouldNot(BeEmpty())
	leader := b.leader()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	b.settled()
	written := b.operatorCalls(0).Writes()
	b.Expect(written).NotTo(BeEmpty())
	credential := written[0].Credential
	b.Expect(credential).NotTo(BeEmpty())
	b.another("second.log")

	frozen.Freeze()
	b.Eventually(b.leader).WithTimeout(leaseTime).WithPolling(100 * time.Millisecond).ShouldNot(Or(BeEmpty(), Equal(leader)))
	// The frozen one finds this in its watches when it goes on; the other one repairs it all the time.
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
	damage := func() {
		b.Expect(patchNode(t, admin, "gpu-00000", "labels", "nvidia.com/gpu.present", nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
	}
	for range 20 {
		damage()
	}
	mark := b.mark()
	frozen.Thaw()
	ended := time.After(leaseTime)
	for over := false; !over; {
		select {
		case <-frozen.Done():
			over = true
		case <-ended:
			t.Fatal("the frozen operator goes on")
		default:
			damage()
		}
	}
	calls := b.operatorCalls(mark)
	b.Expect(calls.With(credential).Writes()).To(BeEmpty(), "writes of the frozen operator")
	b.Expect(calls.Of("nodes").Writes()).NotTo(BeEmpty(), "the other one works")
	log, err := os.ReadFile(frozen.LogFile)
	b.Expect(err).NotTo(HaveOccurred())
	t.Logf("the frozen operator refused to write: %t", strings.Contains(string(log), "Refusing to write"))
}

// another starts an operator of several, which elect one of them.
func (b *bed) another(log string) *cluster.Operator {
	b.t.Helper()
	return b.anotherWith(b.kubeconfig, log)
}

// anotherWith does the same with another token of its account.
func (b *bed) anotherWith(kubeconfig, log string) *cluster.Operator {
	b.t.Helper()
	operator, err := cluster.StartOperator(b.t.Context(), cluster.OperatorOptions{
		Binary: b.binary, Kubeconfig: kubeconfig, Args: []string{"--leader-elect=true"}, LogFile: filepath.Join(b.cluster.LogDir, log),
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(operator.Kill)
	return operator
}

// leader is who holds the lease, if anybody does.
func (b *bed) leader() string {
	leases := kubernetes.NewForConfigOrDie(b.cluster.Config).CoordinationV1().Leases(namespace)
	lease, err := leases.Get(b.t.Context(), "53822513.nvidia.com", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
