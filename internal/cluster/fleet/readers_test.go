package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// reader returns the entry of a GPU node whose pods read a configuration from the source, and work or do not.
func reader(name, source string, down bool) *fleet.Entry {
	entry := gpuNode(name, readiness.Ready)
	entry.ReadersDown = down
	entry.Planned = &fleet.PlannedNode{NodePlan: plan.NodePlan{PluginConfigRead: operand.NodePluginConfig{Source: source}}}
	return entry
}

// readersOf looks at each entry for what ReadersBeside counts.
func readersOf(f *fleet.Fleet, node, source string) (nodes int, down []string, read map[string]int, known bool) {
	known, read = true, map[string]int{}
	for _, entry := range f.View().Nodes {
		if entry.Facts.Name == node {
			continue
		}
		known = known && entry.BasisVersion != 0
		if entry.Planned != nil && entry.Planned.NodePlan.PluginConfigRead.Source == source {
			nodes++
			if entry.ReadDigest != "" {
				read[entry.ReadDigest]++
			}
			if entry.ReadersDown {
				down = append(down, entry.Facts.Name)
			}
		}
	}
	return nodes, down, read, known
}

// The numbers follow each change of entries: of sources, of nodes that are down, not assessed, not managed, or leave.
func TestReadersFollowTheEntries(t *testing.T) {
	g, f, random := NewWithT(t), fleet.New(), rand.New(rand.NewPCG(1, 2))
	f.Hydrate([]*fleet.Entry{reader("node-0", "a/x", true), reader("node-1", "a/x", false)})
	knownTimes, downTimes := 0, 0
	for step := range 3000 {
		name := fmt.Sprint("node-", random.IntN(8))
		entry := reader(name, []string{"a/x", "a/y", ""}[random.IntN(3)], random.IntN(2) == 0)
		entry.ReadDigest = []string{"first", "next", ""}[random.IntN(3)]
		switch random.IntN(12) {
		case 0:
			f.Delete(name)
		case 1:
			f.Set(cpuNode(name, true))
		case 2:
			entry.BasisVersion = 0
			f.Set(entry)
		case 3:
			entry.Planned = nil
			f.Set(entry)
		default:
			f.Set(entry)
		}
		asking, source := fmt.Sprint("node-", random.IntN(8)), []string{"a/x", "a/y", "a/z"}[random.IntN(3)]
		beside, known := f.ReadersBeside(asking, source)
		slices.Sort(beside.Down)
		nodes, down, read, wantKnown := readersOf(f, asking, source)
		g.Expect(beside.Nodes).To(Equal(nodes), "step %d", step)
		g.Expect(slices.Equal(beside.Down, down)).To(BeTrue(), "step %d: %v, want %v", step, beside.Down, down)
		g.Expect(maps.Equal(beside.Read, read)).To(BeTrue(), "step %d: %v, want %v", step, beside.Read, read)
		g.Expect(known).To(Equal(wantKnown), "step %d", step)
		if known {
			knownTimes++
		}
		downTimes += len(down)
	}
	g.Expect(knownTimes).To(BeNumerically(">", 100))
	g.Expect(downTimes).To(BeNumerically(">", 100))
}

// Nodes that read no configuration from a ConfigMap do not count as readers of the same one.
func TestNodesWithoutAConfigurationReadNone(t *testing.T) {
	f := fleet.New()
	for _, name := range []string{"a", "b"} {
		entry := reader(name, "", true)
		entry.ReadDigest = "first"
		f.Set(entry)
	}
	beside, known := f.ReadersBeside("c", "")
	NewWithT(t).Expect(beside).To(And(HaveField("Nodes", 0), HaveField("Down", BeEmpty()), HaveField("Read", BeEmpty())))
	NewWithT(t).Expect(known).To(BeTrue())
}
