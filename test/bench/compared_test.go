package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestMedian(t *testing.T) {
	g := NewWithT(t)
	values := []float64{9, 1, 5}
	g.Expect(median(values)).To(Equal(5.0))
	g.Expect(values).To(Equal([]float64{9, 1, 5}), "the order of the runs stays")
	g.Expect(median([]float64{4, 1, 9, 2})).To(Equal(3.0))
	g.Expect(median([]float64{7})).To(Equal(7.0))
}

func TestMediansListAllValues(t *testing.T) {
	g := NewWithT(t)
	f := medians("x", []float64{9, 1, 5}, 4, megabytes)
	g.Expect(f.Measured).To(Equal("5 MB (9, 1, 5)"))
	g.Expect(f.Value).To(Equal(5.0))
	g.Expect(f.verdict()).To(Equal("missed"), "the median is compared")
	g.Expect(medians("x", []float64{9, 1, 5}, 5, megabytes).verdict()).To(Equal("met"))
}

// floorsAnd returns two floors of 10 s and 20 s, and operator runs with these times until ready.
func floorsAnd(ready ...float64) map[runKind][]sample {
	samples := func(times ...float64) []sample {
		var all []sample
		for _, each := range times {
			all = append(all, sample{ready: inSeconds(each), pods: inSeconds(each)})
		}
		return all
	}
	runs := map[runKind][]sample{
		presetFloor: samples(9, 10, 30), labellingFloor: samples(20, 25, 15), operated: samples(ready...),
	}
	for i := range runs[operated] {
		runs[operated][i].operator = &operatorSample{
			cpu: time.Second, rss: 60 << 20, anonymous: 26 << 20,
			calls: calls("patch nodes", "create events", "update leases", "patch nodes/status"),
		}
	}
	return runs
}

func TestComparedFigures(t *testing.T) {
	g := NewWithT(t)
	runs := floorsAnd(12, 11.5, 11)
	last := runs[operated][2].operator
	last.watched, last.after = true, calls("update clusterpolicies/status", "update leases")
	out := compared(setting{Stages: fast}, 100, runs)
	figures := map[string]figure{}
	for _, f := range out.Figures {
		figures[f.What] = f
	}
	expect := func(what string, measured string, verdict string) {
		t.Helper()
		g.Expect(figures).To(HaveKey(what))
		g.Expect([]string{figures[what].Measured, figures[what].verdict()}).To(Equal([]string{measured, verdict}), what)
	}
	expect("ready with the operator, against F1", "1.15", "met")
	expect("ready with the operator, against F2", "0.57", "met")
	expect("F1: its DaemonSets alone, on nodes that already have their labels, until all pods are Ready",
		"10.00 s (9.00, 10.00, 30.00)", "")
	expect("CPU of the operator from its start to ready", "1.00 s (1.00, 1.00, 1.00)", "met")
	expect("peak memory of the operator to ready (RSS)", "60 MB (60, 60, 60)", "met")
	expect("of that, heap and stacks (anonymous, peak)", "26 MB (26, 26, 26)", "missed")
	expect("API writes to ready", "3 (3, 3, 3)", "met")
	expect("API writes in the 60 s after ready", "1", "")
	g.Expect(out.Tallies).To(HaveLen(2), "of the run that was watched to its end")
	g.Expect(out.Tallies[0].Detail).To(Equal("patch nodes 1, patch nodes/status 1"))
	g.Expect(compared(setting{Stages: fast}, 100, floorsAnd(1)).Tallies).To(BeEmpty())
}

// TestComparedWithAnotherOperator: its figures are beside this operator's, and are the goals of time and CPU.
func TestComparedWithAnotherOperator(t *testing.T) {
	g := NewWithT(t)
	runs := floorsAnd(11, 11, 11)
	delete(runs, labellingFloor)
	for i := range runs[operated] {
		runs[operated][i].operator.calls = append(runs[operated][i].operator.calls, cluster.Call{Verb: "get", Code: 404})
		runs[operated][i].wanted = 700
	}
	refused := cluster.Calls{{Verb: "update", Code: 409}, {Verb: "get", Code: 404}, {Verb: "get", Code: 500}}
	for _, each := range []float64{10, 11.5, 12} {
		runs[otherOperated] = append(runs[otherOperated], sample{
			ready: inSeconds(each), pods: inSeconds(each), wanted: 600,
			operator: &operatorSample{cpu: 900 * time.Millisecond, rss: 200 << 20, anonymous: 90 << 20, calls: refused},
		})
	}
	last := runs[operated][2].operator
	last.watched, last.after = true, calls("patch nodes")
	runs[otherOperated][2].operator.watched = true
	runs[otherOperated][2].operator.after = calls("patch nodes", "update nodes", "create events")
	figures := map[string]figure{}
	for _, f := range compared(setting{Stages: fast, Other: "x"}, 100, runs).Figures {
		figures[f.What] = f
	}
	expect := func(what, measured, beside, verdict string) {
		t.Helper()
		g.Expect(figures).To(HaveKey(what))
		f := figures[what]
		g.Expect([]string{f.Measured, f.Beside, f.verdict()}).To(Equal([]string{measured, beside, verdict}), what)
	}
	expect("ready with the operator, against the other one", "0.96", "", "met")
	expect("ready with the operator, against F1", "1.10", "", "met")
	expect("from the policy until all pods are Ready and its status says ready", "11.00 s (11.00, 11.00, 11.00)",
		"11.50 s (10.00, 11.50, 12.00)", "")
	expect("pods that the DaemonSets want", "700 (700, 700, 700)", "600 (600, 600, 600)", "")
	expect("CPU of the operator from its start to ready", "1.00 s (1.00, 1.00, 1.00)", "0.90 s (0.90, 0.90, 0.90)",
		"missed")
	expect("peak memory of the operator to ready (RSS)", "60 MB (60, 60, 60)", "200 MB (200, 200, 200)", "met")
	expect("requests refused as conflicts (409) to ready", "0 (0, 0, 0)", "1 (1, 1, 1)", "")
	expect("requests refused for another reason (4xx) to ready", "1 (1, 1, 1)", "1 (1, 1, 1)", "")
	expect("API writes in the 60 s after ready", "1", "3", "")
	g.Expect(figures).NotTo(HaveKey(ContainSubstring("F2")))
}

func TestGoalsBesideAnotherOperator(t *testing.T) {
	g := NewWithT(t)
	for nodes, memory := range map[int]float64{100: 60, 1000: 120, 5000: none} {
		got := comparedGoals(setting{Stages: delayed, Other: "x"}, nodes)
		g.Expect([]float64{got.toPreset, got.memory}).To(Equal([]float64{1.15, memory}))
	}
}

func TestComparedGoals(t *testing.T) {
	g := NewWithT(t)
	for _, test := range []struct {
		how   stages
		nodes int
		want  comparedLimits
	}{
		{fast, 100, comparedLimits{toPreset: 1.15, toLabelling: 1.10, cpu: 1.4, memory: 60, anonymous: 25, writes: 340}},
		{fast, 1000, comparedLimits{toPreset: 1.15, toLabelling: 1.10, cpu: 12, memory: 105, anonymous: 70, writes: 3040}},
		{fast, 5000, comparedLimits{toPreset: 1.15, toLabelling: 1.10, cpu: -1, memory: -1, anonymous: -1, writes: 15040}},
		{realistic, 100, comparedLimits{toPreset: 1.15, toLabelling: 1.12, cpu: -1, memory: -1, anonymous: -1, writes: -1}},
	} {
		g.Expect(comparedGoals(setting{Stages: test.how}, test.nodes)).To(Equal(test.want))
	}
}

func TestCallsAreSplitAtReady(t *testing.T) {
	g := NewWithT(t)
	ready := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(offset time.Duration) cluster.Call { return cluster.Call{Verb: "patch", Time: ready.Add(offset)} }
	until, after := splitCalls(cluster.Calls{at(-time.Second), at(0), at(1), at(time.Minute)}, ready)
	g.Expect(until).To(Equal(cluster.Calls{at(-time.Second), at(0)}))
	g.Expect(after).To(Equal(cluster.Calls{at(1), at(time.Minute)}))
}

// TestNodesOfTheFastStages: no pod writes what the operator needs, so the nodes have it from the beginning.
func TestNodesOfTheFastStages(t *testing.T) {
	g := NewWithT(t)
	g.Expect(realistic.node().Advertised).To(BeFalse())
	g.Expect(realistic.node().Labels).To(BeEmpty())
	g.Expect(fast.node().Advertised).To(BeTrue())
	g.Expect(fast.node().Labels).To(HaveKey("nvidia.com/gpu.product"))
}

func TestTheOperatorsVariablesAreThoseOfItsDeployment(t *testing.T) {
	t.Chdir("../..")
	t.Setenv("GOGC", "400")
	t.Setenv("GOMEMLIMIT", "5GiB")
	g := NewWithT(t)
	variables, err := shippedVariables()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(variables).To(ContainElement(HavePrefix("OPERATOR_IMAGE=")))
	g.Expect(variables).NotTo(ContainElement(Or(Equal("GOGC=400"), Equal("GOMEMLIMIT=5GiB"))),
		"variables of the control plane")

	for name, test := range map[string]struct {
		given corev1.EnvVar
		want  types.GomegaMatcher
		fails bool
	}{
		"a value":          {given: corev1.EnvVar{Name: "GOGC", Value: "50"}, want: ConsistOf("GOGC=50")},
		"from the cluster": {given: corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{}}, want: BeEmpty()},
		"memory, from the cluster": {
			given: corev1.EnvVar{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{}}, want: BeEmpty(), fails: true,
		},
	} {
		got, err := literalVariables([]corev1.EnvVar{test.given})
		g.Expect(got).To(test.want, name)
		g.Expect(err != nil).To(Equal(test.fails), name)
	}
}
