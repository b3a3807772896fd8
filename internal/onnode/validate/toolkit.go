package validate

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// injectedCodes has those exit codes of nvidia-smi whose meaning in a container is another than in the driver's root,
// where nvidia-smi works, or the driver would not be validated.
var injectedCodes = map[int]string{
	4: "the container may not open the GPUs' device nodes; check that the links in /dev/char of the host exist, " +
		"and delete this pod so that it is created again",
	6: "no GPU was injected into this container; check NVIDIA_VISIBLE_DEVICES of this container and the log of the " +
		"container toolkit on this node",
	9: "the driver cannot be reached from this container; check that /dev/nvidiactl is in it, " +
		"and that the driver on this node was not stopped",
	12: "the container runtime has injected nvidia-smi into this container, but not libnvidia-ml.so.1; " +
		"restart the container toolkit on this node, so that it finds all libraries of the driver",
	18: "the libraries in this container are of another version than the kernel module; after a driver update " +
		"restart the container toolkit on this node, or reboot the node",
}

// Toolkit is the Check that the container runtime injects the GPUs into this container. The container needs the runtime
// class of the toolkit and a C library, which the injected nvidia-smi uses.
func Toolkit(ctx context.Context) ([]marker.Assignment, error) {
	_, err := injectedGPUs(ctx)
	return nil, err
}

// listedGPU is a GPU in the list of nvidia-smi, with the UUIDs of its MIG devices.
type listedGPU struct {
	uuid string
	migs []string
}

// injectedGPUs lists the GPUs of this container, at least one.
func injectedGPUs(ctx context.Context) ([]listedGPU, error) {
	out, err := injectedSMI(ctx, "-L")
	if err != nil {
		return nil, err
	}
	gpus, err := parseList(out)
	if err != nil {
		return nil, err
	}
	if len(gpus) == 0 {
		return nil, errors.New(
			"nvidia-smi runs but lists no GPU; check NVIDIA_VISIBLE_DEVICES of this container and the log of the container " +
				"toolkit on this node")
	}
	return gpus, nil
}

// parseList reads the output of nvidia-smi -L: a line "GPU 0: NAME (UUID: GPU-...)" for each GPU,
// followed by a line "MIG PROFILE Device 0: (UUID: MIG-...)" for each of its MIG devices.
func parseList(out []byte) ([]listedGPU, error) {
	if name := lostGPU(out); name != "" {
		// Some versions exit with 0 nevertheless.
		return nil, gpuLost(name)
	}
	var gpus []listedGPU
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		_, uuid, identified := strings.Cut(strings.TrimSuffix(line, ")"), "(UUID: ")
		switch {
		case identified && strings.HasPrefix(line, "GPU "):
			gpus = append(gpus, listedGPU{uuid: uuid})
		case identified && strings.HasPrefix(line, "MIG ") && len(gpus) > 0:
			last := &gpus[len(gpus)-1]
			last.migs = append(last.migs, uuid)
		case strings.HasPrefix(line, "GPU "):
			return nil, fmt.Errorf(
				"nvidia-smi lists a GPU without its UUID, %q; see the kernel log for Xid errors, and reset the GPU or reboot "+
					"the node",
				firstLine([]byte(line)))
		}
	}
	return gpus, nil
}

// injectedSMI runs the nvidia-smi that the container runtime has injected into this container.
func injectedSMI(ctx context.Context, args ...string) ([]byte, error) {
	path, err := exec.LookPath(smi)
	if err != nil {
		return nil, fmt.Errorf(
			"the container runtime has injected no nvidia-smi into this container; see the log of the container toolkit on "+
				"this node and the runtime class of this pod: %w", err)
	}
	out, err := runCommand(exec.CommandContext(ctx, path, args...))
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, nil
	case absent(err):
		return nil, fmt.Errorf(
			"the injected nvidia-smi finds no loader; use an image of the operator that has a C library: %w", err)
	case ctx.Err() == nil && errors.As(err, &exit) && injectedCodes[exit.ExitCode()] != "":
		return nil, fmt.Errorf("%s fails with %w: %s (output: %q)", path, exit, injectedCodes[exit.ExitCode()],
			firstLine(out))
	}
	return nil, explain(ctx, path, out, err)
}
