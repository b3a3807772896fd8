package runenv

import (
	"context"
	"fmt"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/kmod"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/restart"
)

// Start describes how an operand is started.
type Start struct {
	// Argv is the command.
	Argv []string
	// FromMarker and FromModules set variables from the marker and from the loaded kernel modules.
	FromMarker, FromModules []Rule
	// SysRoot is the directory of sysfs.
	SysRoot string
	// StartedFile gets the time of the start, for restart.Noted; empty for none. The command then restarts the container
	// runtime, and gets an error where it signals SIGHUP to its own process group instead.
	StartedFile string
}

// Run replaces this process by the command, with the assignments added to the environment. It returns only on an error,
// such as the cause of a ctx that has ended.
func (s Start) Run(ctx context.Context, found []marker.Assignment) error {
	env, err := FromMarker(Environ(os.Environ(), found), found, s.FromMarker)
	if err != nil {
		return err
	}
	loaded := func(module string) bool { return kmod.Loaded(s.SysRoot, module) }
	env = FromModules(env, loaded, s.FromModules)
	// The kubelet sends SIGTERM once, and a command that starts after it would run until it is killed. A signal
	// has ended ctx or, from here on, ends this program, even as the first process of a container, since Go's
	// own handler stays. A gap remains from the moment in which the kernel replaces the program until the command
	// handles signals: a first process does not get them then, as in any container.
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w before %s was started", cause, s.Argv[0])
	}
	if s.StartedFile != "" {
		if err := restart.Note(s.StartedFile); err != nil {
			return fmt.Errorf("write the start of %s: %w", s.Argv[0], err)
		}
		denyOwnHangup()
	}
	return Replace(s.Argv, env)
}
