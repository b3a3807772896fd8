package commands

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// list is commands.yaml.
type list struct {
	// Replace holds for all pages.
	Replace  []replacement  `json:"replace"`
	Clusters []clusterEntry `json:"clusters"`
	// NotExecuted are pages of which no block is executed, each with the reason.
	NotExecuted map[string]string `json:"notExecuted"`
}

// replacement is what a text of a page stands for in this test.
type replacement struct {
	Text string `json:"text"`
	With string `json:"with"`
	// Because is why the text cannot be typed as it is.
	Because string `json:"because"`
}

// clusterEntry is a cluster on which pages are executed in turn.
type clusterEntry struct {
	Name string `json:"name"`
	// Nodes is the number of GPU nodes: gpu-00000 and so on.
	Nodes int `json:"nodes"`
	// NVIDIA: NVIDIA's operator runs there at first.
	NVIDIA bool `json:"nvidia"`
	// Sample clusters always run, the others only with TEST_FULL=1.
	Sample bool        `json:"sample"`
	Pages  []pageEntry `json:"pages"`
}

type pageEntry struct {
	Page string `json:"page"`
	// Before and After are commands before the first block and after the last one.
	Before  string        `json:"before"`
	After   string        `json:"after"`
	Replace []replacement `json:"replace"`
	// Blocks are those that need something; all others run as they are.
	Blocks []blockEntry `json:"blocks"`
}

type blockEntry struct {
	// Block is the beginning of the block.
	Block string `json:"block"`
	// NotExecuted is why the block is not executed.
	NotExecuted string `json:"notExecuted"`
	// Without are lines that are left out: the beginning of each, and why.
	Without map[string]string `json:"without"`
	// Break makes an operand fail on a node, as OPERAND:NODE, before the commands Before.
	Break  string `json:"break"`
	Before string `json:"before"`
	// After are commands that check what the block has done.
	After string `json:"after"`
	// Fails is the text with which the block has to fail.
	Fails string `json:"fails"`
	// Prints are texts that the block has to print, besides what the page shows.
	Prints []string `json:"prints"`
	// Output is why the output on the page is not compared.
	Output string `json:"output"`
	// Replace is for this block alone.
	Replace []replacement `json:"replace"`
}

func readList(g *WithT) list {
	text, err := os.ReadFile("commands.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var l list
	g.Expect(yaml.UnmarshalStrict(text, &l)).To(Succeed())
	return l
}

// of returns the entry of a block, the empty one if it has none, and its index, -1 if it has none.
func (p pageEntry) of(b block) (blockEntry, int) {
	at := slices.IndexFunc(p.Blocks, func(entry blockEntry) bool {
		return strings.HasPrefix(b.commands, entry.Block) || strings.HasPrefix(b.text, entry.Block)
	})
	if at < 0 {
		return blockEntry{}, at
	}
	return p.Blocks[at], at
}

// executed returns the commands of a block as they are executed.
func (b block) executed(entry blockEntry, replacements []replacement) string {
	var lines []string
	for line := range strings.Lines(b.commands) {
		if !slices.ContainsFunc(sortedKeys(entry.Without), func(begin string) bool {
			return strings.HasPrefix(strings.TrimSpace(line), begin)
		}) {
			lines = append(lines, line)
		}
	}
	return replaced(strings.Join(lines, ""), replacements)
}

func replaced(text string, replacements []replacement) string {
	for _, r := range replacements {
		text = strings.ReplaceAll(text, r.Text, r.With)
	}
	return text
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// wanted is the part of the blocks that has to be executed, in percent.
const wanted = 85

// coverage counts the blocks of shell.
type coverage struct {
	total, omitted int
	// listed are the blocks that are not executed, with the reason, and wrong is what is wrong with the list.
	listed, wrong []string
}

// page counts the blocks of a page: entry is nil for a page that is not executed, for the reason why, which is empty if
// it is not listed either.
func (c *coverage) page(blocks []block, path string, entry *pageEntry, why string) {
	used := map[int]bool{}
	for _, b := range blocks {
		if b.commands == "" {
			continue
		}
		c.total++
		first, _, _ := strings.Cut(b.commands, "\n")
		place := fmt.Sprintf("%s:%d: %s", path, b.line, first)
		if entry == nil {
			if why == "" {
				c.wrong = append(c.wrong, place+": is neither executed nor listed in commands.yaml")
			}
			c.listed = append(c.listed, place+": "+why)
			continue
		}
		of, at := entry.of(b)
		used[at] = true
		c.omitted += len(of.Without)
		if of.NotExecuted != "" {
			c.listed = append(c.listed, place+": "+of.NotExecuted)
		}
	}
	if entry == nil {
		return
	}
	for i, of := range entry.Blocks {
		if !used[i] {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: no block begins with %q", path, of.Block))
		}
	}
}

// TestEachBlockIsExecutedOrListed: no block of shell is in neither, no entry of the list is for nothing, and most
// blocks are executed.
func TestEachBlockIsExecutedOrListed(t *testing.T) {
	g := NewWithT(t)
	l := readList(g)
	entries := map[string]*pageEntry{}
	for _, c := range l.Clusters {
		for i := range c.Pages {
			page := &c.Pages[i]
			g.Expect(entries).NotTo(HaveKey(page.Page), "twice")
			g.Expect(l.NotExecuted).NotTo(HaveKey(page.Page), "twice")
			entries[page.Page] = page
		}
	}
	found := &coverage{}
	for _, path := range pagesOfDocs(g) {
		found.page(blocksOf(g, path), path, entries[path], l.NotExecuted[path])
		delete(entries, path)
		delete(l.NotExecuted, path)
	}
	g.Expect(found.wrong).To(BeEmpty())
	g.Expect(entries).To(BeEmpty(), "no such pages")
	g.Expect(l.NotExecuted).To(BeEmpty(), "no such pages")
	executed := found.total - len(found.listed)
	t.Logf("blocks: %d executed (%d lines of them left out), %d listed, %d in all\n%s", executed, found.omitted,
		len(found.listed), found.total, strings.Join(found.listed, "\n"))
	g.Expect(executed*100).To(BeNumerically(">=", wanted*found.total), "%d of %d blocks are executed", executed,
		found.total)
}

// A block in neither list, an entry for no block, and a listed block are told apart.
func TestTheListIsChecked(t *testing.T) {
	g := NewWithT(t)
	blocks := parse("x.md", "```\nkubectl get a\n```\n\n```\nmake b\n```\n")
	found := &coverage{}
	found.page(blocks, "x.md", nil, "")
	g.Expect(found.wrong).To(HaveLen(2))
	found = &coverage{}
	found.page(blocks, "x.md", &pageEntry{Blocks: []blockEntry{
		{Block: "make", NotExecuted: "slow"}, {Block: "kubectl delete"},
	}}, "")
	g.Expect(found).To(Equal(&coverage{total: 2, listed: []string{"x.md:5: make b: slow"}, wrong: []string{
		`x.md: no block begins with "kubectl delete"`,
	}}))
}
