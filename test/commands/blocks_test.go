package commands

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const repo = "../.."

// unread are generated pages and pages about earlier releases: they ask no reader to type anything.
var unread = []string{"docs/CHANGELOG.md", "docs/api.md"}

// programs are those whose names begin a command. A block without a language whose first line begins with none of
// them shows an output or a figure.
var programs = []string{
	"az", "aws", "cd", "chmod", "cilium", "curl", "docker", "eksctl", "export", "flux", "argocd", "gcloud", "git", "go",
	"helm", "kubectl", "kustomize", "make", "oc", "sh", "ssh", "sudo", "talosctl", "watch",
}

// block is a fenced block of a page.
type block struct {
	page string
	// line of the fence, from 1.
	line int
	// commands are those of a block of shell, without the prompt; empty for other blocks.
	commands string
	// output is what the page shows that the commands print; empty if it shows nothing.
	output string
	// file is the name under which the block is a file, and text its content.
	file, text string
}

var (
	fence     = regexp.MustCompile("^\\s*```\\s*(\\S*)\\s*$")
	directive = regexp.MustCompile(`^\s*<!-- file: (\S+) -->$`)
)

// pagesOfDocs are the paths of all pages that may have commands, README.md first.
func pagesOfDocs(g *WithT) []string {
	paths := []string{"README.md"}
	g.Expect(filepath.WalkDir(filepath.Join(repo, "docs"), func(path string, _ fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(repo, path)
		if err == nil && strings.HasSuffix(path, ".md") && !slices.Contains(unread, relative) {
			paths = append(paths, relative)
		}
		return err
	})).To(Succeed())
	return paths
}

// blocksOf reads a page of the repository.
func blocksOf(g *WithT, page string) []block {
	text, err := os.ReadFile(filepath.Join(repo, page))
	g.Expect(err).NotTo(HaveOccurred())
	return parse(page, string(text))
}

// parser is the state of parse.
type parser struct {
	blocks []block
	// open is the block that has begun, nil outside one; language is its, and file the name of the next one.
	open           *block
	language, file string
	// shell is the block that an output directly below belongs to, -1 for none.
	shell int
}

// parse returns the blocks of shell and the files of a page, in order. A block without a language directly below a
// block of shell is its output.
func parse(page, text string) []block {
	p := &parser{shell: -1}
	for i, line := range strings.Split(text, "\n") {
		mark := fence.FindStringSubmatch(line)
		switch {
		case mark != nil && p.open == nil:
			p.open, p.language = &block{page: page, line: i + 1, file: p.file}, mark[1]
		case mark != nil:
			p.close()
		case p.open != nil:
			p.open.text += line + "\n"
		case directive.MatchString(line):
			p.file = directive.FindStringSubmatch(line)[1]
		case strings.TrimSpace(line) != "":
			p.shell = -1
		}
	}
	return p.blocks
}

// close ends the open block.
func (p *parser) close() {
	b, above := p.open, p.shell
	b.text = dedent(b.text)
	p.open, p.file, p.shell = nil, "", -1
	switch {
	case p.language == "sh" || p.language == "" && isShell(b.text):
		b.commands, b.output = split(b.text)
		if b.output == "" {
			p.shell = len(p.blocks)
		}
		p.blocks = append(p.blocks, *b)
	case b.file != "":
		p.blocks = append(p.blocks, *b)
	case p.language == "" && above >= 0:
		p.blocks[above].output = b.text
	}
}

// dedent removes the indentation of the first line, which a block in a list has, from all lines.
func dedent(text string) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return strings.ReplaceAll(strings.TrimPrefix(text, indent), "\n"+indent, "\n")
}

// isShell: the first line that is no comment begins with a prompt or a program.
func isShell(text string) bool {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 0 && words[0] != "#" {
			return words[0] == "$" || slices.Contains(programs, words[0])
		}
	}
	return false
}

// split separates the commands of a block from what it shows that they print: with a prompt, only lines with one are
// commands.
func split(text string) (commands, output string) {
	if !strings.HasPrefix(text, "$ ") {
		return text, ""
	}
	for line := range strings.Lines(text) {
		if command, prompted := strings.CutPrefix(line, "$ "); prompted {
			commands += command
		} else {
			output += line
		}
	}
	return commands, output
}

var (
	word = regexp.MustCompile(`^[A-Za-z_./:-]*[A-Za-z]{2}[A-Za-z_./:-]*$`)
	date = regexp.MustCompile(`[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4}`)
)

// similar returns the first line of an expected output that the actual one does not have; empty if it has all. A line
// has another's words in the same order. Everything with a digit may differ, such as numbers, times and versions.
func similar(expected, actual string) string {
	lines := strings.Split(actual, "\n")
	for line := range strings.Lines(expected) {
		if !slices.ContainsFunc(lines, func(candidate string) bool { return hasWords(candidate, line) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func hasWords(line, wanted string) bool {
	for _, w := range strings.Fields(date.ReplaceAllString(wanted, "")) {
		if !word.MatchString(w) {
			continue
		}
		_, after, found := strings.Cut(line, w)
		if !found {
			return false
		}
		line = after
	}
	return true
}

func TestBlocksAreFound(t *testing.T) {
	g := NewWithT(t)
	found := parse("x.md", "# A\n```\nkubectl get cp\n```\n\n```\nNAME AGE\n```\n## B\n```\n a --> b\n```\n"+
		"1. C:\n   ```\n   # first\n   make deploy IMG=x\n     --flag\n   ```\n<!-- file: p.yaml -->\n```yaml\na: 1\n```\n"+
		"```\n$ kubectl get nodes\nNAME\n$ kubectl get pods\n```\n```yaml\nb: 1\n```\n")
	g.Expect(found).To(Equal([]block{
		{page: "x.md", line: 2, text: "kubectl get cp\n", commands: "kubectl get cp\n", output: "NAME AGE\n"},
		{page: "x.md", line: 14, text: "# first\nmake deploy IMG=x\n  --flag\n",
			commands: "# first\nmake deploy IMG=x\n  --flag\n"},
		{page: "x.md", line: 20, file: "p.yaml", text: "a: 1\n"},
		{page: "x.md", line: 23, text: "$ kubectl get nodes\nNAME\n$ kubectl get pods\n",
			commands: "kubectl get nodes\nkubectl get pods\n", output: "NAME\n"},
	}))
}

func TestOutputsAreCompared(t *testing.T) {
	g := NewWithT(t)
	actual := "NAME             STATUS     READY   AGE\ncluster-policy   notReady   7/8     3s\n"
	g.Expect(similar("NAME STATUS READY AGE\ncluster-policy notReady 3/4 47s\n", actual)).To(BeEmpty())
	g.Expect(similar("NAME STATUS READY AGE\ncluster-policy ready 4/4 47s\n", actual)).NotTo(BeEmpty())
	g.Expect(similar("NAME READY STATUS\n", actual)).To(Equal("NAME READY STATUS"))
	g.Expect(similar("NAME STATUS\n", "")).To(Equal("NAME STATUS"))
	g.Expect(similar("GPUReady False Mon, 23 Nov 2026 06:04:06 +0000 Failed\n",
		"GPUReady False Tue, 01 Dec 2026 07:04:06 +0000 Failed")).To(BeEmpty())
}
