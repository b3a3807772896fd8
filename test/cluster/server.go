package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

// envtestLimit is envtest's timeout for a start, long enough that the caller's context applies instead.
const envtestLimit = 24 * time.Hour

// server is etcd or the API server, run by envtest. In addition to envtest, it dies with this program, logs to a
// file, its start ends with a context, and it can be killed and frozen.
type server struct {
	name     string
	logFile  string
	launcher *children.Launcher
	log      *os.File
	// program is an envtest.Etcd or an envtest.APIServer that starts the launcher and writes to the log.
	program interface {
		Start() error
		Stop() error
	}
}

// newServer prepares a server without its program.
func (c *Cluster) newServer(name string) (*server, error) {
	at, err := os.MkdirTemp(c.dir, name+"-")
	if err != nil {
		return nil, fmt.Errorf("make folder of %s: %w", name, err)
	}
	launcher, err := children.NewLauncher(at, c.release.program(name), c.dir, c.gcEnv())
	if err != nil {
		return nil, err
	}
	logFile := filepath.Join(c.LogDir, name+".log")
	log, err := openLog(logFile)
	if err != nil {
		return nil, err
	}
	return &server{name: name, logFile: logFile, launcher: launcher, log: log}, nil
}

// start returns once envtest reports the server as healthy.
func (s *server) start(ctx context.Context) error {
	var err error
	started := make(chan struct{})
	go children.OnLastingThread(func() { defer close(started); err = s.program.Start() })
	select {
	case <-started:
		if err != nil {
			s.kill()
			return fmt.Errorf("%w:\n%s", err, logTail(s.logFile))
		}
		return nil
	case <-ctx.Done():
	}
	s.abort(started)
	return fmt.Errorf("%s is not ready: %w:\n%s", s.name, ctx.Err(), logTail(s.logFile))
}

// abort ends a start. The process may not run yet, so it is killed repeatedly until envtest has noticed.
func (s *server) abort(started <-chan struct{}) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		_ = s.launcher.Signal(syscall.SIGKILL)
		select {
		case <-started:
			s.kill()
			return
		case <-tick.C:
		}
	}
}

// kill ends the server by SIGKILL and waits until it has exited. It succeeds for one that has already exited.
func (s *server) kill() {
	_ = s.launcher.Signal(syscall.SIGKILL)
	// Stop waits for the process, and only fails if it has already exited.
	_ = s.program.Stop()
}

// close closes what newServer opened.
func (s *server) close() { s.log.Close() }

// waitFor polls until ready returns nil, the server exits or the context ends.
func (s *server) waitFor(ctx context.Context, ready func(context.Context) error) error {
	return poll(ctx, s.name, s.logFile, ready, func() error {
		if errors.Is(s.launcher.Signal(0), os.ErrProcessDone) {
			return fmt.Errorf("%s exited early:\n%s", s.name, logTail(s.logFile))
		}
		return nil
	})
}
