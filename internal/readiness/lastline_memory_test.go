package readiness_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// A cached pod and the verdict on it keep the line, and not the message of 4 kB that it is part of.
func TestLastLineKeepsNoMessage(t *testing.T) {
	const messages, size = 1000, 4096
	before := heapAfterGC()
	lines := make([]string, 0, messages)
	for range messages {
		lines = append(lines, readiness.LastLine(strings.Repeat("x", size)+"\nerror: no device"))
	}
	grown := heapAfterGC() - before
	if want := int64(messages * size / 8); grown > want {
		t.Errorf("%d lines keep %d bytes in memory, want at most %d", messages, grown, want)
	}
	for _, line := range lines {
		if line != "error: no device" {
			t.Fatalf("the line is %q", line)
		}
	}
}

// heapAfterGC returns the bytes of live objects.
func heapAfterGC() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // far below the limit
}
