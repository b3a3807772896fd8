package wait

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func TestChangesReportsAChange(t *testing.T) {
	at := func(dir string) string { return filepath.Join(dir, file) }
	tests := map[string]struct {
		before func(t *testing.T, dir string)
		change func(dir string) error
	}{
		"the directory and its parent are created": {
			before: nothing,
			change: func(dir string) error { return os.MkdirAll(dir, 0o700) },
		},
		"a file is created": {
			before: mkdir,
			change: func(dir string) error { return os.WriteFile(at(dir), nil, 0o600) },
		},
		"a file is written": {
			before: filled,
			change: func(dir string) error { return os.WriteFile(at(dir), []byte("x"), 0o600) },
		},
		"a file is renamed": {
			before: filled,
			change: func(dir string) error { return os.Rename(at(dir), at(dir)+"-2") },
		},
		"a file is removed": {
			before: filled,
			change: func(dir string) error { return os.Remove(at(dir)) },
		},
		"the directory is removed": {before: mkdir, change: os.Remove},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := filepath.Join(t.TempDir(), "not", "yet")
			tc.before(t, dir)
			changes := make(chan struct{}, 1)
			go Waiter{Dir: dir, poll: never}.report(t.Context(), changes)
			g.Eventually(changes, "1m").Should(Receive(), "initially")
			g.Expect(tc.change(dir)).To(Succeed())
			g.Eventually(changes, "1m").Should(Receive())
		})
	}
}

// The watch moves from the parent to the directory, and from a removed directory to its successor.
func TestChangesFollowsARecreatedDirectory(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "features")
	changes := make(chan struct{}, 1)
	go Waiter{Dir: dir, poll: never}.report(t.Context(), changes)
	files := -1
	// The directory is read when a change is reported, and at no other time.
	readOnChange := func() int {
		select {
		case <-changes:
			entries, _ := os.ReadDir(dir)
			files = len(entries)
		default:
		}
		return files
	}
	for range 3 {
		filled(t, dir)
		g.Eventually(readOnChange, "1m").Should(Equal(1))
		g.Expect(os.RemoveAll(dir)).To(Succeed())
		g.Eventually(readOnChange, "1m").Should(Equal(0))
	}
}

func filled(t *testing.T, dir string) {
	t.Helper()
	mkdir(t, dir)
	put(t, dir)
}

// The limit is below the safety poll, so that an event of the file is the cause.
func TestChangesOfADirectory(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	changes := Changes(t.Context(), dir, slog.New(slog.DiscardHandler))
	g.Eventually(changes, "20s").Should(Receive(), "initially")
	put(t, dir)
	g.Eventually(changes, "20s").Should(Receive())
}

// Without events files are polled every 2 s, not every 30 s.
func TestChangesPollsOftenWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes := make(chan struct{}, 1)
		go Waiter{
			Dir: t.Name(), Log: slog.New(slog.DiscardHandler),
			watch: func() (*watcher, error) { return nil, errors.New("too many open files") },
		}.report(ctx, changes)
		<-changes
		start := time.Now()
		<-changes
		NewWithT(t).Expect(time.Since(start)).To(Equal(2 * time.Second))
	})
}

// A directory that is removed between the look at it and its watch is no failure: its parent is watched.
func TestFollowADirectoryThatComesAndGoes(t *testing.T) {
	g := NewWithT(t)
	w, err := newWatcher()
	g.Expect(err).NotTo(HaveOccurred())
	defer w.close()
	dir := filepath.Join(t.TempDir(), "features")
	var stop atomic.Bool
	var toggler sync.WaitGroup
	defer toggler.Wait()
	defer stop.Store(true)
	toggler.Go(func() {
		for !stop.Load() {
			_, _ = os.Mkdir(dir, 0o700), os.Remove(dir)
		}
	})
	go func() {
		for range w.notify.Events {
			continue // Nobody else reads them.
		}
	}()
	for range 2000 {
		g.Expect(w.follow(dir)).To(Succeed())
	}
}

func TestChangesPollsWithoutEvents(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		Waiter{
			Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)), poll: time.Millisecond,
			watch: func() (*watcher, error) { return nil, errors.New("too many open files") },
		}.report(ctx, changes)
	}()
	for range 3 {
		g.Eventually(changes, "1m").Should(Receive())
	}
	cancel()
	g.Eventually(ended, "1m").Should(BeClosed())
	g.Expect(log.String()).To(ContainSubstring("fs.inotify.max_user_instances"))
}
