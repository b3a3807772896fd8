package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const limits = "# idle machine\n* 10\n\nexample.com/slow 100\n"

// event is a line of go test -json.
func event(action, pkg, test, elapsed string) string {
	line := `{"Action":"` + action + `","Package":"` + pkg + `"`
	if test != "" {
		line += `,"Test":"` + test + `"`
	}
	return line + `,"Elapsed":` + elapsed + "}\n"
}

func TestPackagesAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		events string
		prints []string
		fails  string
	}{
		"within": {
			events: event("pass", "example.com/slow", "", "299"), prints: []string{"4m59s", "1m40s", "example.com/slow"},
		},
		"beyond": {
			events: event("pass", "example.com/slow", "", "301"), fails: "3 times the bound: example.com/slow:",
		},
		"all others, within": {events: event("pass", "example.com/other", "", "29"), prints: []string{"example.com/other"}},
		"all others, beyond": {events: event("pass", "example.com/other", "", "31"), fails: "example.com/other"},
		"quick ones": {
			events: event("pass", "example.com/other", "", "1"),
			prints: []string{"1 more packages took less than 5s each; all packages: 1s"},
		},
		"run again": {
			events: event("fail", "example.com/slow", "", "250") + event("pass", "example.com/slow", "", "60"),
			fails:  "example.com/slow",
		},
		"tests do not count": {
			events: event("pass", "example.com/slow", "TestIt", "300") + event("pass", "example.com/slow", "", "5"),
			prints: []string{"all packages: 5s"},
		},
		"skipped, and output": {
			events: event("skip", "example.com/none", "", "0") + event("output", "example.com/a", "", "0"),
			fails:  "no package has a result",
		},
		"not JSON": {events: "ok example.com/a 5s", fails: "reading results from "},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			bounds, results := filepath.Join(dir, "bounds"), filepath.Join(dir, "results")
			g.Expect(os.WriteFile(bounds, []byte(limits), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(results, []byte(test.events), 0o600)).To(Succeed())
			var out strings.Builder
			err := run(bounds, []string{results}, &out)
			if test.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			for _, want := range test.prints {
				g.Expect(out.String()).To(ContainSubstring(want))
			}
		})
	}
}

func TestInvalidBoundsAreRefused(t *testing.T) {
	for text, wantErr := range map[string]string{
		"a 1":         "no bound for all other packages",
		"* 1\na":      `line 2: want a package and seconds, not "a"`,
		"* 1\na b":    `line 2: "b" is not a number of seconds`,
		"* 1\na 0":    `line 2: "0" is not a number of seconds`,
		"a 1\na 2\n*": "line 2: a already has a bound",
	} {
		_, err := parseBounds(text)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(wantErr)), text)
	}
}

// The bounds of this project are for packages that exist.
func TestTheBoundsOfThisProjectAreRead(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../times.txt")
	g.Expect(err).NotTo(HaveOccurred())
	limits, err := parseBounds(string(text))
	g.Expect(err).NotTo(HaveOccurred())
	for name := range limits.of {
		folder, ours := strings.CutPrefix(name, "github.com/clusterpolicy/gpu-operator/")
		g.Expect(ours).To(BeTrue(), name)
		g.Expect(filepath.Join("../..", folder)).To(BeADirectory())
	}
}
