//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if os.Getenv(stageVariable) != "" {
		if err := runStage(os.Getenv(stageVariable), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	results := flag.String("results", "results", "folder for the results, which is created")
	played := flag.Bool("played", false, "play the driver of four GPUs in place of using the machine's own")
	limit := flag.Duration("limit", 8*time.Minute, "how long all may take")
	all := flag.Bool("all", false, "count a part that this machine does not allow as failed")
	persistence := flag.Bool("persistence", false,
		"also switch the persistence mode of the GPUs, and back, to measure what it costs the health agent")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, err := run(ctx, options{
		results: *results, played: *played, limit: *limit, all: *all, persistence: *persistence,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !passed {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called.
	}
}

type options struct {
	results string
	played  bool
	limit   time.Duration
	// all makes a part that is skipped one that has failed.
	all bool
	// persistence allows to switch the persistence mode of the GPUs.
	persistence bool
}

// cleanUpTime is kept of the limit for the end of a part that has reached it: endTime, what package node then takes to
// end the processes of a killed run, and the comparison of the machine.
const cleanUpTime = 45 * time.Second

// run runs all parts and writes the results. It reports whether none has failed and the machine is as before.
func run(ctx context.Context, o options) (passed bool, err error) {
	if o.limit <= cleanUpTime {
		return false, fmt.Errorf("the limit must be longer than the %s that cleaning up may take", cleanUpTime)
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	bundle := filepath.Dir(filepath.Dir(self))
	results, err := filepath.Abs(o.results)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(results, 0o755); err != nil {
		return false, fmt.Errorf("make the folder of the results: %w", err)
	}
	begin := time.Now()
	ctx, cancel := context.WithDeadline(ctx, begin.Add(o.limit-cleanUpTime))
	defer cancel()
	s := summary{Begin: begin.UTC().Truncate(time.Second), Played: o.played, Machine: describeMachine(ctx)}
	before := takeSnapshot(bundle, results)
	for _, p := range parts(bundle, results, o) {
		// The machine may be taken away before the end.
		err = errors.Join(err, s.write(results))
		r := p.run(ctx, results)
		if o.all {
			r = r.required()
		}
		s.Parts = append(s.Parts, r)
		fmt.Println(r)
	}
	s.Left, s.Others = awaitSame(before, bundle, results, settleAfter(ctx.Err() != nil))
	s.Seconds, s.Ended = seconds(time.Since(begin)), true
	s.Passed = s.passed()
	fmt.Print(s.end())
	return s.Passed, errors.Join(err, s.write(results))
}

// settleAfter is how long the machine may take to be done with what has ended: the kernel after a part that has removed
// all, or the watcher of package node after one that may have been killed.
func settleAfter(ended bool) time.Duration {
	if ended {
		return 25 * time.Second
	}
	return 5 * time.Second
}

// awaitSame returns in what the machine differs from an earlier snapshot, once it does not or has had its time: what
// the run may have left, and other differences.
func awaitSame(before snapshot, bundle, results string, settle time.Duration) (left, others []string) {
	deadline := time.Now().Add(settle)
	for {
		d := before.compare(takeSnapshot(bundle, results))
		if len(d.ours) == 0 || time.Now().After(deadline) {
			return d.ours, d.others
		}
		time.Sleep(250 * time.Millisecond)
	}
}
