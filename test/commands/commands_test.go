package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	cluster.Main(m)
}

// TestCommands executes the blocks of the pages, on the clusters of commands.yaml: of the sample, or of all with
// TEST_FULL=1.
func TestCommands(t *testing.T) {
	cluster.SkipInSample(t)
	l := readList(NewWithT(t))
	for _, c := range l.Clusters {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Sample && !cluster.FullCampaigns() {
				t.Skip("TEST_FULL=1 executes all pages")
			}
			t.Parallel()
			e := newEnv(t, c)
			for _, page := range c.Pages {
				t.Run(page.Page, func(t *testing.T) { e.in(t).page(page, l.Replace) })
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

// maxFailures is after how many failed blocks the rest of a page is left out: what follows a failure may fail because
// of it, but often does not.
const maxFailures = 3

// page executes the blocks of a page.
func (e *env) page(page pageEntry, everywhere []replacement) {
	e.t.Helper()
	replacements := slices.Concat(page.Replace, everywhere)
	e.Expect(e.run("before the page", replaced(page.Before, replacements))).To(Succeed())
	executed, failures := 0, 0
	for _, b := range blocksOf(e.WithT, page.Page) {
		if b.file != "" {
			text := replaced(b.text, replacements)
			e.Expect(os.WriteFile(filepath.Join(e.dir, b.file), []byte(text), 0o600)).To(Succeed())
		}
		entry, _ := page.of(b)
		if b.commands == "" || entry.NotExecuted != "" {
			continue
		}
		executed++
		begin := time.Now()
		err := e.block(b, entry, slices.Concat(entry.Replace, replacements))
		e.t.Logf("%s:%d: %s", b.page, b.line, time.Since(begin).Round(10*time.Millisecond))
		if err == nil {
			continue
		}
		e.t.Errorf("%s:%d: %v", b.page, b.line, err)
		if failures++; failures == maxFailures {
			break
		}
	}
	e.Expect(e.run("after the page", replaced(page.After, replacements))).To(Succeed())
	e.t.Logf("%d blocks executed, %d failed", executed, failures)
}

// block executes a block with what the list has for it, and returns what is wrong.
func (e *env) block(b block, entry blockEntry, replacements []replacement) error {
	if operand, node, found := strings.Cut(entry.Break, ":"); found {
		e.sim.Break(operand, node, simulator.CrashLoop)
	}
	if err := e.run("before", replaced(entry.Before, replacements)); err != nil {
		return err
	}
	commands := b.executed(entry, replacements)
	output, err := e.shell(commands)
	switch {
	case err == nil && entry.Fails != "":
		return fmt.Errorf("%s does not fail; it prints\n%s", commands, output)
	case err != nil && (entry.Fails == "" || !strings.Contains(output, entry.Fails)):
		return fmt.Errorf("%s: %w; it prints\n%s", commands, err, output)
	}
	if missing := entry.missing(replaced(b.output, replacements), output); missing != "" {
		return fmt.Errorf("%s does not print %q, but\n%s", commands, missing, output)
	}
	return e.run("after", replaced(entry.After, replacements))
}

// missing returns what the output has to have and has not: a text of the list, or a line that the page shows.
func (entry blockEntry) missing(shown, output string) string {
	for _, text := range entry.Prints {
		if !strings.Contains(output, text) {
			return text
		}
	}
	if entry.Output != "" {
		return ""
	}
	return similar(shown, output)
}

// run executes commands of the list, if there are any.
func (e *env) run(when, commands string) error {
	if commands == "" {
		return nil
	}
	if output, err := e.shell(commands); err != nil {
		return fmt.Errorf("%s: %s: %w; it prints\n%s", when, commands, err, output)
	}
	return nil
}
