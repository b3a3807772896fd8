package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
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

// A node that another program works on gets no action, and one record that cannot be decoded counts as none.
func TestHealthActionsSeeOthersAndRecords(t *testing.T) {
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key}} }
	}
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	record := func(text string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations = map[string]string{"nvidia.com/gpu-operator.health-record": text}
		}
	}
	for name, test := range map[string]struct {
		change              func(*corev1.Node)
		actor, reliesOn     string
		hasRecord, recorded bool
	}{
		"none": {change: func(*corev1.Node) {}},
		"NVSentinel": {
			change: label(labels.NVSentinelState, "draining"), actor: "NVSentinel", reliesOn: "NVSentinel",
		},
		"NVSentinel is done":      {change: label(labels.NVSentinelState, "remediation-succeeded")},
		"the autoscaler":          {change: taint(labels.TaintToBeDeleted), actor: "the cluster autoscaler"},
		"Karpenter":               {change: taint(labels.TaintDisrupted), actor: "Karpenter"},
		"the MIG manager":         {change: label(labels.MIGConfigState, "pending"), actor: "the MIG manager"},
		"the MIG manager reboots": {change: label(labels.MIGConfigState, "rebooting"), actor: "the MIG manager"},
		"the MIG manager is done": {change: label(labels.MIGConfigState, "success")},
		"a record": {
			change:    record(`{"uid":"n","state":"done","action":"taint","fault":"reset-1"}`),
			hasRecord: true, recorded: true,
		},
		"a record that cannot be decoded": {change: record("{"), hasRecord: true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
		test.change(node)
		got := HealthNode(&HealthFacts{Node: node})
		if got.OtherActor != test.actor || got.ReliesOnCordon != test.reliesOn || got.HasRecord != test.hasRecord ||
			(got.Record != nil) != test.recorded {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// The oldest policy that is being deleted and is still held is the one to remove.
func TestRemoved(t *testing.T) {
	policy := func(name string, created int64, deleted, held bool) v1.ClusterPolicy {
		p := v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
		if deleted {
			p.DeletionTimestamp = new(metav1.Unix(9, 0))
		}
		if held {
			p.Finalizers = []string{labels.RemovalFinalizer}
		}
		return p
	}
	all := []v1.ClusterPolicy{
		policy("active", 1, false, true), policy("let go", 2, true, false), policy("b", 4, true, true),
		policy("a", 4, true, true), policy("c", 5, true, true),
	}
	if got := Removed(all); got == nil || got.Name != "a" {
		t.Errorf("got %v", got)
	}
	if got := Removed(all[:2]); got != nil {
		t.Errorf("got %s", got.Name)
	}
}
