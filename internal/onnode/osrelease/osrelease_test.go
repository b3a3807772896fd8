package osrelease_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/osrelease"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		content string
		want    map[string]string
		err     string
	}{
		"Ubuntu": {
			content: "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nVERSION_ID=\"24.04\"\nID=ubuntu\n" +
				"HOME_URL=\"https://www.ubuntu.com/\"\n",
			want: map[string]string{
				"PRETTY_NAME": "Ubuntu 24.04.1 LTS", "VERSION_ID": "24.04", "ID": "ubuntu", "HOME_URL": "https://www.ubuntu.com/",
			},
		},
		"Red Hat CoreOS": {
			content: "ID=\"rhcos\"\nVERSION_ID=\"4.18\"\nOSTREE_VERSION='418.94.202501221327-0'\n",
			want:    map[string]string{"ID": "rhcos", "VERSION_ID": "4.18", "OSTREE_VERSION": "418.94.202501221327-0"},
		},
		"comments, empty lines, spaces around, a carriage return, no last line break": {
			content: "# a comment\n\n  ID=debian  \r\n\tVERSION_ID=12",
			want:    map[string]string{"ID": "debian", "VERSION_ID": "12"},
		},
		"escapes in double quotes": {
			content: `A="a \"b\" \$c \\d \` + "`" + `e \f"` + "\n",
			want:    map[string]string{"A": `a "b" $c \d ` + "`" + `e \f`},
		},
		"single quotes are literal": {content: `A='a \"b" $c'`, want: map[string]string{"A": `a \"b" $c`}},
		"escapes without quotes":    {content: `A=a\ b\\`, want: map[string]string{"A": `a b\`}},
		"an empty value":            {content: "A=\nB=\"\"\nC=''\n", want: map[string]string{"A": "", "B": "", "C": ""}},
		"an equals sign in a value": {content: "A=b=c\n", want: map[string]string{"A": "b=c"}},
		"the last line of a key":    {content: "ID=a\nID=b\n", want: map[string]string{"ID": "b"}},
		"an empty file":             {content: "", want: map[string]string{}},
		"names a line without a value, keeps the others": {
			content: "ID=ubuntu\nnonsense\nVERSION_ID=24.04\n", err: `line 2 is "nonsense"`,
			want: map[string]string{"ID": "ubuntu", "VERSION_ID": "24.04"},
		},
		"refuses a key with a space":         {content: "ID =a", want: map[string]string{}, err: `line 1 is "ID =a"`},
		"refuses a quote that is left open":  {content: `ID="a`, want: map[string]string{}, err: "line 1"},
		"refuses a single one too":           {content: `ID='a`, want: map[string]string{}, err: "line 1"},
		"refuses text after the quotes":      {content: `ID="a"b`, want: map[string]string{}, err: "line 1"},
		"refuses a quote within":             {content: `ID='a'b'`, want: map[string]string{}, err: "line 1"},
		"refuses two words":                  {content: `ID=a b`, want: map[string]string{}, err: "line 1"},
		"refuses a variable":                 {content: `ID="$HOME"`, want: map[string]string{}, err: "line 1"},
		"refuses a command":                  {content: "ID=`id`", want: map[string]string{}, err: "line 1"},
		"refuses a backslash at the end":     {content: `ID=a\`, want: map[string]string{}, err: "line 1"},
		"refuses a zero byte":                {content: "ID='a\x00'", want: map[string]string{}, err: "line 1"},
		"names the first of the wrong lines": {content: "a\nb\n", want: map[string]string{}, err: `line 1 is "a"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := osrelease.Parse(tc.content)
			g.Expect(got).To(Equal(tc.want))
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
		})
	}
}

func TestRead(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  map[string]string
		err   string
	}{
		"prefers /etc": {
			files: map[string]string{"etc/os-release": "ID=a\n", "usr/lib/os-release": "ID=b\n"},
			want:  map[string]string{"ID": "a"},
		},
		"finds the one in /usr/lib": {
			files: map[string]string{"usr/lib/os-release": "ID=b\n"}, want: map[string]string{"ID": "b"},
		},
		"names what is not mounted": {err: "there is neither etc/os-release nor usr/lib/os-release in "},
		"names what is no file": {
			files: map[string]string{"etc/os-release/x": ""},
			err:   "the operating system is unknown: read ",
		},
		"names the file and the line that is wrong": {
			files: map[string]string{"etc/os-release": "ID=a\n<html>\n"}, want: map[string]string{"ID": "a"},
			err: `etc/os-release does not have the format of os-release(5): line 2 is "<html>"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for path, content := range tc.files {
				path = filepath.Join(root, path)
				g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
				g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
			}
			got, err := osrelease.Read(root)
			g.Expect(got).To(Equal(tc.want))
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
		})
	}
}

func TestSplitVersion(t *testing.T) {
	for version, want := range map[string][2]string{
		"24.04": {"24", "04"}, "9.6.1": {"9", "6"}, "12": {"12", ""}, "4.18": {"4", "18"},
		"": {}, "rolling": {}, "24.04beta": {"24", ""}, "24beta": {}, "v1.2": {}, "1.x": {"1", ""},
	} {
		major, minor := osrelease.SplitVersion(version)
		NewWithT(t).Expect([2]string{major, minor}).To(Equal(want), version)
	}
}

// Parse reads what a shell reads: os-release is meant to be sourced.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"ID=ubuntu\nVERSION_ID=\"24.04\"\n", `A="a \"b\" \$c \\ \x"`, `A='b'`, `A=a\ b`, "A=\"b\nB=c\"", "#\n=", "A='\x00'",
		"A=~", "A=a#b",
	} {
		f.Add(seed)
	}
	shell, _ := exec.LookPath("sh")
	f.Fuzz(func(t *testing.T, content string) {
		g := NewWithT(t)
		fields, err := osrelease.Parse(content)
		for key, value := range fields {
			g.Expect(key).To(MatchRegexp(`^\w+$`))
			g.Expect(value).NotTo(ContainSubstring("\n"))
		}
		want, clean := fields["A"]
		single := strings.HasPrefix(content, "A=") && !strings.ContainsAny(content, "\n\r\x00~*?[")
		if shell == "" || err != nil || !clean || !single {
			return
		}
		script := filepath.Join(t.TempDir(), "os-release")
		g.Expect(os.WriteFile(script, []byte(content+"\n"), 0o600)).To(Succeed())
		out, err := exec.CommandContext(t.Context(), shell, "-c", `. "$0"; printf %s "$A"`, script).Output()
		g.Expect(err).NotTo(HaveOccurred(), content)
		g.Expect(string(out)).To(Equal(want), content)
	})
}
