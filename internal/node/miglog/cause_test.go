package miglog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/node/miglog"
)

// The logs are in the formats of NVIDIA's releases, written for these tests: v0.12 runs a shell script, later releases
// do the same in Go.
func TestCause(t *testing.T) {
	for file, want := range map[string]string{
		"reset-in-use.v0.12": "The following GPUs could not be reset: GPU 00000000:0B:00.0: In use by another client " +
			"1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, " +
			"graphics application such as an X server, or a monitoring application such as another instance of " +
			"nvidia-s...",
		"reset-unsupported.v0.15": "Resetting GPU 00000000:00:04.0 is not supported.",
		"instance-in-use.v0.15": "Error clearing MigConfig: error destroying Compute instance for profile '(0, 0)': " +
			"In use by another client",
		"no-room.v0.15":        "Error creating GPU instance for '3g.40gb': Insufficient Resources",
		"unknown-layout.v0.12": "Error selecting MIG config: selected mig-config not present: all-9g.99gb",
		"unknown-layout.v0.15": "Error selecting MIG config: selected mig-config not present: all-9g.99gb",
		"pods-stay.v0.15": "Error: failed to wait for pods to be deleted: dcgm pod did not shutdown: " +
			"context deadline exceeded",
		"mode-unchanged.v0.12": "MIG mode change did not take effect after rebooting",
		"forbidden.v0.12": "Error from server (Forbidden): nodes 'gpu-1' is forbidden: User 'x' cannot patch " +
			"resource 'nodes'",
		"fixed-since.v0.15":     "",
		"applied-after-failure": "",
	} {
		t.Run(file, func(t *testing.T) {
			log, err := os.ReadFile(filepath.Join("testdata", file+".log"))
			if err != nil {
				t.Fatal(err)
			}
			if got := miglog.Cause(string(log)); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestCauseOfOddLogs(t *testing.T) {
	const begin = `time="2026-03-11T11:57:32Z" level=info msg="Updating to MIG config: all-1g.10gb"` + "\n"
	failure := func(message string) string { return `time="2026-03-11T11:57:33Z" level=error msg=` + message + "\n" }
	for name, test := range map[string]struct{ log, want string }{
		"nothing":           {},
		"no error":          {begin + "Selected MIG configuration is valid\n", ""},
		"only expected":     {begin + failure(`"Error: exit status 1"`), ""},
		"no begin":          {failure(`"Error setting MIG mode: Unknown Error"`), "Error setting MIG mode: Unknown Error"},
		"one word":          {failure("refused"), "refused"},
		"a cut line":        {failure(`"Error creating`), ""},
		"only a step":       {failure(`"Error resetting: exit status 3"`), "Error resetting: exit status 3"},
		"only an outcome":   {failure(`"Error: failed: exit status 1"`), "Error: failed: exit status 1"},
		"quotes and colour": {failure(`"a \"b\"\t\x1b[31mc\n\n d"`), "a 'b' [31mc d"},
		"credentials": {
			failure(`"get https://user:PLANTED@example.com: password=PLANTED-1 refused"`),
			"get https://[redacted]@example.com: password=[redacted] refused",
		},
		"a credential that a line before names": {
			"login with token=PLANTED-0123456789\n" + failure(`"PLANTED-0123456789 is refused"`), "[redacted] is refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := miglog.Cause(test.log); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := miglog.Cause(failure(`"` + strings.Repeat("é", 1000) + `"`)); len(got) > 300 {
		t.Errorf("%d bytes", len(got))
	}
}
