package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// CUDA validates that a kernel runs on every GPU of this container with correct results, and with the libraries that a
// user's pod gets.
type CUDA struct {
	// Program is gpu-node-cuda, normally labels.CUDABinary. It is a process of its own because it needs the C
	// library, and because a driver may crash it.
	Program string
	// Log gets the program's line for each GPU once all are validated.
	Log *slog.Logger
}

// The exit codes of gpu-node-cuda, and of the loader that starts it.
const (
	cudaFailed   = 1
	loaderFailed = 127
)

// cudaProcesses is how many MIG devices are validated at the same time: a node has up to 56, and each takes up to some
// seconds.
const cudaProcesses = 8

// Check implements Check.
func (c CUDA) Check(ctx context.Context) ([]marker.Assignment, error) {
	selections, err := cudaSelections(ctx)
	if err != nil {
		return nil, err
	}
	var (
		lines   = make([][]byte, len(selections))
		errs    = make([]error, len(selections))
		running sync.WaitGroup
		places  = make(chan struct{}, cudaProcesses)
	)
	for i, selection := range selections {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			lines[i], errs[i] = c.run(ctx, selection)
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			// Only the first of several, since a reason is one sentence.
			return nil, err
		}
	}
	for line := range bytes.Lines(bytes.Join(lines, nil)) {
		c.Log.Info("CUDA works", "on", string(bytes.TrimSpace(line)))
	}
	return nil, nil
}

// cudaSelections returns the values of CUDA_VISIBLE_DEVICES with which the program sees, one after the other, all
// devices of this container; an empty one means no restriction. A process sees all GPUs, but only one MIG device, and
// then no other GPU.
func cudaSelections(ctx context.Context) ([]string, error) {
	gpus, err := injectedGPUs(ctx)
	if err != nil {
		return nil, err
	}
	var selections []string
	for _, gpu := range gpus {
		selections = append(selections, gpu.migs...)
	}
	if len(selections) == 0 {
		return []string{""}, nil
	}
	out, err := injectedSMI(ctx, "--query-gpu=uuid,mig.mode.current", "--format=csv,noheader")
	if err != nil {
		return nil, err
	}
	// A GPU in MIG mode without a MIG device is not visible to CUDA.
	var whole []string
	for line := range strings.Lines(string(out)) {
		if uuid, mode, ok := strings.Cut(strings.TrimSpace(line), ", "); ok && mode != "Enabled" {
			whole = append(whole, uuid)
		}
	}
	if len(whole) > 0 {
		selections = append(selections, strings.Join(whole, ","))
	}
	return selections, nil
}

// run runs the program on the selected devices and returns its lines.
func (c CUDA) run(ctx context.Context, selection string) ([]byte, error) {
	command := exec.CommandContext(ctx, c.Program)
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(),
		// The same numbers as nvidia-smi.
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		// The driver's compiler is part of what is validated, on every run.
		"CUDA_CACHE_DISABLE=1")
	if selection != "" {
		command.Env = append(command.Env, "CUDA_VISIBLE_DEVICES="+selection)
	}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, c.explain(ctx, stderr.Bytes(), err)
	}
	return stdout.Bytes(), nil
}

// explain returns why the program failed: its own message if there is one.
func (c CUDA) explain(ctx context.Context, stderr []byte, err error) error {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s was stopped: %w", c.Program, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(c.Program); statErr == nil {
			return fmt.Errorf("%s finds no loader; use an image of the operator that has a C library: %w", c.Program, err)
		}
		return fmt.Errorf("%s does not exist; use an image of the operator that has it: %w", c.Program, err)
	case !errors.As(err, &exit):
		return fmt.Errorf("%s cannot be run; use the operator's image for this processor: %w", c.Program, err)
	case exit.ExitCode() == cudaFailed:
		return errors.New(string(bytes.TrimSpace(stderr)))
	case exit.ExitCode() == loaderFailed:
		return fmt.Errorf("%s cannot be loaded; use an image of the operator that has a C library (the loader reports %q)",
			c.Program, firstLine(stderr))
	case killed(exit):
		return fmt.Errorf("%s was killed; raise the memory limit of this container if it has one, and see the kernel log: %w",
			c.Program, exit)
	}
	return fmt.Errorf(
		"%s crashes in the driver's libraries (%w); see the kernel log for Xid errors, and reinstall the driver", c.Program,
		exit)
}

// killed reports whether the process got SIGKILL, as from the kernel when memory runs out.
func killed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
