package resultfile

import (
	"bytes"
	"fmt"
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

// Commit returns the commit of a working tree, followed by -dirty if tracked files have changed since. Those in docs do
// not count, as results are written there. It returns an empty string outside a repository.
func Commit(repo string) string {
	head, err := exec.Command("git", "-C", repo, "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	commit := strings.TrimSpace(string(head))
	status := exec.Command("git", "-C", repo, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
	changed, err := status.Output()
	if err != nil || len(changed) > 0 {
		commit += "-dirty"
	}
	return commit
}
