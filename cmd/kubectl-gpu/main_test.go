package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Errors that client-go notes are in those of the commands, and nowhere else.
func TestWhatClientGoNotesIsDiscarded(t *testing.T) {
	g, stderr := NewWithT(t), os.Stderr
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	g.Expect(err).NotTo(HaveOccurred())
	os.Stderr = file
	t.Cleanup(func() { os.Stderr = stderr })
	note := func() string {
		klog.ErrorS(nil, "Couldn't get current server API group list")
		klog.Flush()
		text, err := os.ReadFile(file.Name())
		g.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	g.Expect(note()).NotTo(BeEmpty(), "the default")
	before := note()
	silenceClient()
	g.Expect(note()).To(Equal(before))
}

// commandPaths returns the command lines of all commands below one, without the program, such as "top nodes".
func commandPaths(of *cobra.Command) (all []string) {
	for _, command := range of.Commands() {
		all = append(all, strings.TrimPrefix(command.CommandPath(), "kubectl gpu "))
		all = append(all, commandPaths(command)...)
	}
	return all
}

// Each command refuses an unknown flag, and names its own help.
func TestWrongUsageNamesTheHelpOfTheCommand(t *testing.T) {
	paths := commandPaths(rootCommand())
	NewWithT(t).Expect(paths).To(ContainElements("status", "top", "top nodes", "mirror script"))
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			NewWithT(t).Expect(kubectlGPU("", append(strings.Fields(path), "--nothing")...)).To(Equal(output{
				code: 2, errOut: "kubectl gpu: unknown flag: --nothing\nSee 'kubectl gpu " + path + " --help' for usage.\n",
			}))
		})
	}
}

func TestWhatWrongUsagePrints(t *testing.T) {
	for args, want := range map[string]string{
		"logs":     "accepts between 1 and 2 arg(s), received 0\nSee 'kubectl gpu logs --help' for usage.\n",
		"explain":  "accepts 1 arg(s), received 0\nSee 'kubectl gpu explain --help' for usage.\n",
		"validate": "required flag(s) \"filename\" not set\nSee 'kubectl gpu validate --help' for usage.\n",
		"top":      "give nodes or pods\nSee 'kubectl gpu top --help' for usage.\n",
		"top nodes -o xml": "--output xml: give one of [text json yaml wide]\n" +
			"See 'kubectl gpu top nodes --help' for usage.\n",
		"stats": "unknown command \"stats\" for \"kubectl gpu\"\n\nDid you mean this?\n\tstatus\n\n" +
			"See 'kubectl gpu --help' for usage.\n",
	} {
		NewWithT(t).Expect(kubectlGPU("", strings.Fields(args)...)).To(
			Equal(output{code: 2, errOut: "kubectl gpu: " + want}), args)
	}
}
