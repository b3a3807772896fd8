package apply

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRuntimeClassOfTheDistributionIsKept(t *testing.T) {
	tests := map[string]struct {
		change   func(*nodev1.RuntimeClass)
		conflict bool
	}{
		"the same handler": {change: func(*nodev1.RuntimeClass) {}},
		"another handler":  {change: func(c *nodev1.RuntimeClass) { c.Handler = "runc" }, conflict: true},
		"it selects nodes": {
			change: func(c *nodev1.RuntimeClass) {
				c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b"}}
			}, conflict: true,
		},
		"it has an overhead": {
			change: func(c *nodev1.RuntimeClass) {
				c.Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("1")}}
			}, conflict: true,
		},
		"it is terminating": {
			change: func(c *nodev1.RuntimeClass) {
				c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"example.com/f"}
			}, conflict: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			class := func() *nodev1.RuntimeClass {
				return &nodev1.RuntimeClass{
					TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
					ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia",
				}
			}
			theirs := class()
			test.change(theirs)
			c := newCluster(t, theirs)
			wrote, err := applyOne(c.applier(), class())
			g.Expect(wrote).To(BeFalse())
			g.Expect(errors.Is(err, ErrConflict)).To(Equal(test.conflict), "%v", err)
			g.Expect(c.applied).To(BeEmpty())
		})
	}
}
