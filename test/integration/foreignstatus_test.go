package integration

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// foreignStatus is a change of a status by another client.
type foreignStatus struct {
	object client.Object
	// status is what the operator writes of it, without times.
	status func(*env) any
	kind   types.PatchType
	patch  string
}

// foreignStatuses returns the changes. None of them is an event of anything else.
func foreignStatuses() map[string]foreignStatus {
	cluster := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}
	driver := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "on-rocky"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rocky"}}
	merge, strategic := types.MergePatchType, types.StrategicMergePatchType
	return map[string]foreignStatus{
		"a policy is emptied":           {cluster, (*env).policyStatus, merge, `{"status":null}`},
		"a policy loses its conditions": {cluster, (*env).policyStatus, merge, `{"status":{"conditions":null}}`},
		"a policy gets another state":   {cluster, (*env).policyStatus, merge, `{"status":{"state":"notReady"}}`},
		"a policy loses its nodes": {
			cluster, (*env).policyStatus, merge, `{"status":{"nodes":null,"operands":null}}`,
		},
		"an NVIDIADriver is emptied":         {driver, (*env).driverStatus, merge, `{"status":null}`},
		"an NVIDIADriver loses conditions":   {driver, (*env).driverStatus, merge, `{"status":{"conditions":null}}`},
		"an NVIDIADriver gets another state": {driver, (*env).driverStatus, merge, `{"status":{"state":"notReady"}}`},
		"a node loses its condition": {
			node, (*env).nodeStatus, strategic,
			`{"status":{"conditions":[{"type":"nvidia.com/GPUReady","$patch":"delete"}]}}`,
		},
		"the condition of a node is changed": {
			node, (*env).nodeStatus, strategic,
			`{"status":{"conditions":[{"type":"nvidia.com/GPUReady","status":"False","reason":"Other"}]}}`,
		},
	}
}

// TestForeignStatuses: what another client writes to a status, or removes from it, is written again by one write,
// although nothing else happens in the cluster.
func TestForeignStatuses(t *testing.T) {
	t.Parallel()
	e := twoSystems(t)
	e.run()
	e.create(nvidiaDriver("on-ubuntu", "ubuntu"))
	e.create(nvidiaDriver("on-rocky", "rocky"))
	sample := e.samplePolicy()
	sample.Spec.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
	e.create(sample)
	e.awaitReady(2)
	e.awaitDriver("on-rocky", v1alpha1.StateReady, v1.ReasonReconciled, Not(BeEmpty()))
	e.settled()
	for name, change := range foreignStatuses() {
		t.Run(name, func(t *testing.T) { e.in(t).isWrittenAgain(change) })
	}
}

func (e *env) isWrittenAgain(change foreignStatus) {
	e.t.Helper()
	status := func() string {
		text, err := json.Marshal(change.status(e))
		e.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	before, mark := status(), e.mark()
	e.Expect(e.client.Status().Patch(e.t.Context(), change.object,
		client.RawPatch(change.kind, []byte(change.patch)))).To(Succeed())
	e.Eventually(status).WithTimeout(eventually).WithPolling(50 * time.Millisecond).Should(Equal(before))
	e.settled()
	e.Expect(e.operatorCalls(mark).Writes()).To(HaveLen(1), "%s", e.operatorCalls(mark).Writes())
}

func (e *env) policyStatus() any {
	e.t.Helper()
	status := e.policy().Status
	withoutTimes(status.Conditions)
	return status
}

func (e *env) driverStatus() any {
	e.t.Helper()
	found := &v1alpha1.NVIDIADriver{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: "on-rocky"}, found)).To(Succeed())
	withoutTimes(found.Status.Conditions)
	return found.Status
}

func (e *env) nodeStatus() any {
	e.t.Helper()
	for _, condition := range e.node("rocky").Status.Conditions {
		if condition.Type == labels.ConditionGPUReady {
			return []any{condition.Status, condition.Reason, condition.Message}
		}
	}
	return nil
}

func withoutTimes(conditions []metav1.Condition) {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Time{}
	}
}
