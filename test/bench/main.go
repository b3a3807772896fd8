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

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit codes of bench.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitMissed: a goal was missed, with -strict.
	exitMissed = 3
)

func main() { os.Exit(start(os.Args[1:])) }

func start(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	// Messages of the libraries, such as a restarted watch, would garble the tables.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends this program immediately; the kernel then ends its children.
	context.AfterFunc(ctx, stop)
	if err := o.other.usePinned(ctx, filepath.Join(o.cache, "other")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	}
	missed, err := run(ctx, o, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	case missed > 0 && o.strict:
		fmt.Fprintf(os.Stderr, "bench: %d goals were missed\n", missed)
		return exitMissed
	default:
		return exitOK
	}
}
