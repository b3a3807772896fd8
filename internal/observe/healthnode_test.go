package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Health actions wait for the end of a drain for a MIG layout, and leave the cordon to it that it has made.
func TestHealthActionsSeeDrains(t *testing.T) {
	drain := func(state upgrade.DrainState, cordoned bool) string {
		return (&upgrade.Drain{UID: "n", State: state, Layout: "all-3g.40gb", Cordoned: cordoned}).Encode()
	}
	upgraded := (&upgrade.Record{UID: "n", Round: 1, State: upgrade.StateDrain}).Encode()
	for name, test := range map[string]struct {
		annotations                      map[string]string
		upgrading, relayouting, cordoned bool
	}{
		"no drain": {},
		"a drain": {
			annotations: map[string]string{labels.MIGDrain: drain(upgrade.DrainUsers, true)},
			upgrading:   true, relayouting: true, cordoned: true,
		},
		"a drain of a node that a user has cordoned": {
			annotations: map[string]string{labels.MIGDrain: drain(upgrade.DrainJobs, false)},
			upgrading:   true, relayouting: true,
		},
		"a layout that is requested": {
			annotations: map[string]string{labels.MIGDrain: drain(upgrade.DrainChanging, true)},
			upgrading:   true, relayouting: true, cordoned: true,
		},
		"a failed drain":  {annotations: map[string]string{labels.MIGDrain: drain(upgrade.DrainFailed, false)}},
		"no valid record": {annotations: map[string]string{labels.MIGDrain: "{"}},
		"a drain of a deleted node": {annotations: map[string]string{
			labels.MIGDrain: (&upgrade.Drain{UID: "gone", State: upgrade.DrainUsers, Layout: "a", Cordoned: true}).Encode(),
		}},
		"an upgrade of the driver during a drain": {
			annotations: map[string]string{
				labels.MIGDrain: drain(upgrade.DrainUsers, true), labels.UpgradeRecord: upgraded,
			},
			upgrading: true, cordoned: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := HealthNode(&HealthFacts{Node: &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Annotations: test.annotations},
			}})
			if got.Upgrading != test.upgrading || got.Relayouting != test.relayouting ||
				got.UpgradeCordoned != test.cordoned {
				t.Errorf("upgrading %t, relayouting %t, cordoned %t", got.Upgrading, got.Relayouting, got.UpgradeCordoned)
			}
		})
	}
}

// A node that is to offer no GPUs, and does not, is as healthy as one whose GPUs can be used: no node stays out of the
// count that limits the actions on others.
func TestHealthActionsCountNodesInService(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	unknown := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
	for name, test := range map[string]struct {
		assessment assess.Assessment
		kubelet    corev1.NodeCondition
		want       bool
	}{
		"its GPUs can be used":             {assess.Assessment{Usable: true}, ready, true},
		"nothing is to offer its GPUs":     {assess.Assessment{NothingOffers: true}, ready, true},
		"its GPUs cannot be used":          {assess.Assessment{}, ready, false},
		"nothing offers, kubelet is gone":  {assess.Assessment{NothingOffers: true}, unknown, false},
		"its GPUs are usable, but it left": {assess.Assessment{Usable: true}, unknown, false},
	} {
		got := HealthNode(&HealthFacts{
			Node: &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.GPUProduct: "H100"}},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{test.kubelet}},
			},
			Decisions: &plan.Decisions{}, Planned: &plan.NodePlan{NodePool: "pool"}, Assessment: &test.assessment,
		})
		if got.InService != test.want || got.Group != "pool/H100" {
			t.Errorf("%s: in service: %t, of group %s", name, got.InService, got.Group)
		}
	}
}
