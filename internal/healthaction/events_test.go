package healthaction

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
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

// id is the ID of the machine's fault.
func (m *machine) id() string { return faultID(m.Report.Boot, &m.Report.Faults[0]) }

// remember forgets that a person has undone something, as with the record.
func (w *world) forgetUndone() {
	for i := range w.machines {
		w.machines[i].undone = ""
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
		happen: func(w *world, m *machine) { m.fails(w, gpuhealth.Reboot) }},
	{what: "the fault ends",
		due:    func(_ *world, m *machine) bool { return m.faulty() },
		happen: func(_ *world, m *machine) { m.Report.Faults, m.undone = nil, "" }},
	{what: "the node boots, and its agent has not reported",
		due: func(_ *world, m *machine) bool { return m.Reported && m.boots == 0 },
		happen: func(_ *world, m *machine) {
			m.boots++
			m.Reported, m.Report = false, gpuhealth.Report{}
		}},
	{what: "the agent reports after the boot",
		due: func(_ *world, m *machine) bool { return !m.Reported },
		happen: func(_ *world, m *machine) {
			m.Reported, m.Report, m.undone = true, gpuhealth.Report{Boot: fmt.Sprint(m.boots)}, ""
		}},
	{what: "a person removes the taint",
		due: func(_ *world, m *machine) bool { return m.Tainted },
		happen: func(_ *world, m *machine) {
			m.Tainted = false
			if m.Record != nil && m.Record.State == Done {
				m.undone = m.Record.Fault
			}
		}},
	{what: "a person uncordons",
		due: func(_ *world, m *machine) bool { return m.Unschedulable && !m.Upgrading },
		happen: func(_ *world, m *machine) {
			if m.cordoner == us {
				m.undone = m.Record.Fault
			}
			m.Unschedulable, m.cordoner = false, ""
		}},
	{what: "a person cordons",
		due: func(_ *world, m *machine) bool { return !m.Unschedulable },
		happen: func(_ *world, m *machine) {
			m.Unschedulable, m.cordoner = true, person
			// Who has cordoned a node cannot be seen if it was uncordoned and cordoned before the planner looked.
			if m.Record != nil && m.Record.Cordons(m.UID) {
				m.cordoner, m.undone = us, ""
			}
		}},
	{what: "a person removes the record",
		due: func(_ *world, m *machine) bool { return m.HasRecord },
		happen: func(_ *world, m *machine) {
			m.Record, m.HasRecord, m.undone = nil, false, ""
			if m.cordoner == us {
				m.cordoner = person
			}
		}},
	{what: "a person approves",
		due:    func(_ *world, m *machine) bool { return m.faulty() && m.Consent == "" },
		happen: func(_ *world, m *machine) { m.Consent = labels.HealthApprove + m.id() }},
	{what: "a person forbids",
		due:    func(_ *world, m *machine) bool { return m.Consent == "" },
		happen: func(_ *world, m *machine) { m.Consent, m.undone = labels.HealthForbid, "" }},
	{what: "a person takes the consent back",
		due: func(_ *world, m *machine) bool { return m.Consent != "" },
		happen: func(_ *world, m *machine) {
			if m.forbids() {
				m.undone = ""
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
		due:    func(*world, *machine) bool { return true },
		happen: func(_ *world, m *machine) { m.Watched, m.undone = !m.Watched, "" }},
	{what: "the GPUs stop or start to work", elsewhere: true,
		due:    func(*world, *machine) bool { return true },
		happen: func(_ *world, m *machine) { m.Usable = !m.Usable }},
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
