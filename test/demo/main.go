package main

import (
	"context"
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
	lastLine, err := d.run(ctx)
	switch {
	case ctx.Err() != nil && !opts.exit:
		return exitOK
	case ctx.Err() != nil:
		return fail(exitNotReady, fmt.Errorf("interrupted before the policy was ready"))
	case err != nil:
		return fail(exitNotReady, err)
	}
	fmt.Println(lastLine)
	if !d.ready {
		return exitNotReady
	}
	return exitOK
}

func fail(status int, err error) int {
	fmt.Fprintln(os.Stderr, "demo:", err)
	return status
}
