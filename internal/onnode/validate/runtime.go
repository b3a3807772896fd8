package validate

import (
	"context"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// StaleRuntime removes the marker runtime together with the driver's; the toolkit's probe writes it again.
var StaleRuntime = Companion{
	Marker: labels.MarkerRuntime,
	Check:  func([]marker.Assignment) (bool, error) { return false, nil },
}

// WithRuntime adds to the assignments of a check that the container runtime restarts after it.
func WithRuntime(check Check) Check {
	return func(ctx context.Context) ([]marker.Assignment, error) {
		found, err := check(ctx)
		return append(found, marker.RuntimeFollows), err
	}
}
