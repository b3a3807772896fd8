package migration

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// ownAccount is the account of this operator where both run. That of their installers has one name for both.
const ownAccount = "own"

// TestBesideNVIDIAsOwnOperator: whichever starts first, this operator writes nothing but a condition while NVIDIA's
// runs, and takes over by itself once that has ended. No driver pod and no GPU pod ends.
func TestBesideNVIDIAsOwnOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	i := newIncumbent(t)
	i.deployTenants()
	i.kubectl("apply", "--server-side", "--force-conflicts", "-f", repo+"/config/helm/gpu-operator/crds/")
	i.Expect(i.cluster.AddAdministrator(t.Context(), namespace, ownAccount)).To(Succeed())
	i.setAutoUpgrade(false)
	i.awaitTheirs()
	i.watch = NewWatcher(t, i.cluster.SimulatorConfig)

	i.startAs(ownAccount, "--leader-elect=true")
	i.Consistently(func() string { return i.ownWrites(0) }, idle).Should(BeEmpty(), "NVIDIA's operator has the lease")
	i.stop()

	i.startAs(ownAccount)
	i.Eventually(i.otherRuns).Should(BeTrue())
	mark := i.mark()
	i.Consistently(func() string { return i.ownWrites(mark) }, idle).Should(BeEmpty(), "the condition stays")
	i.Expect(i.stackWrites(0)).To(BeEmpty())
	i.nothingEnds()

	i.scaleTheirs("0")
	i.Eventually(i.theirPods).Should(BeEmpty())
	i.endTheirs()
	i.awaitPods(true)
	i.awaitReady(v1.StateReady)
	i.undisturbed(operatorApp)

	i.scaleTheirs("1")
	i.Eventually(i.otherRuns).Should(BeTrue())
	mark = i.mark()
	i.startTheirs()
	i.awaitPods(false)
	i.Expect(i.stackWrites(mark)).To(BeEmpty())
	i.nothingEnds()
}

// setAutoUpgrade changes whether NVIDIA's operator upgrades drivers, as a user does.
func (i *incumbent) setAutoUpgrade(enabled bool) {
	i.t.Helper()
	value := map[bool]string{true: "true", false: "false"}[enabled]
	i.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge",
		"-p", `{"spec":{"driver":{"upgradePolicy":{"autoUpgrade":`+value+`}}}}`)
}

// scaleTheirs changes the number of NVIDIA's pods, as a user does.
func (i *incumbent) scaleTheirs(replicas string) {
	i.t.Helper()
	i.kubectl("scale", "deployment", "gpu-operator", "--namespace", namespace, "--replicas="+replicas)
}

// nothingEnds: no driver pod and no GPU pod has ended.
func (i *incumbent) nothingEnds() {
	i.t.Helper()
	i.Expect(i.watch.Err()).NotTo(HaveOccurred())
	for _, app := range []string{DriverName, tenantApp} {
		i.Expect(i.watch.EndedOn(app)).To(BeEmpty(), app)
	}
}

// otherRuns reports whether the policy has the condition that NVIDIA's operator runs.
func (i *incumbent) otherRuns() bool {
	i.t.Helper()
	return meta.IsStatusConditionPresentAndEqual(
		i.policy().Status.Conditions, v1.ConditionOtherOperatorRunning, metav1.ConditionTrue)
}

// ownWrites returns this operator's writes since the mark.
func (i *incumbent) ownWrites(mark cluster.Mark) string { return i.own(mark).String() }

func (i *incumbent) own(mark cluster.Mark) cluster.Calls {
	i.t.Helper()
	calls, err := i.cluster.Since(mark)
	i.Expect(err).NotTo(HaveOccurred())
	return calls.By(cluster.ServiceAccountUser(namespace, ownAccount)).Writes()
}

// stackWrites returns this operator's writes since the mark, but for statuses of policies and Events.
func (i *incumbent) stackWrites(mark cluster.Mark) string {
	i.t.Helper()
	var found cluster.Calls
	for _, call := range i.own(mark) {
		if call.Resource != "events" && (call.Resource != "clusterpolicies" || call.Subresource != "status") {
			found = append(found, call)
		}
	}
	return found.String()
}
