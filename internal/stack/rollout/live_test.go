package rollout_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

func mountScript(pod *corev1.PodSpec) {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: labels.ProbeScript}}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "v"}, corev1.Volume{
		Name: "w", VolumeSource: corev1.VolumeSource{ConfigMap: source},
	})
}

func TestLiveDaemonSet(t *testing.T) {
	select1 := func(key, value string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labels.App: "app", key: value}}
		}
	}
	// mounted is one whose earlier pods mount the script, with this status.
	mounted := func(generation int64, status appsv1.DaemonSetStatus) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			ds.Annotations = map[string]string{labels.ProbeScriptMounted: labels.True}
			ds.Generation, ds.Status = generation, status
		}
	}
	replaced := appsv1.DaemonSetStatus{ObservedGeneration: 2, UpdatedNumberScheduled: 3, DesiredNumberScheduled: 3}
	behind, partly, misplaced := replaced, replaced, replaced
	behind.ObservedGeneration, partly.UpdatedNumberScheduled, misplaced.NumberMisscheduled = 1, 2, 1
	for name, test := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   rollout.Live
	}{
		"of others": {func(*appsv1.DaemonSet) {}, rollout.Live{}},
		"of this operator": {func(ds *appsv1.DaemonSet) {
			ds.Annotations = map[string]string{labels.TemplateDigest: "t", labels.HelperImage: "h"}
		}, rollout.Live{TemplateDigest: "t", HelperImage: "h"}},
		"with a variant": {func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Labels = map[string]string{labels.Layout: "l", labels.NodePool: "n"}
		}, rollout.Live{Variant: operand.Variant("", "l", "n")}},
		"its selector": {select1(labels.PartOf, "part"), rollout.Live{App: "app", PartOfInSelector: "part"}},
		"with the script": {
			func(ds *appsv1.DaemonSet) { mountScript(&ds.Spec.Template.Spec) }, rollout.Live{NeedsProbeScript: true},
		},
		"with another ConfigMap": {func(ds *appsv1.DaemonSet) {
			mountScript(&ds.Spec.Template.Spec)
			ds.Spec.Template.Spec.Volumes[1].ConfigMap.Name = "x"
		}, rollout.Live{}},
		"all pods are replaced":       {mounted(2, replaced), rollout.Live{}},
		"its status is of an earlier": {mounted(2, behind), rollout.Live{NeedsProbeScript: true}},
		"not all pods are replaced":   {mounted(2, partly), rollout.Live{NeedsProbeScript: true}},
		"pods are on other nodes":     {mounted(2, misplaced), rollout.Live{NeedsProbeScript: true}},
		"no pod has had the script": {func(ds *appsv1.DaemonSet) {
			mounted(2, behind)(ds)
			ds.Annotations[labels.ProbeScriptMounted] = labels.False
		}, rollout.Live{}},
	} {
		ds := &appsv1.DaemonSet{}
		test.change(ds)
		if diff := cmp.Diff(test.want, rollout.LiveDaemonSet(ds)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		live := map[string]rollout.Live{"a": {}, "b": rollout.LiveDaemonSet(ds)}
		if rollout.AnyNeedsProbeScript(live) != test.want.NeedsProbeScript {
			t.Errorf("%s: any needs the script: %v", name, !test.want.NeedsProbeScript)
		}
	}
}

// The DaemonSets of an operand are those with its label, and of NVIDIA's those that it takes over.
func TestDaemonSetsOfAnOperand(t *testing.T) {
	all := map[string]*appsv1.DaemonSet{}
	for name, owner := range map[string]string{"ours": "driver", "driver": "", "other": "", "theirs": "toolkit"} {
		ds := &appsv1.DaemonSet{}
		ds.Labels = map[string]string{labels.Operand: owner}
		ds.Annotations = map[string]string{labels.HelperImage: name}
		ds.Spec.Template.Labels = map[string]string{labels.Pool: owner}
		all[name] = ds
	}
	live := func(names ...string) map[string]rollout.Live {
		found := map[string]rollout.Live{}
		for _, name := range names {
			found[name] = rollout.LiveDaemonSet(all[name])
		}
		return found
	}
	for name, test := range map[string]struct {
		operand operand.Operand
		want    map[string]rollout.Live
	}{
		"with variants":    {operand.Operand{Name: "driver", DaemonSet: "driver"}, live("ours", "driver")},
		"without variants": {operand.Operand{Name: "driver"}, live("ours", "driver", "other")},
		"of no DaemonSet":  {operand.Operand{Name: "x", DaemonSet: "x"}, live()},
	} {
		if diff := cmp.Diff(test.want, rollout.LiveDaemonSets(&test.operand, all)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	want := []string{operand.Variant("driver", "", ""), operand.Variant("toolkit", "", "")}
	all["second"] = all["ours"]
	if got := rollout.Variants(all); !slices.Equal(got, want) {
		t.Errorf("got the variants %q, want %q", got, want)
	}
}
