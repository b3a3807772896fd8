package effective

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// deadlines are a block of this operator only. They are generous: the start-up probe of NVIDIA's driver allows
// 20 minutes after its image has been pulled, and a failed validation is retried for minutes.
func deadlines(s *v1.DeadlinesSpec) {
	value(&s.Discovered, "10m")
	value(&s.Driver, "30m")
	value(&s.Toolkit, "10m")
	value(&s.DevicePlugin, "10m")
	value(&s.Allocatable, "5m")
	value(&s.Validated, "15m")
	value(&s.Other, "15m")
}

// Deadline is how long a node may take to reach the stage; 0 means no limit. The empty stage is for operands
// that no stage waits for. A value that is no duration counts as 0; the API server admits none.
func (s Spec) Deadline(stage v1.Stage) time.Duration {
	given := map[v1.Stage]v1.Deadline{
		v1.StageDiscovered:   s.Deadlines.Discovered,
		v1.StageDriver:       s.Deadlines.Driver,
		v1.StageToolkit:      s.Deadlines.Toolkit,
		v1.StageDevicePlugin: s.Deadlines.DevicePlugin,
		v1.StageAllocatable:  s.Deadlines.Allocatable,
		v1.StageValidated:    s.Deadlines.Validated,
		"":                   s.Deadlines.Other,
	}[stage]
	deadline, err := time.ParseDuration(string(given))
	if err != nil {
		return 0
	}
	return deadline
}
