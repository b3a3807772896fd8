package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// The ways in which a session ends without a result.
var (
	errStopped = errors.New("the session was stopped, as someone else needs the GPUs")
	errTimeout = errors.New("the session did not end in time, and was killed")
	errHangs   = errors.New("the session hangs in the driver and cannot be killed")
	errSilent  = errors.New("there was no session, as the driver does not answer in procfs")
)

// maxOutput, in bytes, is more than a session can find.
const maxOutput = 256 << 10

// sessions runs the program that has a session with NVML, one at a time. The program opens the GPUs; this process never
// does. It ends with this process.
type sessions struct {
	// program is gpu-node-cuda.
	program string
	// limit is how long a session may take, and grace how long the program may take to end once it is killed.
	limit, grace time.Duration
	// hung: a program that was killed has not ended.
	hung atomic.Bool
	// kill is replaced in tests, which cannot make a process that survives SIGKILL.
	kill func(*os.Process) error
}

func newSessions(program string, limit time.Duration) *sessions {
	const grace = 2 * time.Second
	return &sessions{program: program, limit: limit, grace: grace, kill: (*os.Process).Kill}
}

// limited keeps the first bytes that are written. The buffer has a name, as io.Copy uses the method ReadFrom of an
// embedded one, which knows no limit.
type limited struct{ kept bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	// A longer output is cut, and so is no result.
	l.kept.Write(p[:min(len(p), max(maxOutput-l.kept.Len(), 0))])
	return len(p), nil
}

// run has one session with these arguments of the program. It ends early if ctx does.
func (s *sessions) run(ctx context.Context, args ...string) (nvml.Sample, error) {
	if s.hung.Load() {
		return nvml.Sample{}, errHangs
	}
	if ctx.Err() != nil {
		return nvml.Sample{}, errStopped
	}
	var stdout, stderr limited
	command := exec.Command(s.program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	// Nothing of this container's environment is for a library of the host.
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := s.await(ctx, command)
	if errors.Is(err, errStopped) || errors.Is(err, errTimeout) || errors.Is(err, errHangs) {
		return nvml.Sample{}, err
	}
	if err != nil {
		output := strings.TrimSpace(stderr.kept.String())
		return nvml.Sample{}, fmt.Errorf("%s fails: %w (output: %.200q)", s.program, err, output)
	}
	var sample nvml.Sample
	if err := json.Unmarshal(stdout.kept.Bytes(), &sample); err != nil {
		return nvml.Sample{}, fmt.Errorf("%s has written no result: %w", s.program, err)
	}
	return sample, nil
}

// await starts the program and waits for its end, and kills it when it must end.
func (s *sessions) await(ctx context.Context, command *exec.Cmd) error {
	var result error
	started, ended := make(chan struct{}), make(chan struct{})
	go func() {
		// The kernel kills the program when the thread that has started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		result = command.Start()
		close(started)
		if result == nil {
			result = command.Wait()
		}
		s.hung.Store(false)
		close(ended)
	}()
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	reason := errTimeout
	select {
	case <-ended:
		return result
	case <-ctx.Done():
		reason = errStopped
	case <-timer.C:
	}
	<-started
	if command.Process != nil {
		// It fails if the program has just ended.
		_ = s.kill(command.Process)
	}
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	select {
	case <-ended:
		return reason
	case <-grace.C:
	}
	s.hung.Store(true)
	select {
	case <-ended:
		s.hung.Store(false)
		return reason
	default:
		return errHangs
	}
}
