package observe_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// A record that cannot be decoded may be that of a cordon, so it is told from none.
func TestRecordOfADrain(t *testing.T) {
	for name, test := range map[string]struct {
		annotations                   map[string]string
		recorded, unreadable, cordons bool
	}{
		"none":     {},
		"a record": {map[string]string{drainRecord: `{"uid":"one","state":"changing","cordoned":true}`}, true, false, true},
		"a state of another release": {
			map[string]string{drainRecord: `{"uid":"one","state":"later","cordoned":true}`}, true, false, true,
		},
		"no JSON": {map[string]string{drainRecord: "cordoned"}, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.Node{}
			object.Name, object.UID, object.Annotations = "gpu-1", "one", test.annotations
			node, _ := observe.UpgradeNode(&observe.UpgradeFacts{Node: object})
			mig := node.MIG
			if mig.Recorded != test.recorded || mig.Unreadable != test.unreadable || mig.Drain.Cordons("one") != test.cordons {
				t.Errorf("got %+v", mig)
			}
		})
	}
}

const drainRecord = "nvidia.com/gpu-operator.mig-drain"

// Since when a node reports, or does not, is that of its condition Ready.
func TestSinceWhenANodeReports(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for status, want := range map[corev1.ConditionStatus][2]time.Time{
		corev1.ConditionTrue: {since, {}}, corev1.ConditionFalse: {{}, since}, corev1.ConditionUnknown: {{}, since},
	} {
		object := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since)},
		}}}
		object.Status.NodeInfo.BootID = "b-1"
		// What is wanted of the node may not be known yet.
		node, _ := observe.UpgradeNode(&observe.UpgradeFacts{Node: object, Decisions: &plan.Decisions{}})
		if node.BootID != "b-1" {
			t.Errorf("got the boot %q", node.BootID)
		}
		if got := [2]time.Time{node.ReadySince, node.NotReadySince}; got != want {
			t.Errorf("Ready is %s: got %v, want %v", status, got, want)
		}
	}
}
