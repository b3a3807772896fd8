package pluginlink

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/mountinfo"
)

// signal signals the processes that read the configuration. That there is none is no error: one that starts later reads
// the new link.
func (l Link) signal() error {
	entries, err := os.ReadDir(l.ProcRoot)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	own, err := l.volumeOf("self")
	if err != nil {
		return fmt.Errorf("find the volume of %s: %w", l.File, err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !l.reads(entry.Name(), own) {
			continue
		}
		switch err := syscall.Kill(pid, l.Signal); {
		case errors.Is(err, syscall.ESRCH): // It has ended since.
		case err != nil:
			return fmt.Errorf("send %s to process %d, %s: %w", l.Signal, pid, l.Process, err)
		default:
			l.Log.Info("signalled a process that reads the configuration", "process", pid, "signal", l.Signal.String())
		}
	}
	return nil
}

// reads reports whether the process was started by the name, and sees the volume with the link. One that has ended does
// not, nor does a thread of the kernel, which has no arguments.
func (l Link) reads(process, volume string) bool {
	arguments, err := os.ReadFile(filepath.Join(l.ProcRoot, process, "cmdline"))
	if err != nil {
		return false
	}
	if name, _, _ := bytes.Cut(arguments, []byte{0}); string(name) != l.Process {
		return false
	}
	of, err := l.volumeOf(process)
	return err == nil && of == volume
}

// volumeOf identifies the directory of the link as the process sees it, by its file system and its path in that. Pods
// have different volumes at the same path. The cgroup would not do: a container may see only the part below its own.
func (l Link) volumeOf(process string) (string, error) {
	mounts, err := os.ReadFile(filepath.Join(l.ProcRoot, process, "mountinfo"))
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(l.File)
	in := mountinfo.Of(mountinfo.Parse(string(mounts)), dir)
	if in.Device == "" {
		return "", fmt.Errorf("no mount of process %s has %s", process, dir)
	}
	return in.Device + " " + in.Root, nil
}
