package assess_test

import (
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// A message is replaced when the cause changes, and when it gets its first detail.
func TestMessageUpToDate(t *testing.T) {
	tests := map[string]struct {
		written, cause, message string
		want                    bool
	}{
		"the same":          {written: "a", cause: "a", message: "a", want: true},
		"another detail":    {written: "a: x", cause: "a", message: "a: y", want: true},
		"no detail anymore": {written: "a: x", cause: "a", message: "a", want: true},
		"the first detail":  {written: "a", cause: "a", message: "a: x"},
		"a cause that is a prefix of another": {
			written: "waiting for driver,toolkit",
			cause:   "waiting for driver",
			message: "waiting for driver",
		},
		"another cause":      {written: "b: x", cause: "a", message: "a: x"},
		"no message written": {written: "", cause: "a", message: "a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := assess.MessageUpToDate(test.written, test.cause, test.message); got != test.want {
				t.Errorf("MessageUpToDate(%q, %q, %q) = %t", test.written, test.cause, test.message, got)
			}
		})
	}
}

// What Cause composes, ParseCause takes apart.
func TestParseCause(t *testing.T) {
	tests := map[string]assess.Assessment{
		"with an operand": {NodeVerdict: readiness.NodeVerdict{
			Stage: v1.StageDriver, Operand: "driver", Verdict: readiness.Verdict{Message: "a: b, operand c: d"},
		}},
		"without one": {NodeVerdict: readiness.NodeVerdict{
			Stage: v1.StageAllocatable, Verdict: readiness.Verdict{Message: "a"},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			written := strings.TrimPrefix(test.Cause("node"), "node: ")
			stage, operand, rest := assess.ParseCause(written)
			if stage != test.Stage || operand != test.Operand || rest != test.Message {
				t.Errorf("ParseCause(%q) = %q, %q, %q", written, stage, operand, rest)
			}
		})
	}
	for _, other := range []string{"", "GPUs can be used", "stage Driver", "another: stage Driver: x"} {
		if stage, operand, rest := assess.ParseCause(other); stage != "" || operand != "" || rest != other {
			t.Errorf("ParseCause(%q) = %q, %q, %q", other, stage, operand, rest)
		}
	}
}
