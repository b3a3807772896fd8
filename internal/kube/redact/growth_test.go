package redact_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/kube/redact"
)

// A log in JSON may be one long line. What stands before a flag is not read again for each flag of the line: what is
// allocated grows with the line, not with its square.
func TestALongLineIsReadOnce(t *testing.T) {
	allocated := func(text string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		redact.New().RedactText(text)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const length, times = 4 << 10, 8
	for name, part := range map[string]string{
		"flags with a password":   "curl -u a:topsecret1 ",
		"flags of other programs": "run -u a:b ",
		"short flags":             "run -p hunter2x ",
		"ports":                   "docker run -p 8080:80 ",
		"continued lines":         "curl \\\n -u a:topsecret1 ",
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(part, length/len(part))
			once, more := allocated(text), allocated(strings.Repeat(text, times))
			t.Logf("%d kB of text: %d kB, and %d times as much: %d kB", length>>10, once>>10, times, more>>10)
			if more > 2*times*once {
				t.Errorf("%d times as much text needs %d times as much", times, more/once)
			}
		})
	}
}

// Commands that a line, or its continuation, names decide for the flags that follow, as often as one is asked.
func TestFlagsOfManyCommands(t *testing.T) {
	for text, want := range map[string]string{
		"curl -u a:hunter2xyz -u b:hunter3xyz":             "curl -u [redacted] -u [redacted]",
		"curl \\\n  -u a:hunter2xyz \\\n  -u b:hunter3xyz": "curl \\\n  -u [redacted] \\\n  -u [redacted]",
		"curl -u a:hunter2xyz\nid -u b:hunter3xyz":         "curl -u [redacted]\nid -u b:hunter3xyz",
		"id -u b:hunter3xyz\ncurl -u a:hunter2xyz":         "id -u b:hunter3xyz\ncurl -u [redacted]",
		"id -u b:hunter3xyz; curl -u a:hunter2xyz":         "id -u b:hunter3xyz; curl -u [redacted]",
		"mkdir -p hunter2x; login -p hunter3x":             "mkdir -p hunter2x; login -p [redacted]",
		"login -p hunter2x\nmkdir -p hunter3x -p hunter4x": "login -p [redacted]\nmkdir -p hunter3x -p hunter4x",
	} {
		if got := redact.New().RedactText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
