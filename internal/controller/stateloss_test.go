package controller_test

import (
	"context"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
)

// stateLosses discard the state of each row of the table in doc.go.
var stateLosses = map[string]func(*operator){
	"fleet entries": func(o *operator) {
		basis := o.fleet.Basis()
		o.useFleet(fleet.New())
		o.fleet.Publish(*basis, o.clock.Now())
	},
	"basis": func(o *operator) {
		names := o.fleet.Names()
		var entries []*fleet.Entry
		for _, name := range names {
			entry := *o.fleet.Get(name)
			entry.BasisVersion = 0
			entries = append(entries, &entry)
		}
		o.useFleet(fleet.New())
		o.fleet.Hydrate(entries)
	},
	"caches":      func(o *operator) { o.pass = clusterpolicy.New(o.pass.Options) },
	"apply table": func(o *operator) { o.pass.Applier = apply.New(o, live{o}, o.clock, slowMachineTiming()) },
	"status times": func(o *operator) {
		o.pass.Status = statuswriter.New(o, o.clock, o.node.Events, o.pass.Catalogue, statuswriter.DefaultTiming())
	},
	"failures of pods": func(o *operator) {
		o.pass.CreateFailures = observe.NewCreateFailures(live{o}, namespace, o.clock)
		o.pass.StartFailures = observe.NewStartFailures(live{o}, namespace, o.clock)
	},
	"definitions": func(o *operator) {
		o.pass.Schema = &observe.Schema{Definition: o.pass.Schema.Definition, Cached: o, Live: live{o}}
		o.pass.DriverSchema = &observe.Schema{Definition: o.pass.DriverSchema.Definition, Cached: o, Live: live{o}}
	},
	"watches": func(o *operator) {
		o.pass.OptionalKinds = clusterpolicy.NewOptionalKinds(nil, nil, o.clock)
		o.pass.DriverToolkit = observe.NewDriverToolkit(nil, nil, o.clock)
		o.pass.OpenShift = observe.NewOpenShift(nil, nil, nil, o.clock)
		o.pass.NVIDIADrivers = observe.NewNVIDIADrivers(nil, nil, o.clock, nil)
	},
	"the other operator": func(o *operator) { o.pass.OtherOperator = newOtherOperator(o) },
	"refused taints":     func(o *operator) { o.node = node.New(o.node.Options) },
	"event limits": func(o *operator) {
		o.node.Events = events.NewRecorder(o, o.clock, o.node.Meter.CountDroppedEvent)
		o.pass.Status = statuswriter.New(o, o.clock, o.node.Events, o.pass.Catalogue, statuswriter.DefaultTiming())
	},
	"shared parts of pods": func(o *operator) { o.pods = cachefilter.NewPodTrimmer() },
	"all":                  func(o *operator) { o.start() },
}

// useFleet makes both controllers use another fleet, which is hydrated with the facts of the nodes only.
func (o *operator) useFleet(f *fleet.Fleet) {
	o.fleet, o.pass.Fleet, o.node.Fleet = f, f, f
	must(o.node.Hydrate(context.Background()))
}

// reconcileRound reconciles everything, as the events after a loss do: every node is assessed, and a pass follows.
func (o *operator) reconcileRound(names []string) {
	for range 2 {
		o.reconcileAll()
		o.reconcileNodes(names)
	}
	o.reconcileAll()
}

// nodeConditions returns the GPUReady condition of each node, as status, reason and message.
func (o *operator) nodeConditions(names []string) map[string]string {
	found := map[string]string{}
	for _, name := range names {
		read := &corev1.Node{}
		must(o.Get(context.Background(), client.ObjectKey{Name: name}, read))
		condition := assess.GPUReadyCondition(read)
		found[name] = string(condition.Status) + " " + condition.Reason + " " + condition.Message
	}
	return found
}

// Each part of the state may be lost at any time, when all nodes are ready and while a node fails: nothing is written
// because of the loss, and recovery is reported as usual.
func TestInMemoryStateMayBeLost(t *testing.T) {
	for name, loseState := range stateLosses {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := newOperator()
			names := o.addNodes(0, 4)
			o.makeReady(names)
			g.Expect(o.policyStatus().State).To(Equal(v1.StateReady))
			healthy, conditions, written := o.policyStatus(), o.nodeConditions(names), maps.Clone(o.writes)
			loseState(o)
			o.reconcileRound(names)
			g.Expect(o.writes).To(Equal(written), "writes while all nodes are ready")
			g.Expect(o.policyStatus()).To(Equal(healthy))

			o.updatePod("device-plugin", names[0], crashPod)
			o.reconcileRound(names)
			o.advance(11 * time.Second)
			o.reconcileRound(names)
			broken, reported := o.policyStatus(), o.nodeConditions(names)
			g.Expect(broken.State).To(Equal(v1.StateNotReady))
			g.Expect(broken.NodeSummary.Degraded).To(BeEquivalentTo(1))
			g.Expect(reported[names[0]]).To(HavePrefix("False CrashLoopBackOff"))
			written = maps.Clone(o.writes)
			loseState(o)
			o.reconcileRound(names)
			g.Expect(o.writes).To(Equal(written), "writes while a node fails")
			g.Expect(o.policyStatus()).To(Equal(broken))
			g.Expect(o.nodeConditions(names)).To(Equal(reported))

			o.updatePod("device-plugin", names[0], recoverPod)
			o.reconcileRound(names)
			o.advance(20 * time.Second)
			o.reconcileRound(names)
			g.Expect(o.policyStatus().State).To(Equal(v1.StateReady))
			g.Expect(o.nodeConditions(names)).To(Equal(conditions))
		})
	}
}
