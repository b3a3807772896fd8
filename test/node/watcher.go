//go:build linux

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// runPrefix starts the name of the folder and of the cgroups of a run.
	runPrefix = "gpu-operator-node-"
	// ownerFile names the process of the run.
	ownerFile = "owner"
	// endWithin is how long the kernel may take to end the processes of a run.
	endWithin = 20 * time.Second
)

// newRunDir creates the folder of a run and writes its owner down.
func newRunDir() (string, error) {
	dir, err := os.MkdirTemp("", runPrefix)
	if err != nil {
		return "", fmt.Errorf("make the folder of the run: %w", err)
	}
	owner, err := identify(os.Getpid())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ownerFile), []byte(owner), 0o644)
	}
	// Containers that run as the user nobody pass through it.
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		return "", errors.Join(fmt.Errorf("make the folder of the run: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// identify returns a name of the process that no later process with its number has: it contains its start.
func identify(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	const started = 19 // Counted from the parenthesis that closes the name.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= started {
		return "", fmt.Errorf("short stat line of process %d", pid)
	}
	return fmt.Sprintf("%d %s", pid, fields[started]), nil
}

// removeLeftovers removes what is left of runs whose process is gone, and whose watcher was killed.
func removeLeftovers() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		owner, readErr := os.ReadFile(filepath.Join(dir, ownerFile))
		if errors.Is(readErr, fs.ErrNotExist) {
			continue // A run that is just starting, or that is being removed.
		}
		err = errors.Join(err, readErr)
		pid, _, _ := strings.Cut(string(owner), " ")
		number, parseErr := strconv.Atoi(pid)
		if parseErr != nil {
			continue // As above.
		}
		if now, gone := identify(number); gone == nil && now == string(owner) {
			continue
		}
		err = errors.Join(err, removeRun(dir))
	}
	return err
}

// removeRun removes the cgroups and the folder of a run. Mounts end with the namespaces of its processes.
func removeRun(dir string) error {
	if err := removeCgroup(filepath.Base(dir), endWithin); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of the run: %w", err)
	}
	return nil
}

// watcher is the process that cleans up once this one has ended, however it ends.
type watcher struct {
	cmd *exec.Cmd
	// alive is closed by the end of this process.
	alive    io.Closer
	problems *bytes.Buffer
}

func startWatcher(dir string) (*watcher, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	defer read.Close()
	w := &watcher{cmd: part(partWatcher, dir), alive: write, problems: &bytes.Buffer{}}
	// Not the streams of this process: their reader would wait for the watcher.
	w.cmd.Stdin, w.cmd.Stderr = read, w.problems
	// Ctrl-C in a terminal must not reach it.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watcher: %w", err), write.Close())
	}
	return w, nil
}

// end makes the watcher clean up, and waits for it.
func (w *watcher) end() error {
	_ = w.alive.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up: %w: %s", err, w.problems)
	}
	return nil
}

// watch waits for the end of the process at the other end of its standard input, and cleans up.
func watch(dir string) error {
	// There may be no reader of its output.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return removeRun(dir)
}
