package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// mostContent is how much of a file is read.
const mostContent = 4 << 20

// open opens a regular file, or returns why that cannot be judged.
func open(f found) (*os.File, verdict) {
	if !f.info.Mode().IsRegular() {
		return nil, verdict{why: "it is not a regular file"}
	}
	opened, err := f.dir.Open(f.name)
	if err != nil {
		return nil, verdict{why: "it cannot be read: " + err.Error()}
	}
	return opened, verdict{}
}

// read returns the content of a regular file, or why that cannot be judged.
func read(f found) ([]byte, verdict) {
	opened, v := open(f)
	if v != (verdict{}) {
		return nil, v
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, mostContent))
	if err != nil {
		return nil, verdict{why: "it cannot be read: " + err.Error()}
	}
	return text, verdict{}
}

// unlessContains keeps a file of the same name that is not what the stack writes.
func unlessContains(part string) func(*run, found) verdict {
	return func(_ *run, f found) verdict {
		text, v := read(f)
		if v == (verdict{}) && !bytes.Contains(text, []byte(part)) {
			return verdict{why: "it does not contain " + part + ", so another program has written it"}
		}
		return v
	}
}

// locked keeps the file of which a program holds the lock while it runs.
func locked(_ *run, f found) verdict {
	opened, v := open(f)
	if v != (verdict{}) {
		return v
	}
	defer opened.Close()
	err := syscall.Flock(int(opened.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return verdict{why: f.entry.by + " still runs: it holds the lock", busy: true}
	}
	if err != nil {
		return verdict{why: "it is unknown whether it is locked: " + err.Error()}
	}
	return verdict{}
}

// toolkitCommands are the names of the toolkit's processes: nvidia-toolkit, and nvidia-ctk-installer in 15 bytes.
var toolkitCommands = []string{"nvidia-toolkit", "nvidia-ctk-inst"}

// toolkitRuns keeps the PID file of a toolkit that runs: by its lock, and by its process, as NVIDIA's toolkit loses the
// lock at a garbage collection. After a kill another program may have got the ID.
func toolkitRuns(r *run, f found) verdict {
	if v := locked(r, f); v != (verdict{}) {
		return v
	}
	return processRuns(r, f, toolkitCommands...)
}

// anyProcessRuns keeps a file with the ID of a process that runs.
func anyProcessRuns(r *run, f found) verdict { return processRuns(r, f) }

// processRuns keeps a file with the ID of a process that runs one of the commands, or any if none is given.
func processRuns(r *run, f found, commands ...string) verdict {
	text, v := read(f)
	if v != (verdict{}) {
		return v
	}
	process := strings.TrimSpace(string(text))
	if _, err := strconv.ParseUint(process, 10, 32); err != nil {
		return verdict{}
	}
	if _, err := r.host.root.Lstat(path.Join("proc", process)); err != nil {
		return verdict{}
	}
	if len(commands) > 0 && !slices.Contains(commands, r.host.command(process)) {
		return verdict{}
	}
	return verdict{why: r.host.describe(process) + " runs", busy: true}
}

// served reports whether a program listens on a socket.
func served(f found) bool {
	dir, err := f.dir.Open(".")
	if err != nil {
		return true
	}
	defer dir.Close()
	// The path of a socket is limited to some 100 characters.
	connection, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), f.name))
	if err == nil {
		_ = connection.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// linkInUse keeps links in /dev/char that the validation has not made, and all of its links to devices that exist
// while the driver is used: a daemon-reload of systemd would take such devices away from running containers.
func linkInUse(r *run, f found) verdict {
	// A device of the host is no link, and so has no target.
	target, _ := f.dir.Readlink(f.name)
	device := target
	if !path.IsAbs(target) {
		device = path.Join(r.options.RootFS, "dev/char", target)
	}
	ofHost := !path.IsAbs(target) && strings.HasPrefix(device, path.Join(r.options.RootFS, "dev/nvidia"))
	if !ofHost && !strings.HasPrefix(device, path.Join(r.options.DriverInstallDir, "dev/nvidia")) {
		return verdict{foreign: true}
	}
	if _, err := r.host.root.Lstat(strings.TrimPrefix(device, "/")); err == nil && driverInUse(r.report.Modules) {
		return verdict{why: "the driver is used, and containers lose this device at a daemon-reload of systemd without it"}
	}
	return verdict{}
}
