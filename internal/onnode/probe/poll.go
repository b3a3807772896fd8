package probe

import (
	"context"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// filePause is the pause between two checks of files, smiPause that after a failed nvidia-smi.
const (
	filePause = 100 * time.Millisecond
	smiPause  = time.Second
)

// pollUntil calls check until it succeeds or the time is over, and returns its last error. check also returns the pause
// after it.
func pollUntil(ctx context.Context, within time.Duration, check func() (time.Duration, error)) error {
	deadline := time.Now().Add(within)
	for {
		pause, err := check()
		if err == nil || !time.Now().Before(deadline) || !wait.Sleep(ctx, pause) {
			return err
		}
	}
}
