package runenv

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Environ returns base, a list of "KEY=value", with the assignments of a marker added. The marker overrides
// base, as it does where a shell sources it. The assignments that only validate the marker are left out.
func Environ(base []string, assignments []marker.Assignment) []string {
	env := slices.Clone(base)
	for _, a := range assignments {
		switch a.Key {
		case labels.BootIDKey, labels.DriverInstanceKey, labels.StartedAtKey, labels.RenewedKey, labels.RuntimeFollowsKey,
			labels.DriverModuleKey:
			continue
		}
		prefix := a.Key + "="
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, prefix) })
		env = append(env, prefix+a.Value)
	}
	return env
}

// Replace replaces this process by the command argv, which keeps the process ID and so gets the kubelet's
// signals. A command without a slash is looked up in PATH. Replace returns only on an error: the command is not
// found, or cannot be executed.
func Replace(argv, env []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find the command to run; check the container's image and its PATH: %w", err)
	}
	if err := syscall.Exec(path, argv, env); err != nil {
		return fmt.Errorf("run %s; check that it fits this architecture and that its loader is in the image: %w", path, err)
	}
	return nil
}
