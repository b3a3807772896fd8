package marker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		content string
		want    []Assignment
		err     string
	}{
		"refuses a dollar sign in double quotes": {
			content: "A=1\nB='x'\nC=\"$x\"\n",
			err:     "line 3 has a value that is not literal",
		},
		"reads quoted values literally": {
			content: "A=/run/nvidia/driver\nB='a $b `c` \"d\"'\nC=\"it's\"\nD=\nE=''\n",
			want:    []Assignment{{"A", "/run/nvidia/driver"}, {"B", "a $b `c` \"d\""}, {"C", "it's"}, {"D", ""}, {"E", ""}},
		},
		"skips empty lines and comments, and takes carriage returns": {
			content: "\n# a comment\r\nA=1\r\n\n  B=2  \n",
			want:    []Assignment{{"A", "1"}, {"B", "2"}},
		},
		"reads an empty file as no assignments": {content: ""},
		"refuses a command": {
			content: "A=1\nrm -rf /\n",
			err:     `line 2 is not an assignment KEY=value: "rm -rf /"`,
		},
		"refuses a command substitution":        {content: "A=$(reboot)\n", err: "line 1 has a value that is not literal"},
		"refuses a backquote in double quotes":  {content: "A=\"`reboot`\"\n", err: "not literal"},
		"refuses a command after an assignment": {content: "A=1 reboot\n", err: "not literal"},
		"refuses a semicolon":                   {content: "A=1;reboot\n", err: "not literal"},
		"refuses a quote that does not end":     {content: "A='1\n", err: "not literal"},
		"refuses a lone quote":                  {content: "A='\n", err: "not literal"},
		"refuses two quoted parts":              {content: "A='1''2'\n", err: "not literal"},
		"refuses a key that is no variable":     {content: "A-B=1\n", err: "not an assignment"},
		"refuses export":                        {content: "export A=1\n", err: "not an assignment"},
		"refuses a key that comes twice":        {content: "A=1\nA=2\n", err: "line 2 assigns A for the second time"},
		"refuses a file that is too large":      {content: strings.Repeat("#\n", maxSize), err: "more than the 65536"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := Parse([]byte(tc.content))
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestFormat(t *testing.T) {
	tests := map[string]struct {
		in   Assignment
		want string
		err  string
	}{
		"writes a plain value without quotes":   {in: Assignment{"IS_HOST_DRIVER", "true"}, want: "IS_HOST_DRIVER=true\n"},
		"writes an empty value":                 {in: Assignment{"DRIVER_INSTANCE", ""}, want: "DRIVER_INSTANCE=\n"},
		"quotes a value that a shell splits":    {in: Assignment{"A", "a b"}, want: "A='a b'\n"},
		"quotes a value that a shell expands":   {in: Assignment{"A", "$HOME~"}, want: "A='$HOME~'\n"},
		"refuses a single quote":                {in: Assignment{"A", "it's"}, err: "the value of A"},
		"refuses a line break":                  {in: Assignment{"A", "1\nB=2"}, err: "the value of A"},
		"refuses a key that is no variable":     {in: Assignment{"A B", "1"}, err: "not a name of a shell variable"},
		"refuses a key with an equals sign":     {in: Assignment{"A=B", "1"}, err: "not a name"},
		"refuses a key that starts with digits": {in: Assignment{"1A", "1"}, err: "not a name"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := Format([]Assignment{tc.in})
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(got)).To(Equal(tc.want))
		})
	}
}

// The entrypoints of NVIDIA's images source the marker, so a shell decides what the format is.
func TestAShellReadsWhatParseReads(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell on this machine")
	}
	g := NewWithT(t)
	for _, value := range []string{
		"", "true", "/run/nvidia/driver", "a b", "$HOME", "`x`", `back\slash`, `"q"`, "~", "*", "a#b", "#", "é", "a=b", "!x",
		"{a,b}",
	} {
		content, err := Format([]Assignment{{"A", value}})
		g.Expect(err).NotTo(HaveOccurred())
		parsed, err := Parse(content)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(parsed).To(Equal([]Assignment{{"A", value}}))

		file := filepath.Join(t.TempDir(), "marker")
		g.Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
		out, err := exec.Command(shell, "-c", `. "$0"; printf '[%s]' "$A"`, file).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(string(out)).To(Equal("[" + value + "]"))
	}
}

// What Parse accepts, Format writes and Parse reads back; no value expands in a shell, since each is in the
// content literally.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "A=1\n", "A='b c'\nB=\"d\"\n#\n", "A=$(reboot)\n", "A=`x`\n", "A=\"$x\"\n", "A='", "=\n", "A=1\nA=2\n", "A=1;B=2",
		"A=\x00\n", "A='\r'\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		g := NewWithT(t)
		parsed, err := Parse(content)
		if err != nil {
			g.Expect(parsed).To(BeNil())
			return
		}
		for _, a := range parsed {
			g.Expect(string(content)).To(ContainSubstring(a.Value), "nothing is evaluated")
		}
		written, err := Format(parsed)
		if err != nil {
			// A single quote in double quotes, and a carriage return within quotes: valid in a shell, but never
			// written.
			g.Expect(string(content)).To(containAnyOf("'", "\r"))
			return
		}
		again, err := Parse(written)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(parsed))
	})
}

// containAnyOf matches a string with one of the parts.
func containAnyOf(parts ...string) types.GomegaMatcher {
	matchers := make([]types.GomegaMatcher, 0, len(parts))
	for _, part := range parts {
		matchers = append(matchers, ContainSubstring(part))
	}
	return Or(matchers...)
}
