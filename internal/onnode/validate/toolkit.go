package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Toolkit is the Check that the container runtime puts the GPUs into a container, this one. The
// container needs the runtime class of the toolkit and a C library, which the injected nvidia-smi
// uses.
func Toolkit(ctx context.Context) ([]marker.Assignment, error) {
	path, err := exec.LookPath(smi)
	if err != nil {
		return nil, fmt.Errorf("the container runtime has put no nvidia-smi into this container; see the log of the container toolkit on this node and the runtime class of this pod: %w", err)
	}
	out, err := output(exec.CommandContext(ctx, path, "-L"))
	if absent(err) {
		return nil, fmt.Errorf("the injected nvidia-smi finds no loader; use an image of the operator that has a C library: %w", err)
	}
	if err != nil {
		return nil, explain(ctx, path, out, err)
	}
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte("GPU ")) {
			return nil, nil
		}
	}
	return nil, errors.New("nvidia-smi runs but lists no GPU; check NVIDIA_VISIBLE_DEVICES of this container and the log of the container toolkit on this node")
}
