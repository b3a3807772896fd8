package assess_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
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
