package node_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// readLog is a call of a logReader.
const readLog = "read log"

// logReader is the log of the MIG manager; the calls are recorded, and fail as the fixture says.
type logReader struct {
	*calls
	text string
}

func (r *logReader) Tail(ctx context.Context, _, pod, _ string) (string, error) {
	if err := r.record(ctx, readLog, pod); err != nil {
		return "", err
	}
	return r.text, nil
}

var _ = Describe("A node whose MIG layout could not be applied", func() {
	const layout = "all-1g.10gb"
	var (
		f   *fixture
		log *logReader
	)
	message := func(ctx context.Context) string { return assess.GPUReadyCondition(f.node(ctx)).Message }
	label := func(ctx context.Context, state string) {
		f.update(ctx, func(node *corev1.Node) {
			node.Labels[labels.MIGConfig], node.Labels[labels.MIGConfigState] = layout, state
		})
	}

	BeforeEach(func(ctx SpecContext) {
		f = newFixture(ctx, func(node *corev1.Node) {
			node.Labels[labels.MIGCapable] = labels.True
			node.Labels[labels.MIGConfig], node.Labels[labels.MIGConfigState] = layout, labels.MIGStateSuccess
		})
		log = &logReader{calls: f.calls, text: `time="2026-03-11T11:57:33Z" level=fatal msg="Error selecting MIG config: ` +
			`selected mig-config not present: all-1g.10gb"` + "\n"}
		f.reconciler.Logs = log
		f.publish(v1.ClusterPolicySpec{})
		_, err := f.reconcileAfter(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		f.takeCalls()
	})

	It("is reported with the words of the MIG manager, which are read once", func(ctx SpecContext) {
		label(ctx, labels.MIGStateFailed)
		_, err := f.reconcileAfter(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.takeCalls()).To(Equal([]string{getNode, listPods, listLive, readLog, createEvent, patchCondition}))
		Expect(f.reported(ctx)).To(Equal("False " + v1.ReasonMIGConfigFailed))
		Expect(message(ctx)).To(HaveSuffix(`-mig-manager: the MIG manager: "Error selecting MIG config: ` +
			`selected mig-config not present: all-1g.10gb"`))
		for range 3 {
			Expect(f.reconcileAfter(ctx, time.Hour)).To(BeZero())
		}
		Expect(f.takeCalls()).NotTo(ContainElements(readLog, patchCondition))
	})

	It("is reported with the command if the log cannot be read, and with the words later", func(ctx SpecContext) {
		f.fail(readLog, errors.New("no route to host"))
		label(ctx, labels.MIGStateFailed)
		Expect(f.reconcileAfter(ctx, time.Minute)).To(Equal(10 * time.Second))
		Expect(message(ctx)).To(HaveSuffix("see kubectl -n gpu-operator logs " + f.name + "-mig-manager"))
		f.fail(readLog, nil)
		Expect(f.reconcileAfter(ctx, 10*time.Second)).To(BeZero())
		Expect(message(ctx)).To(ContainSubstring(`the MIG manager: "Error selecting MIG config: `))
		Expect(f.events(ctx)).To(ConsistOf("Warning " + v1.ReasonMIGConfigFailed))
	})
})
