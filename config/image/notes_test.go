package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	pageBefore = "| image | default |\n|---|---|\n| dcgm | `r.io/dcgm:1` | |\n| driver | `r.io/driver:1-OS` | |\n" +
		"| old | `r.io/old:1` | |\n"
	pageNow = "| image | default |\n|---|---|\n| dcgm | `r.io/dcgm:1` | |\n| driver | `r.io/driver:2-OS` | |\n" +
		"| new | `r.io/new:1` | |\n"
	changelog = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2027-01-31\n\n### Added\n- This.\n\n## [1.1.0]\n- That.\n"
)

// TestReleaseNotes makes the notes of a release in a repository whose tag v1.1.0 is the release before.
func TestReleaseNotes(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	git := func(args ...string) {
		args = append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
	}
	write := func(name, text string) {
		file := filepath.Join(root, "docs", name)
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	}
	notes := func(version, replaces string) (string, error) {
		r := &releaser{releaseOptions: releaseOptions{root: root, out: t.TempDir(), version: version, replaces: replaces}}
		if err := r.notes(t.Context()); err != nil {
			return "", err
		}
		text, err := os.ReadFile(filepath.Join(r.out, notesFile))
		return string(text), err
	}
	git("init", "--quiet")
	write("CHANGELOG.md", changelog)
	git("add", ".")
	git("commit", "--quiet", "-m", "0")
	git("tag", "v1.0.0")
	write("images.md", pageBefore)
	git("add", ".")
	git("commit", "--quiet", "-m", "1")
	git("tag", "v1.1.0")
	g.Expect(notes("v1.1.0", "v1.1.0")).To(HaveSuffix("- That.\n\n### Default images\n\nThe same as of v1.1.0.\n"))

	write("images.md", pageNow)
	g.Expect(notes("v1.2.0", "v1.1.0")).To(And(
		HavePrefix("### Added\n- This.\n\n### Default images\n\n"), Not(ContainSubstring("That")),
		HaveSuffix("| image | v1.1.0 | now |\n|---|---|---|\n| driver | `r.io/driver:1-OS` | `r.io/driver:2-OS` |\n"+
			"| new | none | `r.io/new:1` |\n| old | `r.io/old:1` | none |\n"),
	))
	const all = "| image | default |\n|---|---|\n| dcgm | `r.io/dcgm:1` |\n" +
		"| driver | `r.io/driver:2-OS` |\n| new | `r.io/new:1` |\n"
	g.Expect(notes("v1.3.0", "")).To(Equal("See docs/CHANGELOG.md.\n\n### Default images\n\n" + all))
	g.Expect(notes("v1.3.0", "v1.0.0")).To(HaveSuffix(all), "a release that had no such page")
	_, err := notes("v1.3.0", "v0.9.0")
	g.Expect(err).To(MatchError("reading the default images of v0.9.0: no such commit: fetch the tag"))
}

// TestTheDefaultImagesOfThisRepositoryAreFound: the page has the form that the notes are made of.
func TestTheDefaultImagesOfThisRepositoryAreFound(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../" + imagesPage)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, image := range defaultImages(string(text)) {
		g.Expect(image.reference).To(HavePrefix("nvcr.io/nvidia/"))
		names = append(names, image.name)
	}
	g.Expect(names).To(ContainElements("driver", "device-plugin", "container-toolkit"))
}
