package fleet

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
)

// HealthActionsDue returns a channel that has an event when health actions must be planned again because of entries or
// a new Basis, for one receiver.
func (f *Fleet) HealthActionsDue() <-chan event.GenericEvent { return f.actionsDue.Events() }

// HealthActionsChanged returns a channel that has an event when verdicts of health actions have changed, for one
// receiver.
func (f *Fleet) HealthActionsChanged() <-chan event.GenericEvent { return f.actionsChanged.Events() }

// SetHealthActions replaces the verdicts of health actions, which must not be modified afterwards. While an action is
// about to be taken, the earlier verdict on the node stays. The nodes whose verdict differs are assessed again, and a
// pass is due.
func (f *Fleet) SetHealthActions(verdicts map[string]healthaction.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for node, verdict := range verdicts {
		if before, known := f.health[node]; known && verdict.Acting() {
			verdicts[node] = before
		}
	}
	same := f.health != nil && maps.Equal(f.health, verdicts)
	if f.health == nil {
		f.noteUnhealthy()
	}
	for node, verdict := range verdicts {
		if before, known := f.health[node]; !known || before != verdict {
			f.changedHealth[node] = true
		}
	}
	for node := range f.health {
		if _, kept := verdicts[node]; !kept {
			f.changedHealth[node] = true
		}
	}
	f.health = verdicts
	if !same {
		f.changed.Notify()
		f.actionsChanged.Notify()
	}
}

// noteUnhealthy marks all nodes with faults as changed: before the first verdicts they may show those of an earlier
// start of the operator.
func (f *Fleet) noteUnhealthy() {
	for name, entry := range f.entries {
		if health := entry.Latest.Health; health != nil && (health.Unknown != "" || len(health.Report.Faults) > 0) {
			f.changedHealth[name] = true
		}
	}
}

// HealthAction returns the verdict of health actions on a node; zero if there is none. known is false before the first
// plan.
func (f *Fleet) HealthAction(node string) (verdict healthaction.Verdict, known bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.health[node], f.health != nil
}

// TakeHealthChanges returns the nodes whose verdict of health actions has changed since the last call, in any order.
func (f *Fleet) TakeHealthChanges() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := make([]string, 0, len(f.changedHealth))
	for node := range f.changedHealth {
		changed = append(changed, node)
	}
	clear(f.changedHealth)
	return changed
}
