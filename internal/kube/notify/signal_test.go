package notify_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
)

func TestPendingEventAbsorbsLaterOnes(t *testing.T) {
	g := NewWithT(t)
	signal := notify.New()
	g.Expect(signal.Events()).NotTo(Receive())
	signal.Notify()
	signal.Notify()
	g.Expect(signal.Events()).To(Receive(HaveField("Object", Not(BeNil()))))
	g.Expect(signal.Events()).NotTo(Receive())
	signal.Notify()
	g.Expect(signal.Events()).To(Receive(), "the one before has been received")
}
