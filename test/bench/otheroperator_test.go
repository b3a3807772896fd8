package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReadVariables(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "env")
	write := func(text string) { g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed()) }
	write("# images\nA=1\n\n  B=x=y \nEMPTY=\n")
	g.Expect(readVariables(file)).To(Equal([]string{"A=1", "B=x=y", "EMPTY="}))
	for _, text := range []string{"A\n", "=1\n"} {
		write(text)
		_, err := readVariables(file)
		g.Expect(err).To(MatchError(ContainSubstring("want NAME=value")), text)
	}
	g.Expect(readVariables("")).To(BeEmpty())
	_, err := readVariables(file + "-missing")
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
