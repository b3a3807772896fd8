package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The pods whose validations are of an earlier driver are replaced once the present driver is ready, and no others.
func TestStaleProversAreReplaced(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	provers := []string{"container-toolkit", "operator-validator"}
	tests := map[string]struct {
		// The pod of the driver was created and started then, the provers were created and ready.
		driverCreated, driverStarted, created, ready int
		change                                       func(*env)
		replaced                                     []string
	}{
		"a driver that was replaced without them": {100, 101, 0, 60, nil, provers},
		"a driver that they have waited for":      {10, 11, 0, 60, nil, nil},
		"a driver that they were created after":   {10, 90, 50, 60, nil, nil},
		"a driver that is not ready":              {100, 101, 0, 60, func(e *env) { e.setPod("driver", starts) }, nil},
		"a prover that validates": {
			100, 101, 0, 60, func(e *env) { e.setPod(provers[1], starts) }, provers[:1],
		},
		"a paused policy": {100, 101, 0, 60, func(e *env) { e.spec.Paused = new(true) }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			all := &corev1.PodList{}
			e.Expect(e.client.List(t.Context(), all)).To(Succeed())
			for i := range all.Items {
				pod := &all.Items[i]
				created, ready := at(test.created), at(test.ready)
				if pod.Name == "driver" {
					created, ready = at(test.driverCreated), at(test.driverStarted+50)
					pod.Status.StartTime = new(at(test.driverStarted))
				}
				pod.CreationTimestamp, pod.Status.Conditions[1].LastTransitionTime = created, ready
				e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
				pod.ResourceVersion = ""
				e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
			}
			if test.change != nil {
				test.change(e)
			}
			e.publish()
			_, err := e.reconcileAfter(200 * time.Second)
			e.Expect(err).NotTo(HaveOccurred())
			var replaced []string
			for i := range all.Items {
				if apierrors.IsNotFound(e.client.Get(t.Context(), client.ObjectKeyFromObject(&all.Items[i]), &corev1.Pod{})) {
					replaced = append(replaced, all.Items[i].Name)
				}
			}
			e.Expect(replaced).To(ConsistOf(test.replaced))
		})
	}
}
