package clusterpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// Definitions of the kinds that a pass may use are events, and no others: a cluster has hundreds.
func TestWhichDefinitionsAreEvents(t *testing.T) {
	g := NewWithT(t)
	passes := func(name string) bool {
		definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return relevantCRDs().Create(event.CreateEvent{Object: definition})
	}
	for _, name := range []string{crd.Name, "nvidiadrivers.nvidia.com", "servicemonitors.monitoring.coreos.com"} {
		g.Expect(passes(name)).To(BeTrue(), name)
	}
	g.Expect(passes("certificates.cert-manager.io")).To(BeFalse())
}
