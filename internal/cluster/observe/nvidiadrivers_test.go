package observe

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// A status that another client has changed is a change, and the operator's own is none.
func TestDriversDiffer(t *testing.T) {
	own := func(object *v1alpha1.NVIDIADriver) bool { return object.Status.State == v1alpha1.StateReady }
	before := &v1alpha1.NVIDIADriver{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Generation: 1},
		Status:     v1alpha1.NVIDIADriverStatus{State: v1alpha1.StateReady},
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NVIDIADriver)
		want   bool
	}{
		"nothing":                         {func(*v1alpha1.NVIDIADriver) {}, false},
		"a label":                         {func(d *v1alpha1.NVIDIADriver) { d.Labels = map[string]string{"a": "b"} }, false},
		"the spec":                        {func(d *v1alpha1.NVIDIADriver) { d.Generation = 2 }, true},
		"a field that an old CRD dropped": {func(d *v1alpha1.NVIDIADriver) { d.Spec.Image = "driver" }, true},
		"it cannot be decoded": {func(d *v1alpha1.NVIDIADriver) {
			d.Annotations = map[string]string{"nvidia.com/gpu-operator.undecodable": "spec.a"}
		}, true},
		"another object":            {func(d *v1alpha1.NVIDIADriver) { d.UID = "2" }, true},
		"a deletion":                {func(d *v1alpha1.NVIDIADriver) { d.DeletionTimestamp = new(metav1.Now()) }, true},
		"another client empties it": {func(d *v1alpha1.NVIDIADriver) { d.Status = v1alpha1.NVIDIADriverStatus{} }, true},
		"the operator writes it":    {func(d *v1alpha1.NVIDIADriver) { d.Status.ObservedGeneration = 1 }, false},
	} {
		after := before.DeepCopy()
		test.change(after)
		if got := driversDiffer(own, before, after); got != test.want {
			t.Errorf("%s: differs: %t", name, got)
		}
	}
	emptied := before.DeepCopy()
	emptied.Status = v1alpha1.NVIDIADriverStatus{}
	if !driversDiffer(nil, before, emptied) {
		t.Error("where the operator writes no status, a change of it is none")
	}
}

func TestUpdatesOfNVIDIADriversThatCount(t *testing.T) {
	differs := NewNVIDIADrivers(nil, nil, nil, nil).Differs
	object, other := &v1alpha1.NVIDIADriver{}, &v1alpha1.NVIDIADriver{}
	other.Generation = 2
	if differs(object, object) || !differs(object, other) || !differs(1, object) || !differs(object, 1) {
		t.Error("an update counts if it changes an object, or if it is not of objects that can be compared")
	}
	// The status of the later one is the operator's own.
	own := NewNVIDIADrivers(nil, nil, nil, func(d *v1alpha1.NVIDIADriver) bool { return d.Status.State != "" })
	written := &v1alpha1.NVIDIADriver{Status: v1alpha1.NVIDIADriverStatus{State: v1alpha1.StateReady}}
	if own.Differs(object, written) || !own.Differs(written, object) {
		t.Error("the status that the operator writes is no change, and that of another client is one")
	}
	if kind := own.Object.GetObjectKind().GroupVersionKind(); kind != v1alpha1.NVIDIADriverKind {
		t.Errorf("%s is watched", kind)
	}
}
