package wait

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const file = "driver-ready"

// never is longer than any test: a timer with it wakes no wait.
const never = time.Hour

var errMissing = errors.New("driver-ready is missing")

// started is a wait for a file in dir that has checked once.
type started struct {
	done <-chan error
	log  *bytes.Buffer // To be read once done has been received from.
}

func start(ctx context.Context, t *testing.T, w Waiter) started {
	t.Helper()
	var log bytes.Buffer
	w.What, w.Log = "driver", slog.New(slog.NewTextHandler(&log, nil))
	looked, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- w.Until(ctx, func() error {
			_, err := os.Stat(filepath.Join(w.Dir, file))
			select {
			case looked <- struct{}{}:
			default:
			}
			if err != nil {
				return errMissing
			}
			return nil
		})
	}()
	<-looked
	return started{done: done, log: &log}
}

func put(t *testing.T, dir string) {
	t.Helper()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(dir, file), nil, 0o600)).To(Succeed())
}

func TestUntilIsWokenByTheFile(t *testing.T) {
	tests := map[string]struct {
		before, after func(t *testing.T, dir string)
	}{
		"when the file is created in a directory that exists": {
			before: mkdir, after: put,
		},
		"when the directory and its parents are created later": {
			before: nothing, after: func(t *testing.T, dir string) { mkdir(t, dir); put(t, dir) },
		},
		"when the file is moved into place": {
			before: mkdir,
			after: func(t *testing.T, dir string) {
				other := t.TempDir()
				put(t, other)
				NewWithT(t).Expect(os.Rename(filepath.Join(other, file), filepath.Join(dir, file))).To(Succeed())
			},
		},
		"when the directory is removed and created again": {
			before: mkdir,
			after: func(t *testing.T, dir string) {
				NewWithT(t).Expect(os.RemoveAll(filepath.Dir(dir))).To(Succeed())
				mkdir(t, dir)
				put(t, dir)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := filepath.Join(t.TempDir(), "nvidia", "validations")
			tc.before(t, dir)
			wait := start(t.Context(), t, Waiter{Dir: dir, poll: never, remind: never})
			tc.after(t, dir)
			g.Eventually(wait.done, "1m").Should(Receive(BeNil()))
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	NewWithT(t).Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
}

func nothing(*testing.T, string) {}

func TestUntilPollsWithoutEvents(t *testing.T) {
	tests := map[string]func() (*watcher, error){
		"where the node has no inotify instance left": func() (*watcher, error) {
			return nil, errors.New("too many open files")
		},
		"where the watch was closed, as when no watch is left": func() (*watcher, error) {
			w, err := newWatcher()
			if err == nil {
				err = w.notify.Close()
			}
			return w, err
		},
	}
	for name, watch := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			wait := start(t.Context(), t, Waiter{Dir: dir, poll: time.Millisecond, remind: never, watch: watch})
			put(t, dir)
			g.Eventually(wait.done, "1m").Should(Receive(BeNil()))
			g.Expect(wait.log.String()).To(ContainSubstring("fs.inotify.max_user_instances"))
			g.Expect(strings.Count(wait.log.String(), "level=WARN")).To(Equal(1))
		})
	}
}

func TestUntilLogsNothingIfTheConditionIsTrue(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	put(t, dir)
	wait := start(t.Context(), t, Waiter{Dir: dir})
	g.Eventually(wait.done, "1m").Should(Receive(BeNil()))
	g.Expect(wait.log.String()).To(BeEmpty())
}

func TestUntilLogsOnceAndRemindsWithTheReason(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	reminded := make(chan struct{})
	var log strings.Builder
	waiter := Waiter{Dir: dir, What: "driver", poll: time.Millisecond, remind: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&twice{Builder: &log, word: "still waiting", then: reminded}, nil))}
	done := make(chan error, 1)
	go func() { done <- waiter.Until(ctx, func() error { return errMissing }) }()
	g.Eventually(reminded, "1m").Should(BeClosed())
	cancel(errors.New("terminated signal received"))
	var err error
	g.Eventually(done, "1m").Should(Receive(&err))

	g.Expect(err).To(MatchError("terminated signal received after waiting 0s for driver: driver-ready is missing"))
	g.Expect(err).To(MatchError(errMissing))
	g.Expect(strings.Count(log.String(), `msg="waiting for driver"`)).To(Equal(1))
	g.Expect(log.String()).
		To(MatchRegexp(`msg="still waiting for driver" since=\d{4}-\S+Z because="driver-ready is missing"`))
}

// twice closes then when word has been written two times.
type twice struct {
	*strings.Builder
	word string
	then chan struct{}
	seen int
}

func (w *twice) Write(line []byte) (int, error) {
	if strings.Contains(string(line), w.word) {
		if w.seen++; w.seen == 2 {
			close(w.then)
		}
	}
	return w.Builder.Write(line)
}
