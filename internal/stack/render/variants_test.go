package render_test

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// selected returns the names of the DaemonSets that select a node with these labels.
func selected(t *testing.T, sets []*appsv1.DaemonSet, labels map[string]string) []string {
	t.Helper()
	var names []string
	for _, ds := range sets {
		pod := ds.Spec.Template.Spec
		matches, err := nodeaffinity.NewRequiredNodeAffinity(pod.NodeSelector, pod.Affinity).
			Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}})
		if err != nil {
			t.Fatal(err)
		}
		if matches {
			names = append(names, ds.Name)
		}
	}
	return names
}

// labelsOf returns all labels of a node of the DaemonSet's variant, from the terms of its node affinity.
func labelsOf(ds *appsv1.DaemonSet) map[string]string {
	found := map[string]string{}
	affinity := ds.Spec.Template.Spec.Affinity.NodeAffinity
	for _, term := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn {
				found[e.Key] = e.Values[0]
			}
		}
	}
	return found
}

// anchored returns the DaemonSets of the operands whose nodes have an anchor, of which there are two.
func anchored(t *testing.T, s situation) map[operand.Name][]*appsv1.DaemonSet {
	t.Helper()
	found := s.daemonSets(t)
	maps.DeleteFunc(found, func(name operand.Name, _ []*appsv1.DaemonSet) bool { return !selectsByAnchor(name) })
	NewWithT(t).Expect(found).To(HaveLen(2))
	return found
}

// subsets calls do for each subset of the keys.
func subsets(keys []string, do func(map[string]bool)) {
	for bits := range 1 << len(keys) {
		subset := map[string]bool{}
		for i, key := range keys {
			if bits&(1<<i) != 0 {
				subset[key] = true
			}
		}
		do(subset)
	}
}

// A node that has lost any labels but the anchor, or only the anchor, keeps its driver and toolkit. No other DaemonSet
// of the operand selects it then, and none does once all labels are lost.
func TestANodeThatHasLostLabelsKeepsItsPod(t *testing.T) {
	for operandName, sets := range anchored(t, everyVariantWith(differingPools)) {
		anchor := "clusterpolicy.github.io/" + string(operandName)
		for _, ds := range sets {
			all := labelsOf(ds)
			subsets(slices.Sorted(maps.Keys(all)), func(lost map[string]bool) {
				left := maps.Clone(all)
				maps.DeleteFunc(left, func(key, _ string) bool { return lost[key] })
				got := selected(t, sets, left)
				stays := !lost[anchor] || len(lost) == 1
				if stays && !slices.Equal(got, []string{ds.Name}) {
					t.Errorf("%s: a node that has lost %v is selected by %v", ds.Name, slices.Sorted(maps.Keys(lost)), got)
				}
				if len(left) == 0 && len(got) > 0 {
					t.Errorf("%s: a node without labels is selected by %v", operandName, got)
				}
			})
		}
	}
}

// A value of the deploy label other than the operator's removes the pod: false of a user, or a paused operand.
func TestAnotherValueTakesThePodOff(t *testing.T) {
	for operandName, sets := range anchored(t, everyVariantWith(differingPools)) {
		deploy := "nvidia.com/gpu.deploy." + string(operandName)
		for _, ds := range sets {
			for _, value := range []string{
				"false", "paused-for-driver-upgrade", "pre-installed", "true_paused-for-driver-upgrade", "",
			} {
				labels := labelsOf(ds)
				labels[deploy] = value
				if got := selected(t, sets, labels); len(got) > 0 {
					t.Errorf("%s=%s: selected by %v", deploy, value, got)
				}
			}
		}
	}
}

// No selector matches the pods of another DaemonSet, whichever variant was first.
func TestNoSelectorMatchesThePodsOfAnother(t *testing.T) {
	all := everyVariantWith(differingPools)
	for operandName, sets := range anchored(t, all) {
		for _, first := range []*appsv1.DaemonSet{sets[0], sets[len(sets)/2], sets[len(sets)-1]} {
			s := all
			s.live = map[string]rollout.Live{
				baseOf(operandName): {Variant: rollout.LiveDaemonSet(first).Variant, App: baseOf(operandName)},
			}
			named := s.daemonSets(t)[operandName]
			for _, a := range named {
				for _, b := range named {
					matches := apilabels.SelectorFromSet(a.Spec.Selector.MatchLabels).Matches(apilabels.Set(b.Spec.Template.Labels))
					if matches != (a == b) {
						t.Errorf("%s selects the pods of %s: %v", a.Name, b.Name, matches)
					}
				}
			}
		}
	}
}

func baseOf(name operand.Name) string {
	return map[operand.Name]string{
		"driver": "nvidia-driver-daemonset", "container-toolkit": "nvidia-container-toolkit-daemonset",
	}[name]
}

// A DaemonSet keeps its name and its selector until it and all of its pods are gone, whichever variants are added and
// removed.
func TestDaemonSetNamesOfVariants(t *testing.T) {
	const (
		plain  = "nvidia-driver-daemonset"
		jammy  = "ubuntu22.04-amd64"
		noble  = "ubuntu24.04-amd64"
		legacy = plain + "-" + noble
	)
	node := func(version string) nodeinfo.Facts { return node("ubuntu", version) }
	own := func(variant, app string) rollout.Live {
		return rollout.Live{Variant: variant, App: app, TemplateDigest: "x"}
	}
	tests := map[string]struct {
		live  map[string]rollout.Live
		nodes []nodeinfo.Facts
		// want are the selectors of the DaemonSets, by name.
		want map[string]map[string]string
	}{
		"one variant": {nodes: []nodeinfo.Facts{node("24.04")}, want: map[string]map[string]string{plain: {"app": plain}}},
		"two variants together": {
			nodes: []nodeinfo.Facts{node("24.04"), node("22.04")},
			want:  map[string]map[string]string{plain: {"app": plain}, legacy: {"app": legacy}},
		},
		"a second variant, whatever its name": {
			live: map[string]rollout.Live{plain: own(noble, plain)}, nodes: []nodeinfo.Facts{node("24.04"), node("22.04")},
			want: map[string]map[string]string{plain: {"app": plain}, plain + "-" + jammy: {"app": plain + "-" + jammy}},
		},
		"the second keeps its name when the first is gone": {
			live: map[string]rollout.Live{legacy: own(noble, legacy)}, nodes: []nodeinfo.Facts{node("24.04")},
			want: map[string]map[string]string{legacy: {"app": legacy}},
		},
		"a variant that is added after the first is gone": {
			live: map[string]rollout.Live{legacy: own(noble, legacy)}, nodes: []nodeinfo.Facts{node("24.04"), node("22.04")},
			want: map[string]map[string]string{legacy: {"app": legacy}, plain + "-" + jammy: {"app": plain + "-" + jammy}},
		},
		"a variant that is added while a pod of the first remains": {
			live: map[string]rollout.Live{
				legacy: own(noble, legacy),
				plain:  {Variant: "ubuntu26.04-amd64", App: plain},
			}, nodes: []nodeinfo.Facts{node("24.04"), node("22.04")},
			want: map[string]map[string]string{legacy: {"app": legacy}, plain + "-" + jammy: {"app": plain + "-" + jammy}},
		},
		"the first one returns while a pod of it remains": {
			live: map[string]rollout.Live{
				legacy: own(noble, legacy),
				plain:  {Variant: jammy, App: plain},
			}, nodes: []nodeinfo.Facts{node("24.04"), node("22.04")},
			want: map[string]map[string]string{legacy: {"app": legacy}, plain: {"app": plain}},
		},
		"a driver of NVIDIA's operator is adopted": {
			live: map[string]rollout.Live{plain: {App: plain}}, nodes: []nodeinfo.Facts{node("24.04")},
			want: map[string]map[string]string{plain: {"app": plain}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]map[string]string{}
			for _, ds := range (situation{nodes: test.nodes, live: test.live}).daemonSets(t)["driver"] {
				got[ds.Name] = ds.Spec.Selector.MatchLabels
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

// A name that is too long for a label value is shortened with a digest.
func TestALongNameIsALabel(t *testing.T) {
	g := NewWithT(t)
	facts := node("ubuntu", "24.04")
	facts.Kernel = "6.8.0-1015-azure-a-very-long-flavour-of-it"
	live := map[string]rollout.Live{"nvidia-driver-daemonset": {Variant: "another", App: "nvidia-driver-daemonset"}}
	precompiled := v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}},
	}
	ds := situation{spec: precompiled, nodes: []nodeinfo.Facts{facts}, live: live}.daemonSet(t, "driver")
	g.Expect(ds.Name).To(HaveSuffix("a-very-long-flavour-of-it"))
	app := ds.Spec.Template.Labels["app"]
	g.Expect(len(app)).To(BeNumerically("<=", 63))
	g.Expect(app).To(MatchRegexp("^nvidia-driver-daemonset-[0-9a-f]{16}$"))
	g.Expect(ds.Spec.Selector.MatchLabels).To(Equal(map[string]string{"app": app}))
}
