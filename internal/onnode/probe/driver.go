package probe

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

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// Driver is the start-up probe of the driver container, which runs in that container. As a program it needs no script
// in an object of the API, which would run as root.
type Driver struct {
	// Dir is the directory of the markers, SysRoot that of sysfs.
	Dir, SysRoot string
	// Pod is the UID of the pod that this runs in.
	Pod string
	// Within is how long to wait for the module and the daemons before failing.
	Within time.Duration
}

// Run waits until the driver container has started, then writes labels.DriverContainerReady, with the modules that the
// environment enables.
func (p Driver) Run(ctx context.Context) error {
	if err := pollUntil(ctx, p.Within, func() (time.Duration, error) { return p.check(ctx) }); err != nil {
		return err
	}
	// A new pod goes through k8s-driver-manager, which stops what uses the driver. A container that the kubelet
	// restarts in the same pod does not, and earlier validations stay true.
	var text strings.Builder
	for _, key := range []string{labels.GDRCopyEnabledKey, labels.GDSEnabledKey, labels.RDMAEnabledKey} {
		fmt.Fprintf(&text, "%s: %s\n", key, cmp.Or(os.Getenv(key), "false"))
	}
	fmt.Fprintf(&text, "%s: %s\n", labels.DriverInstanceKey, p.Pod)
	return atomicfile.Write(filepath.Join(p.Dir, labels.DriverContainerReady), 0o644, strings.NewReader(text.String()))
}

// check checks files before it runs nvidia-smi, which takes longer.
func (p Driver) check(ctx context.Context) (time.Duration, error) {
	if err := p.isUp(); err != nil {
		return filePause, err
	}
	smi := exec.CommandContext(ctx, "nvidia-smi")
	smi.Stdout, smi.Stderr = os.Stdout, os.Stderr
	if err := smi.Run(); err != nil {
		return smiPause, fmt.Errorf("nvidia-smi failed: %w", err)
	}
	return 0, nil
}

func (p Driver) isUp() error {
	if info, err := os.Stat(filepath.Join(p.SysRoot, "module/nvidia/refcnt")); err != nil || !info.Mode().IsRegular() {
		return errors.New("the kernel module nvidia is not loaded yet")
	}
	return p.daemonsUp()
}

// daemonsUp fails while the driver container reports that its daemons are not up. Older images report nothing.
func (p Driver) daemonsUp() error {
	content, err := os.ReadFile(filepath.Join(p.Dir, labels.DriverDaemonsStatus))
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
