package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
)

func TestHeadline(t *testing.T) {
	upgraded := func(evicted, blocked int) preview.NodeUpgrade {
		return preview.NodeUpgrade{Round: 1, Evicted: make([]string, evicted), Blocked: make([]preview.Blocked, blocked)}
	}
	changes := func(number int) []preview.Change { return make([]preview.Change, number) }
	for want, p := range map[string]preview.Preview{
		"Nothing changes.":                       {Unchanged: 12},
		"Only the policy changes.":               {Spec: make([]drift.Difference, 1)},
		"1 object changes, and no pod restarts.": {Objects: changes(1)},
		"2 objects change, and no pod restarts.": {Objects: changes(2)},
		"1 node loses its GPUs: a.\n2 objects change, and no pod restarts.": {
			Losing: []string{"a"}, Objects: changes(2),
		},
		"7 nodes lose their GPUs: a, b, c, d, e and 2 more.\n8 pods of operands on 7 nodes are replaced or removed.": {
			Losing: []string{"a", "b", "c", "d", "e", "f", "g"}, Objects: changes(1),
			Replaced: preview.Replaced{Pods: 8, Nodes: 7},
		},
		"1 pod of operands on 1 node is replaced or removed.": {Objects: changes(1), Replaced: preview.Replaced{
			Pods: 1, Nodes: 1,
		}},
		"1 node restarts its driver, and no pod with GPUs is evicted.": {
			Objects: changes(1), Upgrades: preview.Upgrades{Nodes: []preview.NodeUpgrade{upgraded(0, 0)}},
		},
		"1 node restarts its driver and evicts 1 pod with GPUs.": {
			Upgrades: preview.Upgrades{Nodes: []preview.NodeUpgrade{upgraded(1, 0)}},
		},
		"2 nodes restart their drivers and evict 5 pods with GPUs; 3 pods cannot be evicted now.\n" +
			"1 node keeps an outdated driver for now. 4 pods of operands on 4 nodes are replaced or removed.": {
			Upgrades: preview.Upgrades{Nodes: []preview.NodeUpgrade{upgraded(2, 1), upgraded(3, 2), {}}},
			Replaced: preview.Replaced{Pods: 4, Nodes: 4},
		},
		"2 nodes keep an outdated driver for now.": {
			Objects: changes(1), Upgrades: preview.Upgrades{Nodes: make([]preview.NodeUpgrade, 2)},
		},
		"A part of it would be refused. 1 node loses its GPUs: a.": {
			Losing: []string{"a"}, Refused: []string{"ClusterPolicy p"},
		},
	} {
		NewWithT(t).Expect(headline(&p)).To(Equal(want))
	}
}

// A plan begins with the nodes that lose their driver or their device plugin, by the labels that they will have.
func TestPlanBeginsWithWhatItMeans(t *testing.T) {
	const all = "4 nodes lose their GPUs: gpu-1, gpu-2, gpu-3, gpu-4.\n"
	const removed = "4 pods of operands on 4 nodes are replaced or removed.\n\n"
	const driver = `driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}}`
	for spec, want := range map[string]string{
		"{" + driver + "}": "Nothing changes.\n\n",
		"{" + driver + ", devicePlugin: {enabled: false}}":             all,
		"{driver: {enabled: false}}":                                   all,
		"{" + driver + ", dcgmExporter: {enabled: false}}":             removed,
		"{" + driver + ", devicePlugin: {nodeSelector: {zone: rear}}}": "3 nodes lose their GPUs: gpu-1, gpu-3, gpu-4.\n",
	} {
		got := kubectlGPU(edit(spec), "plan", "-f", "-", "--against", installed(t))
		g := NewWithT(t)
		g.Expect(got.code).To(BeZero(), got.errOut)
		g.Expect(got.out).To(HavePrefix(want), spec)
	}
	const pausing = "{paused: true, devicePlugin: {enabled: false}}"
	paused := kubectlGPU(edit(pausing), "plan", "-f", "-", "--against", installed(t))
	NewWithT(t).Expect(strings.SplitN(paused.out, "\n", 3)[0]).To(HavePrefix("spec.paused is true: "))
	NewWithT(t).Expect(strings.SplitN(paused.out, "\n", 4)[2]).To(HavePrefix("4 nodes lose their GPUs: "))
}
