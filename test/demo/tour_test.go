package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTheGuideShowsSteps(t *testing.T) {
	for name, test := range map[string]struct {
		steps []step
		// want is the output, and wantErr part of the error.
		want, wantErr string
	}{
		"scenes of several steps": {
			steps: []step{
				{scene: "First", command: "echo one   two", see: "both", words: []string{"one two", "two"}},
				{command: "echo $WHO >&2"}, {scene: "Second", command: "printf three"}, {command: "true"},
			},
			want: "\n=== 1/2 First ===\n\n$ echo one   two\n# See: both.\none two\n" +
				"\n$ echo $WHO >&2\nreader\n\n=== 2/2 Second ===\n\n$ printf three\nthree\n\n$ true\n",
		},
		"it looks until all words are there": {
			steps: []step{{command: `echo line >> "$LOG"; cat "$LOG"`, words: []string{"line line line"}}},
			want:  "\n$ echo line >> \"$LOG\"; cat \"$LOG\"\nline\nline\nline\n",
		},
		"words that are never there": {
			steps:   []step{{scene: "First", command: "echo one two", words: []string{"one", "three"}}, {command: "echo next"}},
			want:    "\n=== 1/1 First ===\n\n$ echo one two\none two\n",
			wantErr: `scene 1 of the tour: echo one two does not show "three"`,
		},
		"a command that fails": {
			steps: []step{{command: "false | true"}}, want: "\n$ false | true\n", wantErr: "false | true: exit status 1",
		},
		"a command that fails although it shows the words": {
			steps: []step{{command: "echo one; false", words: []string{"one"}}}, want: "\n$ echo one; false\none\n",
			wantErr: "exit status 1",
		},
		"a command that does not end, nor what it starts": {
			steps: []step{{command: "sleep 600 & wait"}}, want: "\n$ sleep 600 & wait\n", wantErr: "deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			var output bytes.Buffer
			err := guide{
				out: &output, look: time.Millisecond, patience: 2 * time.Second,
				env: append(os.Environ(), "WHO=reader", "LOG="+filepath.Join(t.TempDir(), "log")),
			}.show(t.Context(), test.steps)
			if test.wantErr == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.wantErr)))
			}
			g.Expect(output.String()).To(Equal(test.want))
		})
	}
}
