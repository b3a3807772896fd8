package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

func TestMain(m *testing.M) {
	if err := cluster.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestCommands executes the blocks of the pages, on the clusters of commands.yaml: of the sample in make test, of all
// with TEST_FULL=1.
func TestCommands(t *testing.T) {
	l := readList(NewWithT(t))
	for _, c := range l.Clusters {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Sample && !cluster.FullCampaigns() {
				t.Skip("TEST_FULL=1 executes all pages")
			}
			t.Parallel()
			e := newEnv(t, c)
			for _, page := range c.Pages {
				// What a page leaves is what the next one finds: nothing after a failure makes sense.
				if !t.Run(page.Page, func(t *testing.T) { e.in(t).page(page, l.Replace) }) {
					return
				}
			}
		})
	}
}

// in returns the env for a subtest: a failure there ends the subtest.
func (e *env) in(t *testing.T) *env {
	view := *e
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// page executes the blocks of a page and returns how many.
func (e *env) page(page pageEntry, everywhere []replacement) {
	e.t.Helper()
	replacements := slices.Concat(page.Replace, everywhere)
	e.must("before the page", replaced(page.Before, replacements))
	executed := 0
	for _, b := range blocksOf(e.WithT, page.Page) {
		if b.file != "" {
			text := replaced(b.text, replacements)
			e.Expect(os.WriteFile(filepath.Join(e.dir, b.file), []byte(text), 0o600)).To(Succeed())
		}
		entry, _ := page.of(b)
		if b.commands == "" || entry.NotExecuted != "" {
			continue
		}
		e.block(b, entry, slices.Concat(entry.Replace, replacements))
		executed++
	}
	e.must("after the page", replaced(page.After, replacements))
	e.t.Logf("%d blocks executed", executed)
}

func (e *env) block(b block, entry blockEntry, replacements []replacement) {
	e.t.Helper()
	place := fmt.Sprintf("%s:%d", b.page, b.line)
	if operand, node, found := strings.Cut(entry.Break, ":"); found {
		e.sim.Break(operand, node, simulator.CrashLoop)
	}
	if operand, node, found := strings.Cut(entry.Heal, ":"); found {
		e.sim.Heal(operand, node)
	}
	e.must("before "+place, replaced(entry.Before, replacements))
	commands, begin := b.executed(entry, replacements), time.Now()
	output, err := e.shell(commands)
	e.t.Logf("%s: %s\n%s", place, time.Since(begin).Round(10*time.Millisecond), commands)
	if entry.Fails != "" {
		e.Expect(err).To(HaveOccurred(), "%s\n%s", place, output)
		e.Expect(output).To(ContainSubstring(entry.Fails), place)
	} else {
		e.Expect(err).NotTo(HaveOccurred(), "%s: %s\nprints\n%s", place, commands, output)
	}
	for _, text := range entry.Prints {
		e.Expect(output).To(ContainSubstring(text), place)
	}
	if b.output != "" && entry.Output == "" {
		shown := replaced(b.output, replacements)
		e.Expect(similar(shown, output)).To(BeEmpty(), "%s: the page shows a line that is not in\n%s", place, output)
	}
	e.must("after "+place, replaced(entry.After, replacements))
}

// must runs commands of the list.
func (e *env) must(when, commands string) {
	e.t.Helper()
	if commands == "" {
		return
	}
	output, err := e.shell(commands)
	e.Expect(err).NotTo(HaveOccurred(), "%s: %s\nprints\n%s", when, commands, output)
}
