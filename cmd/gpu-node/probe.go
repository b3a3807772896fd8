package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

func probeCommand() *cobra.Command {
	var probe driverProbe
	command := &cobra.Command{
		Use:   labels.ProbeCommand,
		Short: "Probe whether the driver container that this runs in has started",
		Long: `Probe whether the driver container that this runs in has started: its kernel module is loaded, its
daemons are up and nvidia-smi works. Then write ` + labels.DriverContainerReady + ` next to the markers, for
gpu-node validate.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := probe.run(command.Context()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	command.Flags().StringVar(&probe.dir, "dir", labels.ValidationsDir, "directory of the markers; need not exist yet")
	command.Flags().DurationVar(&probe.within, "within", 0,
		"how long to wait for the module and the daemons before failing")
	command.Flags().StringVar(&probe.sysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}

// driverProbe is the start-up probe of the driver container, which runs in that container. As a program it needs no
// script in an object of the API, which would run as root.
type driverProbe struct {
	dir, sysRoot string
	within       time.Duration
}

// probePause is the pause between two checks of files, smiPause that after a failed nvidia-smi.
const (
	probePause = 100 * time.Millisecond
	smiPause   = time.Second
)

func (p driverProbe) run(ctx context.Context) error {
	pod := os.Getenv(podUIDEnv)
	if pod == "" {
		return errNoPod
	}
	if err := pollUntil(ctx, p.within, func() (time.Duration, error) { return p.check(ctx) }); err != nil {
		return err
	}
	// A new pod goes through k8s-driver-manager, which stops what uses the driver. A container that the kubelet
	// restarts in the same pod does not, and earlier validations stay true.
	var text strings.Builder
	for _, key := range []string{labels.GDRCopyEnabledKey, labels.GDSEnabledKey, labels.RDMAEnabledKey} {
		fmt.Fprintf(&text, "%s: %s\n", key, cmp.Or(os.Getenv(key), "false"))
	}
	fmt.Fprintf(&text, "%s: %s\n", labels.DriverInstanceKey, pod)
	return atomicfile.Write(filepath.Join(p.dir, labels.DriverContainerReady), 0o644, strings.NewReader(text.String()))
}

// pollUntil calls check until it succeeds or the time is over, and returns its last error. check also returns the pause
// after it.
func pollUntil(ctx context.Context, within time.Duration, check func() (time.Duration, error)) error {
	deadline := time.Now().Add(within)
	for {
		pause, err := check()
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// check checks files before it runs nvidia-smi, which takes longer.
func (p driverProbe) check(ctx context.Context) (time.Duration, error) {
	if err := p.isUp(); err != nil {
		return probePause, err
	}
	smi := exec.CommandContext(ctx, "nvidia-smi")
	smi.Stdout, smi.Stderr = os.Stdout, os.Stderr
	if err := smi.Run(); err != nil {
		return smiPause, fmt.Errorf("nvidia-smi failed: %w", err)
	}
	return 0, nil
}

func (p driverProbe) isUp() error {
	if info, err := os.Stat(filepath.Join(p.sysRoot, "module/nvidia/refcnt")); err != nil || !info.Mode().IsRegular() {
		return errors.New("the kernel module nvidia is not loaded yet")
	}
	return p.daemonsUp()
}

// daemonsUp fails while the driver container reports that its daemons are not up. Older images report nothing.
func (p driverProbe) daemonsUp() error {
	content, err := os.ReadFile(filepath.Join(p.dir, labels.DriverDaemonsStatus))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("the state of the driver's daemons cannot be read: %w", err)
	case strings.TrimSpace(string(content)) != labels.DriverDaemonsReady:
		return errors.New("the daemons of the driver are not up yet")
	}
	return nil
}
