package miglog_test

import (
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/node/miglog"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// The cause is kept as long as the layout has failed, and not the log that it is part of. That has up to 128 kB, but
// less here, as searching it for credentials takes most of the time.
func TestCauseKeepsNoLog(t *testing.T) {
	const logs, size = 8, 16 << 10
	filler := strings.Repeat(strings.Repeat("x", 127)+"\n", size/128)
	for name, line := range map[string]string{
		"several words": `time="2026-03-11T11:57:33Z" level=error msg="no room"`,
		"one word":      `time="2026-03-11T11:57:33Z" level=error msg=timeout`,
		"no level":      "error",
	} {
		t.Run(name, func(t *testing.T) {
			before := heap.Live()
			causes := make([]string, 0, logs)
			for range logs {
				causes = append(causes, miglog.Cause(filler+line+"\n"))
			}
			grown := heap.Live() - before
			if want := int64(logs * size / 8); grown > want {
				t.Errorf("%d causes keep %d bytes in memory, want at most %d", logs, grown, want)
			}
			for _, cause := range causes {
				if !strings.HasSuffix(line, cause) && !strings.HasSuffix(line, cause+`"`) || cause == "" {
					t.Fatalf("the cause is %q", cause)
				}
			}
		})
	}
}
