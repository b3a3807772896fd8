package healthaction

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// event is something that happens to a node, or to the policy, without the operator.
type event struct {
	what string
	// global: it happens to no single node. elsewhere: it does not change the Node.
	global, elsewhere bool
	due               func(*world, *machine) bool
	happen            func(*world, *machine)
}

func (m *machine) faulty() bool { return len(m.Report.Faults) > 0 }

// fails gives the machine a fault of this class.
func (m *machine) fails(w *world, class gpuhealth.Class) {
	m.Report.Faults = []gpuhealth.Fault{
		{PCI: "0000:1b:00.0", Class: class, Reason: "GPUResetRequired", Xid: 46, Since: w.now},
	}
}

// otherGPU is the address of the GPU of which some machines have a second fault.
const otherGPU = "0000:3b:00.0"

// loses gives the machine a second fault.
func (m *machine) loses(w *world) {
	m.Report.Faults = append(slices.Clone(m.Report.Faults), gpuhealth.Fault{
		PCI: otherGPU, Class: gpuhealth.Reset, Reason: "GPULost", Xid: 79, Since: w.now,
	})
	m.failsLater = m.Record != nil && m.Record.State == Undone
	m.rememberUnnoticed()
}

// rememberUnnoticed makes what a person has undone, and no manager has noticed, hold for new faults, too: the operator
// cannot see what was first.
func (m *machine) rememberUnnoticed() {
	if m.Record != nil && m.Record.State == Done && !m.acted() {
		m.remember()
	}
}

// id is the ID of the machine's first fault.
func (m *machine) id() string { return m.ids()[0] }

// ids are the IDs of the machine's faults.
func (m *machine) ids() []string {
	found := make([]string, len(m.Report.Faults))
	for i := range m.Report.Faults {
		found[i] = faultID(m.Report.Boot, &m.Report.Faults[i])
	}
	return found
}

// remember remembers that a person has undone what was done for the faults of the machine.
func (m *machine) remember() {
	m.undone, m.failsLater = append(m.ids(), m.Record.Fault), false
}

// forget forgets that, as with the record.
func (m *machine) forget() { m.undone, m.failsLater = nil, false }

func (w *world) forgetUndone() {
	for i := range w.machines {
		w.machines[i].forget()
	}
}

// surroundings are the events that the model tries.
var surroundings = []event{
	{what: "a GPU needs a reset",
		due:    func(_ *world, m *machine) bool { return m.Reported && !m.faulty() },
		happen: func(w *world, m *machine) { m.fails(w, gpuhealth.Reset) }},
	{what: "the fault escalates to a reboot",
		due: func(_ *world, m *machine) bool {
			return m.faulty() && m.Report.Faults[0].Class == gpuhealth.Reset
		},
		happen: func(w *world, m *machine) {
			m.Report.Faults = slices.Clone(m.Report.Faults)
			m.Report.Faults[0].Class, m.Report.Faults[0].Since = gpuhealth.Reboot, w.now
			m.rememberUnnoticed()
		}},
	{what: "another GPU is lost",
		due: func(_ *world, m *machine) bool {
			return len(m.Report.Faults) == 1 && m.Report.Faults[0].PCI != otherGPU
		},
		happen: func(w *world, m *machine) { m.loses(w) }},
	{what: "the other GPU is back",
		due:    func(_ *world, m *machine) bool { return len(m.Report.Faults) > 1 },
		happen: func(_ *world, m *machine) { m.Report.Faults, m.failsLater = m.Report.Faults[:1:1], false }},
	{what: "the first fault ends",
		due: func(_ *world, m *machine) bool { return m.faulty() },
		happen: func(_ *world, m *machine) {
			ended := m.id()
			m.undone = slices.DeleteFunc(slices.Clone(m.undone), func(id string) bool { return id == ended })
			m.Report.Faults = slices.Clone(m.Report.Faults[1:])
			if !m.faulty() {
				m.forget()
			}
		}},
	{what: "the node boots, and its agent has not reported",
		due: func(_ *world, m *machine) bool { return m.Reported && m.boots == 0 },
		happen: func(_ *world, m *machine) {
			m.boots++
			m.Reported, m.Report = false, gpuhealth.Report{}
		}},
	{what: "the agent reports after the boot",
		due: func(_ *world, m *machine) bool { return !m.Reported },
		happen: func(_ *world, m *machine) {
			m.Reported, m.Report = true, gpuhealth.Report{Boot: fmt.Sprint(m.boots)}
			m.forget()
		}},
	{what: "a person removes the taint",
		due: func(_ *world, m *machine) bool { return m.Tainted },
		happen: func(_ *world, m *machine) {
			m.Tainted = false
			if m.Record != nil && m.Record.State == Done {
				m.remember()
			}
		}},
	{what: "a person uncordons",
		due: func(_ *world, m *machine) bool { return m.Unschedulable && !m.Upgrading },
		happen: func(_ *world, m *machine) {
			if m.cordoner == us {
				m.remember()
			}
			m.Unschedulable, m.cordoner = false, ""
		}},
	{what: "a person cordons",
		due: func(_ *world, m *machine) bool { return !m.Unschedulable },
		happen: func(_ *world, m *machine) {
			m.Unschedulable, m.cordoner = true, person
			// Who has cordoned a node cannot be seen if it was uncordoned and cordoned before the planner looked.
			if m.Record != nil && m.Record.Cordons(m.UID) {
				m.cordoner = us
				m.forget()
			}
		}},
	{what: "a person removes the record",
		due: func(_ *world, m *machine) bool { return m.HasRecord },
		happen: func(_ *world, m *machine) {
			m.Record, m.HasRecord = nil, false
			m.forget()
			if m.cordoner == us {
				m.cordoner = person
			}
		}},
	{what: "a person approves",
		due:    func(_ *world, m *machine) bool { return m.faulty() && m.Consent == "" },
		happen: func(_ *world, m *machine) { m.Consent = labels.HealthApprove + m.id() }},
	{what: "a person forbids",
		due: func(_ *world, m *machine) bool { return m.Consent == "" },
		happen: func(_ *world, m *machine) {
			m.Consent = labels.HealthForbid
			m.forget()
		}},
	{what: "a person takes the consent back",
		due: func(_ *world, m *machine) bool { return m.Consent != "" },
		happen: func(_ *world, m *machine) {
			if m.forbids() {
				m.forget()
			}
			m.Consent = ""
		}},
	{what: "NVSentinel begins or ends",
		due: func(*world, *machine) bool { return true },
		happen: func(_ *world, m *machine) {
			if m.OtherActor == "" {
				m.OtherActor, m.ReliesOnCordon = "NVSentinel", "NVSentinel"
			} else {
				m.OtherActor, m.ReliesOnCordon = "", ""
			}
		}},
	{what: "a driver upgrade begins",
		due: func(_ *world, m *machine) bool { return !m.Upgrading },
		happen: func(_ *world, m *machine) {
			m.Upgrading = true
			if !m.Unschedulable {
				m.Unschedulable, m.UpgradeCordoned, m.cordoner = true, true, engine
			}
		}},
	{what: "the driver upgrade ends",
		due:    func(_ *world, m *machine) bool { return m.Upgrading },
		happen: func(_ *world, m *machine) { m.endUpgrade() }},
	{what: "the agent is turned off or on", elsewhere: true,
		due: func(*world, *machine) bool { return true },
		happen: func(_ *world, m *machine) {
			m.Watched = !m.Watched
			m.forget()
		}},
	{what: "the GPUs stop or start to work", elsewhere: true,
		due:    func(*world, *machine) bool { return true },
		happen: func(_ *world, m *machine) { m.InService = !m.InService }},
	{what: "time passes", global: true, elsewhere: true,
		due:    func(*world, *machine) bool { return true },
		happen: func(w *world, _ *machine) { w.now = w.now.Add(DefaultDwell) }},
	{what: "maxNodes 1 or 2", global: true, elsewhere: true,
		due: func(w *world, _ *machine) bool { return w.policy != nil },
		happen: func(w *world, _ *machine) {
			w.setPolicy(func(p *Policy) { p.MaxNodes = intstr.FromInt32(3 - p.MaxNodes.IntVal) })
			w.peak = max(w.peak, w.policy.MaxNodes.IntValue())
		}},
	{what: "the action for resets is none or taint", global: true, elsewhere: true,
		due: func(w *world, _ *machine) bool { return w.policy != nil },
		happen: func(w *world, _ *machine) {
			w.forgetUndone()
			w.setPolicy(func(p *Policy) {
				after := v1.HealthActionNone
				if p.Actions[gpuhealth.Reset] == v1.HealthActionNone {
					after = v1.HealthActionTaint
				}
				p.Actions = map[gpuhealth.Class]v1.HealthAction{
					gpuhealth.Reset: after, gpuhealth.Reboot: p.Actions[gpuhealth.Reboot],
				}
			})
		}},
	{what: "the policy is deleted", global: true, elsewhere: true,
		due: func(w *world, _ *machine) bool { return w.policy != nil },
		happen: func(w *world, _ *machine) {
			w.forgetUndone()
			w.policy = nil
		}},
}

func (m *machine) endUpgrade() {
	m.Upgrading = false
	if m.cordoner == engine {
		m.Unschedulable, m.cordoner = false, ""
	}
	m.UpgradeCordoned = false
}

func (w *world) setPolicy(change func(*Policy)) {
	policy := *w.policy
	change(&policy)
	w.policy = &policy
}
