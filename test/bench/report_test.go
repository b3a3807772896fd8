package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestFiguresAreJudged(t *testing.T) {
	for name, test := range map[string]struct {
		figure        figure
		goal, verdict string
	}{
		"below":    {atMost("x", 4.9, 5, seconds), "at most 5.0 s", "met"},
		"equal":    {atMost("x", 5, 5, seconds), "at most 5.0 s", "met"},
		"above":    {atMost("x", 5.1, 5, seconds), "at most 5.0 s", "missed"},
		"none":     {atMost("x", 1, 0, count), "0", "missed"},
		"no limit": {atMost("x", 1e9, none, megabytes), "", ""},
		"no goal":  {plain(other, "x", 1, seconds), "", ""},
		"a join": {
			joinWrites(calls("patch nodes", "patch nodes/status", "update clusterpolicies/status")),
			"at most 2 labels, 2 conditions, 3 policy status", "met",
		},
		"a join with an additional label write": {
			joinWrites(calls("patch nodes", "patch nodes",
				"patch nodes")), "at most 2 labels, 2 conditions, 3 policy status", "missed"},
		"a join with a DaemonSet write": {
			joinWrites(calls("patch daemonsets")), "at most 2 labels, 2 conditions, 3 policy status", "missed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.figure.Goal).To(Equal(test.goal))
			g.Expect(test.figure.verdict()).To(Equal(test.verdict))
		})
	}
}

// calls parses requests of the form "VERB RESOURCE[/SUBRESOURCE]".
func calls(texts ...string) cluster.Calls {
	var all cluster.Calls
	for _, text := range texts {
		verb, resource, _ := strings.Cut(text, " ")
		resource, subresource, _ := strings.Cut(resource, "/")
		all = append(all, cluster.Call{Verb: verb, Resource: resource, Subresource: subresource})
	}
	return all
}

func TestCallsAreCounted(t *testing.T) {
	g := NewWithT(t)
	got := tallyOf("something", calls("patch nodes", "patch nodes/status", "patch nodes", "create events", "update leases",
		"get leases", "list events", "watch pods"))
	g.Expect(got).To(Equal(tally{
		What: "something", Writes: 3, Events: 1, Lists: 1, Detail: "patch nodes 2, patch nodes/status 1",
		Reads: "list events 1, watch pods 1",
	}))
}

func TestLimitsFollowTheSize(t *testing.T) {
	g := NewWithT(t)
	g.Expect(limitsOf(100).memory).To(Equal(50.0))
	g.Expect(limitsOf(101).memory).To(Equal(90.0))
	g.Expect(limitsOf(5000).memory).To(Equal(300.0))
	g.Expect(limitsOf(5000).pass).To(Equal(25.0))
	g.Expect(limitsOf(9000).pass).To(BeEquivalentTo(none))
}

// TestAPhaseReplacesItsOwnFigures: figures of other phases stay, also for a later run of the program.
func TestAPhaseReplacesItsOwnFigures(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first := readKept(dir, setting{}, 100)
	g.Expect(first.keep(dir, "install", provenance{load: 0},
		outcome{Figures: []figure{plain(readyTime, "ready", 12, seconds)}})).To(Succeed())
	g.Expect(first.keep(dir, "floor", provenance{load: 0.4},
		outcome{Figures: []figure{plain(floorTime, "floor", 8, seconds)}})).To(Succeed())
	later := readKept(dir, setting{}, 100)
	g.Expect(later.missed()).To(Equal(1), "12 s is more than 1.15 times 8 s")
	g.Expect(later.keep(dir, "install", provenance{load: 0},
		outcome{Figures: []figure{plain(readyTime, "ready", 9, seconds)}})).To(Succeed())
	g.Expect(readKept(dir, setting{}, 100).missed()).To(BeZero())
	g.Expect(readKept(dir, setting{}, 100).table()).NotTo(ContainSubstring("other work"))
	g.Expect(later.keep(dir, "idle", provenance{load: 3.14}, outcome{})).To(Succeed())
	g.Expect(later.table()).To(ContainSubstring("The machine had other work: a load of up to 3.1 before a run."))
	g.Expect(readKept(dir, setting{}, 100).table()).To(And(ContainSubstring("| 1.12"), ContainSubstring("| 8.0 s"),
		Not(ContainSubstring("the other operator"))))

	g.Expect(later.keep(dir, "floor", provenance{load: 0}, outcome{
		Figures: []figure{plain(floorTime, "floor", 8, seconds), plain(labellingFloorTime, "floor", 7.5, seconds)},
	})).To(Succeed())
	g.Expect(readKept(dir, setting{}, 100).missed()).To(Equal(1), "9 s is more than 1.12 times 7.5 s")

	g.Expect(readKept(dir, setting{Stages: fast}, 100).Phases).To(BeEmpty(), "other stages have figures of their own")
	played := readKept(dir, setting{Stages: fast}, 100)
	g.Expect(played.keep(dir, comparison, provenance{load: 0},
		outcome{Figures: []figure{plain(other, "ready", 11, seconds)}})).To(Succeed())
	g.Expect(readKept(dir, setting{Stages: fast}, 100).table()).To(And(ContainSubstring("### 100 nodes, fast stages"),
		ContainSubstring("| 11.0 s")))
	g.Expect(readKept(dir, setting{}, 100).table()).To(And(ContainSubstring("### 100 nodes\n"),
		ContainSubstring("| 9.0 s")))

	g.Expect(os.WriteFile(filepath.Join(dir, "100.json"), []byte("{"), 0o600)).To(Succeed())
	g.Expect(readKept(dir, setting{}, 100).Phases).To(BeEmpty(), "a truncated file counts as missing")
}

func TestTheDocumentKeepsItsWords(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	writeOf := func(how setting, nodes int, value float64) string {
		k := kept{Nodes: nodes, setting: how, Phases: map[string]keptPhase{
			installation: {Outcome: outcome{Figures: []figure{plain(other, "something", value, count)}}},
		}}
		g.Expect(k.writeTo(file)).To(Succeed())
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	write := func(nodes int, value float64) string { return writeOf(setting{}, nodes, value) }
	g.Expect(os.WriteFile(file, []byte("# Words\n"), 0o600)).To(Succeed())
	write(100, 7)
	g.Expect(write(1000, 8)).To(And(HavePrefix("# Words\n\n"), ContainSubstring("| 7 "), ContainSubstring("| 8 ")))
	g.Expect(os.WriteFile(file, []byte(write(1000, 8)+"\nThe end.\n"), 0o600)).To(Succeed())
	got := write(100, 9)
	g.Expect(got).To(And(HavePrefix("# Words\n\n"), HaveSuffix("\nThe end.\n"), ContainSubstring("| 9 "),
		ContainSubstring("| 8 "), Not(ContainSubstring("| 7 "))))
	g.Expect(write(100, 9)).To(Equal(got), "a second write changes nothing")
	played := setting{Stages: fast}
	g.Expect(writeOf(played, 100, 5)).To(And(HavePrefix(got), ContainSubstring("### 100 nodes, fast stages"),
		ContainSubstring("| 5 ")))
	g.Expect(write(100, 3)).To(And(ContainSubstring("| 5 "), ContainSubstring("| 3 "), Not(ContainSubstring("| 9 "))))
}

// TestTheSummaryComesFromTheTables: it has what misses its goal or has another operator's beside
// it, and changes with the tables.
func TestTheSummaryComesFromTheTables(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	g.Expect(os.WriteFile(file, []byte("# Words\n\n"+summaryBegin+summaryEnd+"\nThe end.\n"), 0o600)).To(Succeed())
	write := func(nodes int, memory float64) string {
		figures := []figure{
			plain(other, "nothing", 1, count), atMost("met", 2, 3, count), atMost("missed", 5, 4, count),
			atMost("memory", memory, 50, megabytes),
		}
		figures[3].Beside = "95 MB"
		k := kept{Nodes: nodes, setting: setting{Other: "another 1.0"}, Phases: map[string]keptPhase{
			installation: {Outcome: outcome{Figures: figures}},
		}}
		g.Expect(k.writeTo(file)).To(Succeed())
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		summary, _, found := strings.Cut(string(text), summaryEnd)
		g.Expect(found).To(BeTrue())
		return summary
	}
	g.Expect(write(100, 40)).To(And(
		HavePrefix("# Words\n\n"+summaryBegin+"Goals met: 2 of 3 at 100 nodes, beside another operator.\n"),
		MatchRegexp(`\| 100, beside another operator +\| missed +\| 5 +\| at most 4 +\| missed`),
		MatchRegexp(`\| 100, beside another operator +\| memory +\| 40 MB +\| at most 50 MB +\| met +\| 95 MB`),
		Not(ContainSubstring("nothing")), Not(ContainSubstring("| met "+strings.Repeat(" ", 3)+"| 2"))))
	g.Expect(write(1000, 60)).To(And(ContainSubstring("Goals met: 2 of 3 at 100 nodes, beside another "+
		"operator; 1 of 3 at 1000 nodes, beside another operator.\n"),
		MatchRegexp(`\| 1000, beside another operator +\| memory +\| 60 MB`)))
	g.Expect(write(100, 41)).To(And(ContainSubstring("| 41 MB"), Not(ContainSubstring("| 40 MB")),
		ContainSubstring("| 60 MB")))
}

// TestTheVersionOfTheOtherOperatorIsInTheHeading, and nowhere else: figures of another version replace those before.
func TestTheVersionOfTheOtherOperatorIsInTheHeading(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	g.Expect(os.WriteFile(file, []byte("# Words\n"), 0o600)).To(Succeed())
	for _, version := range []string{"another 1.0", "another 2.0"} {
		k := kept{Nodes: 100, setting: setting{Stages: fast, Other: version}, Phases: map[string]keptPhase{}}
		g.Expect(k.writeTo(file)).To(Succeed())
	}
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(And(ContainSubstring("### 100 nodes, fast stages, beside another operator: another 2.0\n"),
		Not(ContainSubstring("another 1.0"))))
	g.Expect(strings.Count(string(text), "another 2.0")).To(Equal(1))
}

func TestTheMachineIsNamed(t *testing.T) {
	g := NewWithT(t)
	const text = "processor\t: 0\nmodel name\t: Some CPU: fast\n"
	g.Expect(field(text, "model name", "unknown")).To(Equal("Some CPU: fast"))
	g.Expect(field(text, "model", "unknown")).To(Equal("unknown"))
}

// TestDisturbedWorkIsNoticed: a removed or restarted pod, and a removed or changed DaemonSet.
func TestDisturbedWorkIsNoticed(t *testing.T) {
	g := NewWithT(t)
	before := work{
		restarts: map[types.UID]int32{"a": 0, "b": 1, "c": 0}, generations: map[string]int64{"x": 1, "y": 2, "z": 1},
	}
	pods, daemonSets := before.disturbed(before)
	g.Expect([]int{pods, daemonSets}).To(Equal([]int{0, 0}))
	pods, daemonSets = before.disturbed(work{
		restarts: map[types.UID]int32{"a": 0, "b": 2, "new": 0}, generations: map[string]int64{"x": 1, "y": 3},
	})
	g.Expect([]int{pods, daemonSets}).To(Equal([]int{2, 2}))
}
