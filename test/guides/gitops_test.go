package guides

import (
	"path/filepath"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const gitops = repo + "/config/samples/gitops"

// What kstatus says, which Flux, Helm 4 and kubectl's plugins ask.
const (
	inProgress  = kstatus.InProgressStatus
	current     = kstatus.CurrentStatus
	failed      = kstatus.FailedStatus
	terminating = kstatus.TerminatingStatus
)

// fluxSampleIsValid: the API server accepts the sample for Flux with the definition of its kustomize-controller.
func fluxSampleIsValid(e *env) {
	e.newNamespace("flux-system")
	objects := e.objectsOf(filepath.Join(gitops, "flux.yaml"))
	for _, object := range objects {
		e.Expect(e.validated(object)).To(Succeed(), object.GetName())
	}
	e.Expect(objects).To(HaveLen(2))
	e.Expect(unstructured.SetNestedField(objects[1].Object, "45 minutes", "spec", "timeout")).To(Succeed())
	e.Expect(e.validated(objects[1])).To(MatchError(ContainSubstring("spec.timeout")))
}

// argoCDSampleIsValid: the API server accepts the ConfigMap and the Application for Argo CD, with its definition.
func argoCDSampleIsValid(e *env) {
	e.newNamespace("argocd")
	objects := e.objectsOf(filepath.Join(gitops, "argocd.yaml"))
	for _, object := range objects {
		e.Expect(e.validated(object)).To(Succeed(), object.GetName())
	}
	application := objects[len(objects)-1]
	e.Expect(application.GetKind()).To(Equal("Application"))
	e.Expect(unstructured.SetNestedField(application.Object, true, "spec", "syncPolicy", "automated", "selfheal")).
		To(Succeed())
	e.Expect(e.validated(application)).To(
		MatchError(ContainSubstring(`unknown field "spec.syncPolicy.automated.selfheal"`)))
}

// readers judge the policy and the NVIDIADriver of a cluster as kstatus and Argo CD do.
type readers struct {
	*env
	// scripts are the health checks of the sample by kind.
	scripts map[string]string
	judged  int
	// begun is when the readers were set up, for the log of how long the stages take.
	begun time.Time
}

func newReaders(e *env) *readers {
	e.t.Helper()
	const prefix = "resource.customizations.health.nvidia.com_"
	r := &readers{env: e, scripts: map[string]string{}, begun: time.Now()}
	settings := e.objectsOf(filepath.Join(gitops, "argocd.yaml"))[0]
	for _, kind := range []string{"ClusterPolicy", "NVIDIADriver"} {
		script, found, err := unstructured.NestedString(settings.Object, "data", prefix+kind)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(found).To(BeTrue(), kind)
		r.scripts[kind] = script
	}
	return r
}

// live returns an object as a client without its types reads it.
func (r *readers) live(object client.Object, name string) *unstructured.Unstructured {
	r.t.Helper()
	found := &unstructured.Unstructured{}
	gvk, err := r.client.GroupVersionKindFor(object)
	r.Expect(err).NotTo(HaveOccurred())
	found.SetGroupVersionKind(gvk)
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Name: name}, found)).To(Succeed())
	return found
}

// judge expects what both readers say of the policy, and of the NVIDIADriver, now.
func (r *readers) judge(stage string, policyStatus kstatus.Status, policyHealth string, driverStatus kstatus.Status,
	driverHealth string,
) {
	r.t.Helper()
	r.expect(stage, r.live(&v1.ClusterPolicy{}, policy), policyStatus, policyHealth)
	r.expect(stage, r.live(&v1alpha1.NVIDIADriver{}, driverName), driverStatus, driverHealth)
	r.t.Logf("%s: judged after %s", stage, time.Since(r.begun).Round(time.Second))
}

// expect expects what both readers say of an object.
func (r *readers) expect(stage string, object *unstructured.Unstructured, want kstatus.Status, health string) {
	r.t.Helper()
	result, err := kstatus.Compute(object)
	r.Expect(err).NotTo(HaveOccurred())
	text, err := yaml.Marshal(object.Object["status"])
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(result.Status).To(Equal(want), "%s, kstatus of %s: %s\n%s", stage, object.GetKind(), result.Message, text)
	got, err := argoHealth(r.scripts[object.GetKind()], object)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(got.status).To(Equal(health), "%s, health of %s in Argo CD: %s\n%s", stage, object.GetKind(), got.message,
		text)
	if health != "Progressing" {
		r.Expect(got.message).NotTo(BeEmpty(), stage)
	}
	r.judged += 2
}

// await waits until a condition of the policy is true for a reason.
func (r *readers) await(conditionType, reason string) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		object := r.policy()
		g.Expect(object.Status.ObservedGeneration).To(Equal(object.Generation))
		g.Expect(object.Status.Conditions).To(ContainElement(And(HaveField("Type", conditionType),
			HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason))), "%+v", object.Status.Conditions)
	}).WithTimeout(readyTime).Should(Succeed())
}

// awaitDriver waits until a condition of the NVIDIADriver is true.
func (r *readers) awaitDriver(conditionType string) {
	r.t.Helper()
	r.Eventually(func() []metav1.Condition {
		object := &v1alpha1.NVIDIADriver{}
		r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Name: driverName}, object)).To(Succeed())
		return object.Status.Conditions
	}).WithTimeout(readyTime).Should(ContainElement(And(HaveField("Type", conditionType),
		HaveField("Status", metav1.ConditionTrue))))
}

// starting: a driver is not ready yet.
func (r *readers) starting() {
	r.t.Helper()
	r.await(v1.ConditionProgressing, v1.ReasonOperandNotReady)
	r.awaitDriver(v1.ConditionError)
	r.judge("starting", inProgress, "Progressing", inProgress, "Progressing")
}

// stages goes from the last node that becomes ready to the deletion of the policy.
func (r *readers) stages() {
	r.t.Helper()
	r.sim.Heal("driver", brokenNode)
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	r.awaitDriver(v1.ConditionReady)
	r.judge("ready", current, "Healthy", current, "Healthy")
	r.expectNoDrift()
	r.edited()
	r.failing()
	r.stalled()
	r.twoDrivers()
	r.pausedAndDeleted()
	r.t.Logf("objects judged as expected by kstatus and by Argo CD's check: %d/%d", r.judged, r.judged)
}

// expectNoDrift: nothing that the operator has written is in the way of who applies the same manifest again, which is
// how Argo CD and Flux look for drift.
func (r *readers) expectNoDrift() {
	r.t.Helper()
	before, again := r.live(&v1.ClusterPolicy{}, policy), r.manifest()
	r.Expect(r.apply(again, client.DryRunAll)).To(Succeed(), "without a conflict")
	for _, object := range []*unstructured.Unstructured{before, again} {
		object.SetManagedFields(nil)
	}
	r.Expect(cmp.Diff(before.Object, again.Object)).To(BeEmpty())
}

// manifest returns the policy of the sample, with NVIDIADriver objects, as it would be in Git.
func (r *readers) manifest() *unstructured.Unstructured {
	r.t.Helper()
	object := r.objectsOf(filepath.Join(repo, "config/samples/clusterpolicy.yaml"))[0]
	r.Expect(unstructured.SetNestedField(object.Object, true, "spec", "driver", "useNvidiaDriverCRD")).To(Succeed())
	return object
}

// apply applies a manifest by server-side apply, as GitOps tools do, without forcing conflicts.
func (r *readers) apply(object *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return r.client.Apply(r.t.Context(), client.ApplyConfigurationFromUnstructured(object),
		append(opts, client.FieldOwner("gitops"))...)
}

// edited: the operator has not seen the new generation. It cannot have, as the answer to the edit is judged.
func (r *readers) edited() {
	r.t.Helper()
	r.operator.Freeze()
	r.respec(func(spec *v1.ClusterPolicySpec) { spec.Deadlines = &v1.DeadlinesSpec{DevicePlugin: "1h"} })
	r.judge("edited", inProgress, "Progressing", current, "Healthy")
	r.operator.Thaw()
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	r.judge("edit applied", current, "Healthy", current, "Healthy")
}

// failing: a node fails. It may recover, and others work, so that nobody is told to give up.
func (r *readers) failing() {
	r.t.Helper()
	r.sim.Break("device-plugin", brokenNode, simulator.CrashLoop)
	r.await(v1.ConditionDegraded, v1.ReasonOperandFailed)
	r.judge("a node fails", inProgress, "Degraded", current, "Healthy")
	r.sim.Heal("device-plugin", brokenNode)
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	r.judge("the node works again", current, "Healthy", current, "Healthy")
}

// stalled: a spec that contradicts itself, and a second policy.
func (r *readers) stalled() {
	r.t.Helper()
	pool := func(name string, selector v1.NodePoolSelector) v1.NodePoolSpec {
		return v1.NodePoolSpec{Name: name, NodeSelector: selector, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyNone}}
	}
	r.respec(func(spec *v1.ClusterPolicySpec) {
		spec.NodePools = []v1.NodePoolSpec{
			pool("wide", v1.NodePoolSelector{"example.com/pool": "a"}),
			pool("narrow", v1.NodePoolSelector{"example.com/pool": "a", "example.com/zone": "1"}),
		}
	})
	r.await(v1.ConditionStalled, v1.ReasonInvalidSpec)
	r.judge("a wrong spec", failed, "Degraded", current, "Healthy")
	r.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = nil })
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	r.judge("a right spec", current, "Healthy", current, "Healthy")
	second := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	r.create(second)
	r.Eventually(func() v1.State {
		r.Expect(r.client.Get(r.t.Context(), client.ObjectKeyFromObject(second), second)).To(Succeed())
		return second.Status.State
	}).Should(Equal(v1.StateIgnored))
	r.expect("a second policy", r.live(second, second.Name), failed, "Degraded")
	r.Expect(r.client.Delete(r.t.Context(), second)).To(Succeed())
}

// twoDrivers: a second NVIDIADriver selects the same nodes.
func (r *readers) twoDrivers() {
	r.t.Helper()
	second := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	r.create(second)
	r.awaitDriver(v1.ConditionStalled)
	r.expect("two drivers", r.live(second, driverName), failed, "Degraded")
	r.Expect(r.client.Delete(r.t.Context(), second)).To(Succeed())
	r.awaitDriver(v1.ConditionReady)
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	r.judge("one driver", current, "Healthy", current, "Healthy")
}

// pausedAndDeleted: a paused policy, and a deleted one whose stack stays while a pod uses a GPU.
func (r *readers) pausedAndDeleted() {
	r.t.Helper()
	r.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = new(true) })
	r.await(v1.ConditionReady, v1.ReasonPaused)
	r.judge("paused", current, "Suspended", current, "Healthy")
	r.respec(func(spec *v1.ClusterPolicySpec) { spec.Paused = nil })
	r.await(v1.ConditionReady, v1.ReasonReconciled)
	user := request{name: "in-use", resource: wholeGPU, on: brokenNode}.pod()
	r.create(user)
	r.expectRunning(user)
	object := r.policy()
	r.Expect(r.client.Delete(r.t.Context(), object)).To(Succeed())
	r.Eventually(func() []v1.NodeStatus { return r.policy().Status.Nodes }).WithTimeout(readyTime).Should(
		ContainElement(HaveField("Reason", v1.ReasonRemovalHeld)))
	r.expect("being deleted", r.live(object, policy), terminating, "Progressing")
	// The driver of the node is still in use, and no policy uses the object any more.
	r.Expect(corev1.PodRunning).To(Equal(user.Status.Phase))
}
