package history_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

func configMap(namespace, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "m", UID: "u", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
		},
		Data: map[string]string{"key": value},
	}
}

func stateOf(t *testing.T, maps ...*corev1.ConfigMap) history.State {
	t.Helper()
	world := history.World{}
	for _, m := range maps {
		world[history.Key{Kind: history.ConfigMap, Namespace: m.Namespace, Name: m.Name}] = m
	}
	state, err := history.StateOf(world, "ns")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestDifferences: differences except UIDs, other namespaces, and those between undisturbed runs.
func TestDifferences(t *testing.T) {
	g := NewWithT(t)
	one, other := stateOf(t, configMap("ns", "1")), stateOf(t, configMap("ns", "2"))
	again := configMap("ns", "1")
	again.UID, again.ResourceVersion, again.CreationTimestamp = "v", "2", metav1.NewTime(time.Unix(2, 0))
	again.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	g.Expect(history.Differences(one, stateOf(t, again, configMap("elsewhere", "3")),
		[2]history.State{one, one})).To(BeEmpty())
	g.Expect(history.Differences(one, other,
		[2]history.State{one, one})).To(ConsistOf(`ConfigMap ns/m.data.key: want "1", got "2"`))
	g.Expect(history.Differences(one, stateOf(t), [2]history.State{one, one})).NotTo(BeEmpty())
	g.Expect(history.Differences(one, other, [2]history.State{one, other})).To(BeEmpty())
}

// TestDifferencesOfTheAppliedSpec: the number of writes of the spec does not matter, but its content does.
func TestDifferencesOfTheAppliedSpec(t *testing.T) {
	g := NewWithT(t)
	recorded := func(applied, digest string) history.State {
		m := configMap("ns", "1")
		m.Annotations = map[string]string{labels.AppliedSpec: applied, labels.Digest: digest}
		return stateOf(t, m)
	}
	first := recorded("1-abc", "d1")
	g.Expect(history.Differences(first, recorded("3-abc", "d3"), [2]history.State{first, first})).To(BeEmpty())
	g.Expect(history.Differences(first, recorded("1-xyz", "d1"), [2]history.State{first, first})).
		To(ConsistOf(ContainSubstring(`want "abc", got "xyz"`)))
}

// TestCounts: objects by name, pods by operand.
func TestCounts(t *testing.T) {
	g := NewWithT(t)
	m := configMap("ns", "1")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "random", Labels: map[string]string{labels.Operand: "driver"}},
	}
	key := history.Key{Kind: history.ConfigMap, Namespace: "ns", Name: "m"}
	g.Expect(history.Counts([]history.Event{
		{Key: key, Object: m}, {Key: key, Object: m, Before: m}, {Key: key, Object: m, Before: m, Gone: true},
		{Key: history.Key{Kind: history.Pod, Namespace: "ns", Name: "random"}, Object: pod},
	})).To(Equal(map[string]int{"create ConfigMap ns/m": 1, "delete ConfigMap ns/m": 1, "create Pod of driver": 1}))
}
