package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime"
)

// runtimeSockets are where the container runtimes listen that the toolkit is configured for, in all distributions.
var runtimeSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/docker.sock",
	"/run/k0s/containerd.sock",
	"/run/k3s/containerd/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
}

// reloadRuntimes makes the container runtimes that still run with the toolkit's programs read their configuration
// again, which names these no more. The toolkit does so when it ends, unless it was killed or its signal was lost.
func (r *run) reloadRuntimes() {
	for _, socket := range slices.Concat(runtimeSockets, r.options.RuntimeSockets) {
		r.reloadRuntime(socket)
	}
}

// reloadRuntime does so for one socket. Each gets the signal once: a restart may end the API server for seconds.
func (r *run) reloadRuntime(socket string) {
	program := hostruntime.ProgramOf(socket)
	answer, err := r.ask(program, socket)
	switch {
	case errors.Is(err, hostruntime.ErrNotRunning) || errors.Is(err, fs.ErrNotExist):
		return // It reads its configuration when it starts.
	case err != nil:
		r.leaveRuntime(socket, true, verdict{why: "it is unknown whether the runtime still has the toolkit's programs: " +
			err.Error(), busy: true})
		return
	case !bytes.Contains(answer.Config, []byte(r.programs())):
		return
	}
	signalled := slices.Contains(r.options.Reloaded, socket)
	v := verdict{
		why: fmt.Sprintf("%s still has programs in %s among its runtimes; restart it",
			r.host.describe(strconv.Itoa(answer.PID)), r.programs()),
		busy: signalled,
	}
	if signalled || r.options.KeepRuntimes {
		// Docker drops some settings only when it is restarted, and that ends containers.
		r.leaveRuntime(socket, hasDefault(answer.Config), v)
		return
	}
	if err := program.Reload(answer, func(pid int) string { return r.host.command(strconv.Itoa(pid)) }); err != nil {
		v.why += ": " + err.Error()
		r.leaveRuntime(socket, hasDefault(answer.Config), v)
		return
	}
	r.report.Reloaded = append(r.report.Reloaded, socket)
	v.busy = true
	r.leaveRuntime(socket, true, v)
}

// leaveRuntime reports a container runtime, which may need the toolkit's programs.
func (r *run) leaveRuntime(socket string, needsPrograms bool, v verdict) {
	r.leave(socket, runtime, v)
	if needsPrograms && r.toolkit == nil {
		r.toolkit = &verdict{why: "the container runtime may start containers with it", busy: v.busy}
	}
}

// ask asks the runtime that listens on a socket of the host for its configuration.
func (r *run) ask(program hostruntime.Program, socket string) (hostruntime.Answer, error) {
	dir, _, err := r.host.openDirectory(path.Dir(socket))
	if err != nil {
		return hostruntime.Answer{}, err
	}
	defer func() { _ = dir.Close() }()
	// No link is followed to another socket: a container could have put it there.
	info, err := dir.Lstat(path.Base(socket))
	if err != nil {
		return hostruntime.Answer{}, err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return hostruntime.Answer{}, hostruntime.ErrNotRunning
	}
	opened, err := dir.Open(".")
	if err != nil {
		return hostruntime.Answer{}, err
	}
	defer opened.Close()
	// The path of a socket is limited to some 100 characters.
	return program.Ask(fmt.Sprintf("/proc/self/fd/%d/%s", opened.Fd(), path.Base(socket)))
}

// programsAreThere reports whether the toolkit's runtime is installed.
func (r *run) programsAreThere() bool {
	dir, err := r.host.resolve(strings.TrimSuffix(r.programs(), "/"))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	_, err = r.host.root.Lstat(path.Join(dir, "nvidia-container-runtime"))
	return err == nil
}
