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
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
)

// losses lose the state of each row of the table in doc.go.
var losses = map[string]func(*operator){
	"fleet entries": func(o *operator) {
		basis := o.fleet.Basis()
		o.know(fleet.New())
		o.fleet.Publish(*basis, o.clock.Now())
	},
	"basis": func(o *operator) {
		names := o.fleet.Names()
		var entries []*fleet.Entry
		for _, name := range names {
			entry := *o.fleet.Get(name)
			entry.Basis = 0
			entries = append(entries, &entry)
		}
		o.know(fleet.New())
		o.fleet.Hydrate(entries)
	},
	"drafts":      func(o *operator) { o.pass = clusterpolicy.New(o.pass.Options) },
	"apply table": func(o *operator) { o.pass.Applier = apply.New(o, live{o}, o.clock, patient()) },
	"status times": func(o *operator) {
		o.pass.Status = statuswriter.New(o, o.clock, o.node.Events, o.pass.Catalogue, statuswriter.DefaultTiming())
	},
	"create failures": func(o *operator) {
		o.pass.CreateFailures = observe.NewCreateFailures(live{o}, namespace, o.clock)
	},
	"definition": func(o *operator) { o.pass.Schema = &observe.Schema{Cached: o, Live: live{o}} },
	"watches": func(o *operator) {
		o.pass.Kinds = clusterpolicy.NewOptionalKinds(nil, nil, o.clock)
		o.pass.DriverToolkit = observe.NewDriverToolkit(nil, nil, o.clock)
	},
	"refused taints": func(o *operator) { o.node = node.New(o.node.Options) },
	"event limits": func(o *operator) {
		o.node.Events = events.NewRecorder(o, o.clock, o.node.Meter.CountDroppedEvent)
		o.pass.Status = statuswriter.New(o, o.clock, o.node.Events, o.pass.Catalogue, statuswriter.DefaultTiming())
	},
	"shared parts of pods": func(o *operator) { o.pods = observe.NewPodTrimmer() },
	"all":                  func(o *operator) { o.start() },
}

// know has both controllers use another fleet, which knows the nodes by their facts alone.
func (o *operator) know(f *fleet.Fleet) {
	o.fleet, o.pass.Fleet, o.node.Fleet = f, f, f
	must(o.node.Hydrate(context.Background()))
}

// round is what the events of a loss lead to: every node is assessed, and a pass follows.
func (o *operator) round(names []string) {
	for range 2 {
		o.reconcileAll()
		o.reconcileNodes(names)
	}
	o.reconcileAll()
}

// conditions are those that the nodes have, each as reason and message.
func (o *operator) conditions(names []string) map[string]string {
	found := map[string]string{}
	for _, name := range names {
		read := &corev1.Node{}
		must(o.Get(context.Background(), client.ObjectKey{Name: name}, read))
		condition := assess.GPUReadyCondition(read)
		found[name] = string(condition.Status) + " " + condition.Reason + " " + condition.Message
	}
	return found
}

// Each part of what is kept may be lost at any time: nothing is written for that, neither where all is well nor where a
// node fails, and the failure ends in a status like any other.
func TestWhatIsKeptMayBeLost(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := newOperator()
			names := o.join(0, 4)
			o.serve(names)
			g.Expect(o.reported().State).To(Equal(v1.StateReady))
			healthy, known, written := o.reported(), o.conditions(names), maps.Clone(o.writes)
			lose(o)
			o.round(names)
			g.Expect(o.writes).To(Equal(written), "writes where all is well")
			g.Expect(o.reported()).To(Equal(healthy))

			o.change("device-plugin", names[0], crash)
			o.round(names)
			o.step(11 * time.Second)
			o.round(names)
			broken, reported := o.reported(), o.conditions(names)
			g.Expect(broken.State).To(Equal(v1.StateNotReady))
			g.Expect(broken.NodeSummary.Degraded).To(BeEquivalentTo(1))
			g.Expect(reported[names[0]]).To(HavePrefix("False CrashLoopBackOff"))
			written = maps.Clone(o.writes)
			lose(o)
			o.round(names)
			g.Expect(o.writes).To(Equal(written), "writes where a node fails")
			g.Expect(o.reported()).To(Equal(broken))
			g.Expect(o.conditions(names)).To(Equal(reported))

			o.change("device-plugin", names[0], work)
			o.round(names)
			o.step(20 * time.Second)
			o.round(names)
			g.Expect(o.reported().State).To(Equal(v1.StateReady))
			g.Expect(o.conditions(names)).To(Equal(known))
		})
	}
}
