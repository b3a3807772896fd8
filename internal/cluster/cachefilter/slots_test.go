package cachefilter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The operator's own writes of the slots must not cause passes, and neither must other ConfigMaps.
func TestOnlyTheDeletionOfSlotsIsPassed(t *testing.T) {
	g := NewWithT(t)
	slots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: labels.UpgradeSlots}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	changes := cachefilter.SlotsDeleted()
	g.Expect(changes.Delete(event.DeleteEvent{Object: slots})).To(BeTrue())
	g.Expect(changes.Delete(event.DeleteEvent{Object: other})).To(BeFalse())
	g.Expect(changes.Create(event.CreateEvent{Object: slots})).To(BeFalse())
	g.Expect(changes.Update(event.UpdateEvent{ObjectOld: slots, ObjectNew: slots})).To(BeFalse())
	g.Expect(changes.Generic(event.GenericEvent{Object: slots})).To(BeFalse())
}
