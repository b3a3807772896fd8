package assess_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
)

// A message is replaced when the cause changes, and when there is a first detail.
func TestCovers(t *testing.T) {
	tests := map[string]struct {
		before, cause, message string
		want                   bool
	}{
		"the same":                        {before: "a", cause: "a", message: "a", want: true},
		"another detail":                  {before: "a: x", cause: "a", message: "a: y", want: true},
		"no detail any more":              {before: "a: x", cause: "a", message: "a", want: true},
		"not the first detail":            {before: "a", cause: "a", message: "a: x"},
		"not a cause that another begins": {before: "waits for driver,toolkit", cause: "waits for driver", message: "waits for driver"},
		"not another cause":               {before: "b: x", cause: "a", message: "a: x"},
		"not what was empty":              {before: "", cause: "a", message: "a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := assess.MessageUpToDate(test.before, test.cause, test.message); got != test.want {
				t.Errorf("MessageUpToDate(%q, %q, %q) = %t", test.before, test.cause, test.message, got)
			}
		})
	}
}
