package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// leaseTime is longer than the lease of a killed leader lasts, 15 s, and the retry period of 2 s.
const leaseTime = time.Minute

// TestTheOtherOperatorTakesOver: of two operators one leads. When it exits or is killed, the other takes over, and
// only writes what has changed meanwhile.
func TestTheOtherOperatorTakesOver(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	first := e.another("first.log")
	e.Eventually(e.leader).WithTimeout(leaseTime).ShouldNot(BeEmpty())
	leader := e.leader()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.settled()
	second := e.another("second.log")

	for _, end := range []struct {
		how   string
		leave func()
	}{
		{"it ends", func() {
			e.Expect(first.Stop()).To(Succeed())
			e.Expect(e.leader()).NotTo(Equal(leader), "it has released its lease")
		}},
		{"it vanishes", func() { first = e.another("third.log"); second.Kill() }},
	} {
		mark := e.mark()
		end.leave()
		begin := time.Now()
		e.Eventually(e.leader).WithTimeout(leaseTime).WithPolling(50 * time.Millisecond).ShouldNot(Or(BeEmpty(),
			Equal(leader)))
		t.Logf("%s: another leads after %s", end.how, time.Since(begin).Round(100*time.Millisecond))
		leader = e.leader()
		e.quietSince("a new leader where "+end.how, mark, 3*time.Second)
		e.Expect(patchNode(t, kubernetes.NewForConfigOrDie(e.cluster.Config), "gpu-00000", "labels", "nvidia.com/gpu.present",
			nil)).To(Succeed())
		e.Eventually(func() map[string]string { return e.node("gpu-00000").Labels }).
			Should(HaveKeyWithValue("nvidia.com/gpu.present", "true"), "it works")
		e.settled()
	}
	e.Expect(first.Stop()).To(Succeed())
}

// TestFrozenLeaderStopsWriting: a process that resumes after another one has taken over starts no write, whatever
// there is to repair.
func TestFrozenLeaderStopsWriting(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(t.Context(), namespace, account, "")
	e.Expect(err).NotTo(HaveOccurred())
	frozen := e.anotherWith(kubeconfig, "frozen.log")
	e.Eventually(e.leader).WithTimeout(leaseTime).ShouldNot(BeEmpty())
	leader := e.leader()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.settled()
	written := e.operatorCalls(0).Writes()
	e.Expect(written).NotTo(BeEmpty())
	credential := written[0].Credential
	e.Expect(credential).NotTo(BeEmpty())
	e.another("second.log")

	frozen.Freeze()
	e.Eventually(e.leader).WithTimeout(leaseTime).WithPolling(100 * time.Millisecond).ShouldNot(Or(BeEmpty(),
		Equal(leader)))
	// The frozen one gets this from its watches when it resumes; the other one repairs it constantly.
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	damage := func() {
		e.Expect(patchNode(t, admin, "gpu-00000", "labels", "nvidia.com/gpu.present", nil)).To(Succeed())
		time.Sleep(50 * time.Millisecond)
	}
	for range 20 {
		damage()
	}
	mark := e.mark()
	frozen.Thaw()
	ended := time.After(leaseTime)
	for over := false; !over; {
		select {
		case <-frozen.Done():
			over = true
		case <-ended:
			t.Fatal("the frozen operator resumes")
		default:
			damage()
		}
	}
	e.Eventually(func() cluster.Calls {
		damage()
		return e.operatorCalls(mark).Of("nodes").Writes()
	}).ShouldNot(BeEmpty(), "the other one works")
	e.Expect(e.operatorCalls(mark).With(credential).Writes()).To(BeEmpty(), "writes of the frozen operator")
}

// another starts one of several operators with leader election.
func (e *env) another(log string) *cluster.Operator {
	e.t.Helper()
	return e.anotherWith(e.kubeconfig, log)
}

// anotherWith does the same with another token of its account.
func (e *env) anotherWith(kubeconfig, log string) *cluster.Operator {
	e.t.Helper()
	operator, err := cluster.StartOperator(e.t.Context(), cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: kubeconfig, Args: []string{
			"--leader-elect=true",
		}, LogFile: filepath.Join(e.logDir, log),
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(operator.Kill)
	return operator
}

// leader returns the holder of the lease, if any.
func (e *env) leader() string {
	leases := kubernetes.NewForConfigOrDie(e.cluster.Config).CoordinationV1().Leases(namespace)
	lease, err := leases.Get(e.t.Context(), "53822513.nvidia.com", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
