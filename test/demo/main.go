package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/clusterpolicy/gpu-operator/internal/operands"
)

// What the demo ends with.
const (
	exitOK       = 0
	exitNotReady = 1
	exitUsage    = 2
)

func main() {
	os.Exit(start())
}

// start refuses a wrong call before it starts anything.
func start() int {
	begin := time.Now()
	catalogue, err := operands.Catalogue()
	if err != nil {
		return fail(exitNotReady, err)
	}
	opts, err := parseOptions(os.Getenv, breakable(catalogue))
	if err != nil {
		return fail(exitUsage, err)
	}
	// The libraries' own lines would tear the table apart.
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the demo at once; the kernel then ends its children.
	context.AfterFunc(ctx, stop)
	d := &demo{options: opts, catalogue: catalogue, begin: begin, out: os.Stdout}
	last, ready, err := d.run(ctx)
	if err != nil {
		return aborted(ctx, opts, err)
	}
	if !opts.exit {
		return exitOK
	}
	fmt.Println(last)
	if !ready {
		return exitNotReady
	}
	return exitOK
}

// aborted tells a failure from the wish of a user, which is none unless a program waits for the
// verdict.
func aborted(ctx context.Context, opts options, err error) int {
	switch {
	case ctx.Err() == nil:
		return fail(exitNotReady, err)
	case opts.exit:
		return fail(exitNotReady, errors.New("interrupted before there was a verdict"))
	default:
		return exitOK
	}
}

func fail(status int, err error) int {
	fmt.Fprintln(os.Stderr, "demo:", err)
	return status
}
