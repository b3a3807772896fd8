package readiness_test

import (
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// A cached pod and the verdict on it keep the line, and not the message of 4 kB that it is part of.
func TestLastLineKeepsNoMessage(t *testing.T) {
	const messages, size = 1000, 4096
	before := heap.Live()
	lines := make([]string, 0, messages)
	for range messages {
		lines = append(lines, readiness.LastLine(strings.Repeat("x", size)+"\nerror: no device"))
	}
	grown := heap.Live() - before
	if want := int64(messages * size / 8); grown > want {
		t.Errorf("%d lines keep %d bytes in memory, want at most %d", messages, grown, want)
	}
	for _, line := range lines {
		if line != "error: no device" {
			t.Fatalf("the line is %q", line)
		}
	}
}
