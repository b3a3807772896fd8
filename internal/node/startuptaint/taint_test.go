package startuptaint_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

// Start-up taints are removed when the GPUs can be used, are added again only if the spec requires it, and evict no
// pods. Other taints stay as they are, in their order.
func TestStartupTaints(t *testing.T) {
	added := metav1.Now()
	foreign := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	unreachable := corev1.Taint{
		Key:       "node.kubernetes.io/unreachable",
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: &added,
	}
	own := corev1.Taint{Key: "nvidia.com/gpu-operator.not-ready", Effect: corev1.TaintEffectNoSchedule}
	evicting := corev1.Taint{Key: "example.com/starting", Value: "now", Effect: corev1.TaintEffectNoExecute}
	valued := corev1.Taint{Key: "example.com/starting", Value: "now", Effect: corev1.TaintEffectNoSchedule}
	named := func(taints ...corev1.Taint) []v1.StartupTaint {
		var all []v1.StartupTaint
		for _, taint := range taints {
			all = append(all, v1.StartupTaint{Key: taint.Key, Value: v1.LabelValue(taint.Value), Effect: taint.Effect})
		}
		return all
	}
	report := v1.NodeStartupSpec{Taints: named(own, evicting, valued), OnFailure: v1.OnFailureReport}
	retaint := v1.NodeStartupSpec{Taints: report.Taints, OnFailure: v1.OnFailureTaint}
	const ownID, valuedID = "nvidia.com/gpu-operator.not-ready:NoSchedule", "example.com/starting:NoSchedule"
	taints := func(all ...corev1.Taint) []corev1.Taint { return all }
	tests := map[string]struct {
		spec      v1.NodeStartupSpec
		now, want startuptaint.Taints
		desired   startuptaint.Action
	}{
		"a node that starts keeps them": {
			spec: report,
			now:  startuptaint.Taints{All: taints(own, foreign, evicting)},
			want: startuptaint.Taints{All: taints(own, foreign, evicting)},
		},
		"a node whose GPUs can be used loses them, and no other": {
			spec: report, now: startuptaint.Taints{All: taints(own, foreign, evicting, unreachable, valued)},
			desired: startuptaint.Remove,
			want:    startuptaint.Taints{All: taints(foreign, unreachable)},
		},
		"no taint is named": {
			now:     startuptaint.Taints{All: taints(own, foreign)},
			desired: startuptaint.Remove,
			want:    startuptaint.Taints{All: taints(own, foreign)},
		},
		"the same key with another effect is another taint": {
			spec: v1.NodeStartupSpec{
				Taints: named(valued),
			}, now: startuptaint.Taints{All: taints(evicting)}, desired: startuptaint.Remove,
			want: startuptaint.Taints{All: taints(evicting)},
		},
		"another value is another taint": {
			spec: v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: "team", Value: "web", Effect: "NoSchedule"}}},
			now: startuptaint.Taints{
				All: taints(foreign),
			}, desired: startuptaint.Remove, want: startuptaint.Taints{All: taints(foreign)},
		},
		"no value matches any": {
			spec: v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: "team", Effect: "NoSchedule"}}},
			now:  startuptaint.Taints{All: taints(foreign)}, desired: startuptaint.Remove,
		},
		"a failure is only reported": {
			spec:    report,
			now:     startuptaint.Taints{All: taints(foreign)},
			desired: startuptaint.Restore,
			want:    startuptaint.Taints{All: taints(foreign)},
		},
		"a failure adds taints again that evict no pods": {
			spec: retaint, now: startuptaint.Taints{All: taints(foreign)}, desired: startuptaint.Restore,
			want: startuptaint.Taints{All: taints(foreign, own, valued), Restored: []string{valuedID, ownID}},
		},
		"a boot adds taints again that evict no pods, whatever follows a failure": {
			spec: report, now: startuptaint.Taints{All: taints(foreign)}, desired: startuptaint.RestoreAfterBoot,
			want: startuptaint.Taints{All: taints(foreign, own, valued), Restored: []string{valuedID, ownID}},
		},
		"a node that starts after a boot keeps them": {
			spec:    report,
			now:     startuptaint.Taints{All: taints(own, foreign, valued), Restored: []string{valuedID, ownID}},
			desired: startuptaint.RestoreAfterBoot,
			want:    startuptaint.Taints{All: taints(own, foreign, valued), Restored: []string{valuedID, ownID}},
		},
		"a taint of the node group is not the operator's after a boot": {
			spec: report, now: startuptaint.Taints{All: taints(own)}, desired: startuptaint.RestoreAfterBoot,
			want: startuptaint.Taints{All: taints(own, valued), Restored: []string{valuedID}},
		},
		"an existing taint is not added again": {
			spec:    retaint,
			now:     startuptaint.Taints{All: taints(own)},
			desired: startuptaint.Restore,
			want:    startuptaint.Taints{All: taints(own, valued), Restored: []string{valuedID}},
		},
		"a lasting failure changes nothing": {
			spec:    retaint,
			now:     startuptaint.Taints{All: taints(foreign, own, valued), Restored: []string{valuedID, ownID}},
			desired: startuptaint.Restore,
			want:    startuptaint.Taints{All: taints(foreign, own, valued), Restored: []string{valuedID, ownID}},
		},
		"a node that recovers keeps them": {
			spec: retaint,
			now:  startuptaint.Taints{All: taints(own), Restored: []string{ownID}},
			want: startuptaint.Taints{All: taints(own), Restored: []string{ownID}},
		},
		"a node that has recovered loses them": {
			spec:    retaint,
			now:     startuptaint.Taints{All: taints(own, foreign, valued), Restored: []string{valuedID, ownID}},
			desired: startuptaint.Remove,
			want:    startuptaint.Taints{All: taints(foreign)},
		},
		"the spec is back to Report": {
			spec:    report,
			now:     startuptaint.Taints{All: taints(own, valued), Restored: []string{ownID}},
			desired: startuptaint.Restore,
			want:    startuptaint.Taints{All: taints(valued)},
		},
		"the spec no longer names one of them": {
			spec: v1.NodeStartupSpec{Taints: named(own), OnFailure: v1.OnFailureTaint},
			now:  startuptaint.Taints{All: taints(own, valued), Restored: []string{valuedID, ownID}},
			want: startuptaint.Taints{All: taints(own), Restored: []string{ownID}},
		},
		"the policy is deleted: taints of others stay": {
			now: startuptaint.Taints{
				All:      taints(own, foreign, evicting),
				Restored: []string{ownID},
			}, desired: startuptaint.Release,
			want: startuptaint.Taints{All: taints(foreign, evicting)},
		},
		"a node is excluded while it starts": {
			spec:    retaint,
			now:     startuptaint.Taints{All: taints(own, valued), Restored: []string{valuedID}},
			desired: startuptaint.Release,
			want:    startuptaint.Taints{All: taints(own)},
		},
		"another writer removed it": {
			spec: retaint,
			now:  startuptaint.Taints{Restored: []string{ownID}},
			want: startuptaint.Taints{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := startuptaint.Next(test.spec, test.now, test.desired)
			g.Expect(got).To(Equal(test.want))
			g.Expect(startuptaint.Next(test.spec, got, test.desired)).To(Equal(got), "a second time changes nothing")
		})
	}
}

func TestTaintsOfTheSpec(t *testing.T) {
	g := NewWithT(t)
	for effect, want := range map[corev1.TaintEffect]bool{"NoSchedule": true, "NoExecute": false} {
		spec := v1.NodeStartupSpec{Taints: []v1.StartupTaint{{Key: "a", Effect: effect}}}
		g.Expect(startuptaint.HasRestorable(spec)).To(Equal(want))
	}
	a, b := corev1.Taint{Key: "a", Effect: "NoSchedule"}, corev1.Taint{Key: "b", Value: "c", Effect: "NoExecute"}
	g.Expect(startuptaint.Difference([]corev1.Taint{a, b}, nil)).To(Equal("a:NoSchedule, b:NoExecute"))
	g.Expect(startuptaint.Difference([]corev1.Taint{a, b}, []corev1.Taint{{Key: "b", Effect: "NoExecute"}, b})).
		To(Equal("a:NoSchedule"))
}
