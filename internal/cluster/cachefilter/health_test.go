package cachefilter_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func TestHealthNodeChanges(t *testing.T) {
	annotated := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Annotations[key] = "changed" }
	}
	labelled := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Labels[key] = "changed" }
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		passes bool
	}{
		"the report of the agent":      {annotated(labels.GPUHealth), true},
		"the record":                   {annotated(labels.HealthRecord), true},
		"the consent of a user":        {annotated(labels.HealthConsent), true},
		"the record of an upgrade":     {annotated(labels.UpgradeRecord), true},
		"the state of an upgrade":      {labelled(labels.UpgradeState), true},
		"the state of NVSentinel":      {labelled(labels.NVSentinelState), true},
		"the state of the MIG manager": {labelled(labels.MIGConfigState), true},
		"the end of a cordon":          {func(node *corev1.Node) { node.Spec.Unschedulable = false }, true},
		"a taint":                      {func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: "a"}} }, true},
		"a boot":                       {func(node *corev1.Node) { node.Status.NodeInfo.BootID = "next" }, true},
		"another annotation":           {annotated("team"), false},
		"another label":                {labelled("team"), false},
		"a condition":                  {func(node *corev1.Node) { node.Status.Conditions[1].Status = "False" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := upgradedNode(), upgradedNode()
			test.change(after)
			if test.passes {
				// The cache has what has changed.
				before, after = trimmed(t, cachefilter.TrimNode, before), trimmed(t, cachefilter.TrimNode, after)
			}
			got := cachefilter.HealthNodeChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			if got != test.passes {
				t.Errorf("passes %v, want %v", got, test.passes)
			}
		})
	}
}
