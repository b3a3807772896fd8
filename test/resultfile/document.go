package resultfile

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// ReplacePart replaces the part of a document that a command writes, between its markers, or appends it.
func ReplacePart(document []byte, name, command, text string) []byte {
	begin := fmt.Appendf(nil, "<!-- %s: written by %s -->\n", name, command)
	end := fmt.Appendf(nil, "<!-- end of %s -->\n", name)
	part := slices.Concat(begin, []byte(text), end)
	before, rest, found := bytes.Cut(document, begin)
	if !found {
		return slices.Concat(bytes.TrimRight(document, "\n"), []byte("\n\n"), part)
	}
	_, after, _ := bytes.Cut(rest, end)
	return slices.Concat(before, part, after)
}

// Commit returns the last commit that changed these paths of a working tree, followed by -dirty if files there have
// changed since. Without paths it is the last one of all, and neither untracked files count nor those in docs, as
// results are written there. It returns an empty string outside a repository.
func Commit(repo string, paths ...string) string {
	git := func(arguments ...string) (string, error) {
		output, err := exec.Command("git", slices.Concat([]string{"-C", repo}, arguments, paths)...).Output()
		return strings.TrimSpace(string(output)), err
	}
	commit, err := git("log", "-1", "--format=%h", "--")
	if err != nil {
		return ""
	}
	status := []string{"status", "--porcelain", "--"}
	if len(paths) == 0 {
		status = []string{"status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"}
	}
	if changed, err := git(status...); err != nil || changed != "" {
		commit += "-dirty"
	}
	return commit
}

// Earlier describes the results of other commits than this one, of which all have these commits. The format has the
// number of results of a commit, and the commit.
func Earlier(all []string, now, format string) string {
	counts := map[string]int{}
	for _, commit := range all {
		counts[commit]++
	}
	delete(counts, now)
	var text strings.Builder
	for _, commit := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, format, counts[commit], commit)
	}
	return text.String()
}
