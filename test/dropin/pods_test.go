package dropin

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// podRow has labels and annotations of pods that have the same outcome.
type podRow struct {
	Outcome     string            `json:"outcome"`
	Beside      string            `json:"beside"`
	GPU         bool              `json:"gpu"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// No label or annotation of a user's pod that is a setting is without an effect.
func TestNoMarkOfAPodIsSilent(t *testing.T) {
	rows := readRows[podRow](t, "testdata/pods.yaml")
	count := 0
	check := func(row podRow, name, value string, meta metav1.ObjectMeta) {
		count++
		t.Run(row.Outcome+" "+name+"="+value, func(t *testing.T) {
			if got := outcomeOfMark(t, row, meta); got != row.Outcome {
				t.Errorf("it is %s, want %s", got, row.Outcome)
			}
		})
	}
	for _, row := range rows {
		for _, key := range slices.Sorted(maps.Keys(row.Labels)) {
			check(row, key, row.Labels[key], metav1.ObjectMeta{Labels: map[string]string{key: row.Labels[key]}})
		}
		for _, key := range slices.Sorted(maps.Keys(row.Annotations)) {
			meta := metav1.ObjectMeta{Annotations: map[string]string{key: row.Annotations[key]}}
			check(row, key, row.Annotations[key], meta)
		}
	}
	t.Logf("%d labels and annotations of pods", count)
}

// outcomeOfMark compares what an upgrade that drains does with a pod without and with the mark. A pod with app=training
// is a job that is waited for.
func outcomeOfMark(t *testing.T, row podRow, meta metav1.ObjectMeta) string {
	t.Helper()
	policy := upgrade.PodPolicy{
		Namespace: namespace, Jobs: k8slabels.SelectorFromSet(k8slabels.Set{"app": "training"}), Draining: true,
		PodDeletion: upgrade.PodRules{Force: true}, Drain: upgrade.PodRules{Force: true},
	}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	if row.GPU {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	}
	marked := pod
	marked.ObjectMeta = meta
	before := upgrade.ClassifyPods([]corev1.Pod{pod}, policy, nil)
	after := upgrade.ClassifyPods([]corev1.Pod{marked}, policy, nil)
	switch {
	case !reflect.DeepEqual(before, after):
		return "honoured"
	case row.Beside != "" && runsInjector(t, row.Beside):
		return "passed"
	}
	return "kept"
}

// runsInjector reports whether the container toolkit runs its plugin of the container runtime, which reads annotations
// of all pods.
func runsInjector(t *testing.T, spec string) bool {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t}
	policy := v1.ClusterPolicySpec{}
	e.Expect(yaml.UnmarshalStrict([]byte(spec), &policy)).To(Succeed())
	s := situation{spec: policy, nodes: []nodeinfo.Facts{gpuNode("ubuntu", "24.04")}}
	for _, intent := range s.intents(e)["container-toolkit"] {
		content, err := yaml.Marshal(intent.Object)
		e.Expect(err).NotTo(HaveOccurred())
		if strings.Contains(string(content), "- name: ENABLE_NRI_PLUGIN\n          value: \"true\"") {
			return true
		}
	}
	return false
}
