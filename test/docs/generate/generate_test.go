package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const repo = "../../.."

func TestPartsAreReplaced(t *testing.T) {
	g := NewWithT(t)
	const before = "# Words\n\n<!-- generated: a -->\nold\n<!-- end -->\n\nmore\n"
	const after = "# Words\n\n<!-- generated: a -->\n\nnew\n\n<!-- end -->\n\nmore\n"
	g.Expect(replace(before, map[string]string{"a": "new\n"})).To(Equal(after))
	g.Expect(replace(after, map[string]string{"a": "new\n"})).To(Equal(after), "once more changes nothing")
	for page, problem := range map[string]string{
		"<!-- generated: a -->\n":                           "the part a has no end",
		"<!-- generated: a -->\n<!-- generated: b -->\n":    "the part a has no end",
		"<!-- generated: b -->\n<!-- end -->\n":             `no text for the part "b"`,
		"<!-- end -->\n":                                    "no markers for the parts [a]",
		strings.ReplaceAll(after, "generated", "Generated"): "no markers for the parts [a]",
	} {
		_, err := replace(page, map[string]string{"a": "new"})
		g.Expect(err).To(MatchError(problem))
	}
}

func TestAReasonNeedsCauseAndRemedy(t *testing.T) {
	g := NewWithT(t)
	got, err := parseReason(constant{
		name: "ReasonX", value: "X", comment: "ReasonX: it broke. Twice. Cause: haste. Remedy: wait. Or not.",
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{got.means, got.cause, got.remedy}).To(Equal([]string{"It broke. Twice.", "haste.", "wait. Or not."}))
	for _, comment := range []string{
		"", "ReasonX: it broke.", "ReasonX: it broke. Cause: haste.", "ReasonX: it broke. Remedy: wait.",
		"ReasonX: Cause: haste. Remedy: wait.",
	} {
		_, err := parseReason(constant{name: "ReasonX", comment: comment})
		g.Expect(err).To(MatchError(ContainSubstring("ReasonX")), comment)
	}
}

func TestConstantsHaveTheirValues(t *testing.T) {
	g := NewWithT(t)
	all, err := reasons(repo)
	g.Expect(err).NotTo(HaveOccurred())
	values := map[string]string{}
	for _, r := range all {
		values[r.name] = r.value
	}
	for _, name := range []string{"CRDOutdated", "Deprecated", "QuotaExceeded"} {
		g.Expect(values).To(HaveKeyWithValue("Reason"+name, name))
	}
	_, err = resolve([]constant{{name: "A", alias: "B"}})
	g.Expect(err).To(MatchError("A is B, whose value is not known"))
	named := withValues([]constant{
		{name: "ReasonA", value: "A", comment: "ReasonA: like ReasonB."}, {name: "ReasonB", value: "B"},
	})
	g.Expect(named[0].comment).To(Equal("ReasonA: like B."))
}

// TestReasonsHaveTopics: the first topic that lists a reason has it, and what none lists is among the others.
func TestReasonsHaveTopics(t *testing.T) {
	g := NewWithT(t)
	var all []reason
	for _, value := range []string{"MIGOff", "GPULost", "Odd", "GPUBusy", "GPUReady"} {
		all = append(all, reason{constant: constant{value: value}})
	}
	sorted, err := byTopic(all, []topic{
		{name: "use", reasons: []string{"GPUReady", "MIG*"}}, {name: otherReasons},
		{name: "health", reasons: []string{"GPU*"}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	values := map[string][]string{}
	for name, some := range sorted {
		for _, r := range some {
			values[name] = append(values[name], r.value)
		}
	}
	g.Expect(values).To(Equal(map[string][]string{
		"use": {"GPUReady", "MIGOff"}, otherReasons: {"Odd"}, "health": {"GPUBusy", "GPULost"},
	}))
	for _, late := range []string{"GPULost", "GPULast"} {
		_, err = byTopic(all, []topic{
			{name: "a", reasons: []string{"GPU*"}}, {name: "b", heading: "B", reasons: []string{late}},
		})
		g.Expect(err).To(MatchError(ContainSubstring(`the topic "B" lists ` + late)))
	}
}

// TestTroubleshootingIsUpToDate: each topic has its heading above its reasons, and its link in the list of all.
func TestTroubleshootingIsUpToDate(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(repo, "docs/troubleshooting.md"))
	g.Expect(err).NotTo(HaveOccurred())
	texts := map[string]string{}
	for name, compute := range troubleshooting() {
		texts[name], err = compute(repo)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(replace(string(text), texts)).To(Equal(string(text)), "run make docs")
	var headings []string
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		if heading, rest, _ := strings.Cut(section, "\n"); strings.Contains(rest, beginPrefix+"reasons-") {
			headings = append(headings, heading)
		}
	}
	var want []string
	for _, topic := range topics {
		want = append(want, topic.heading)
	}
	g.Expect(headings).To(Equal(want))
}

// TestPermissionsAreThoseOfTheManifests: by the groups and resources of Role and ClusterRole.
func TestPermissionsAreThoseOfTheManifests(t *testing.T) {
	g := NewWithT(t)
	g.Expect(permissionTable(repo)).To(And(
		ContainSubstring("| `container-toolkit` | `nvidia-container-toolkit` | none | none |"),
		ContainSubstring("| `nvidia-node-discovery` | `nodes`: get, patch | none |"),
		MatchRegexp("(?m)`driver` .*; `pods`: get, list, watch; `resourceclaims.resource.k8s.io`: get, list \\| none"),
		MatchRegexp("(?m)`dcgm-exporter` .*`pods`: get, list, watch \\| `configmaps`: get, list \\|$"),
	))
}

// TestOperandsAreEnabledByTheirFields: the fields are found by trying, not by a list.
func TestOperandsAreEnabledByTheirFields(t *testing.T) {
	g := NewWithT(t)
	text, err := catalogueTable(repo)
	g.Expect(err).NotTo(HaveOccurred())
	const mps = "`spec.devicePlugin.config.name` or `spec.sharing.mps`, and `spec.devicePlugin.enabled: true`"
	g.Expect(text).To(And(
		MatchRegexp("(?m)^\\| `driver` \\| .*`nvidia-driver-ctr` \\| by default; not with `spec.driver.enabled: false` \\|"),
		MatchRegexp("(?m)^\\| `dcgm` \\| .*`nvidia-dcgm-ctr` \\| with `spec.dcgm.enabled: true` \\|"),
		MatchRegexp("(?m)^\\| `mps-control-daemon` \\| .*\\| with "+mps+" \\|"),
		MatchRegexp("(?m)^\\| `operator-validator` \\| .*\\| always \\|"),
	))
}

func TestChecksOfANodeAreInTheirOrder(t *testing.T) {
	g := NewWithT(t)
	g.Expect(nodeCheckTable(repo)).To(And(
		MatchRegexp("(?s)`Excluded`.*`StartupTaint`.*`Upgrading`.*`DiscoveryLabelsMissing`.*`GPUPodsRefused`"),
		ContainSubstring("| refused pods | [`GPUPodsRefused`](../troubleshooting.md#gpupodsrefused) | is ready | "),
		ContainSubstring("| deadline of the stage |  | is neither ready nor paused | "),
	))
}

func TestRoomsOfPackages(t *testing.T) {
	g := NewWithT(t)
	for folder, want := range map[string]string{
		"internal/node/assess": "node", "internal/upgrade": "upgrade", "cmd/gpu-operator/app": "cmd", "api/v1": "",
	} {
		room, is := roomOf(folder)
		g.Expect(is).To(Equal(want != ""), folder)
		if is {
			g.Expect(room).To(Equal(want), folder)
		}
	}
}
