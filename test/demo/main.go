package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// Exit codes of the demo.
const (
	exitOK       = 0
	exitNotReady = 1
	exitUsage    = 2
)

func main() {
	begin := time.Now()
	run := func() int {
		stderr := os.Stderr
		status, err := start(begin, stderr)
		if err != nil {
			fmt.Fprintln(stderr, "demo:", err)
		}
		return status
	}
	// start has reported wrong usage.
	opts, err := readOptions()
	if err == nil && opts.real {
		os.Exit(withReal(run))
	}
	os.Exit(run())
}

// readOptions reads the environment. It drops the real node if none can run here.
func readOptions() (options, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return options{}, err
	}
	opts, err := parseOptions(os.Getenv, breakable(catalogue))
	if opts.real {
		opts.withoutReal = realAvailable()
		opts.real = opts.withoutReal == nil
	}
	return opts, err
}

// start checks the options before it starts anything.
func start(begin time.Time, stderr *os.File) (status int, err error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return exitNotReady, err
	}
	opts, err := readOptions()
	if err != nil {
		return exitUsage, err
	}
	if opts.withoutReal != nil {
		fmt.Printf("SKIPPED: running without the real node: %v\n", opts.withoutReal)
	}
	if err := silenceLibraries(); err != nil {
		return exitNotReady, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the demo immediately; the kernel then ends its children.
	context.AfterFunc(ctx, stop)
	d := &demo{options: opts, catalogue: catalogue, begin: begin, stdout: os.Stdout, stderr: stderr}
	last, ready, err := d.run(ctx)
	if err != nil {
		return aborted(ctx, opts, err)
	}
	if !opts.exit {
		return exitOK, nil
	}
	fmt.Println(last)
	if !ready {
		return exitNotReady, nil
	}
	return exitOK, nil
}

// silenceLibraries drops what the Kubernetes libraries log to os.Stderr, such as a restarted watch, which would
// garble the table.
func silenceLibraries() error {
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	os.Stderr = nowhere
	return nil
}

// aborted returns no error for an interrupt by the user, unless a program waits for the verdict.
func aborted(ctx context.Context, opts options, err error) (int, error) {
	switch {
	case ctx.Err() == nil:
		return exitNotReady, err
	case opts.exit:
		return exitNotReady, errors.New("interrupted before the policy became ready")
	default:
		return exitOK, nil
	}
}
