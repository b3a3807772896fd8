package app

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// gcPercent is how much the heap may grow before a collection, in percent of the live heap; Go's default is 100, which
	// costs more memory than it saves CPU: see docs/benchmarks.md.
	gcPercent = 50
	// maxProcs is how many cores the program uses at most. While many nodes start, events come faster than one core
	// decodes them. The garbage collector would use all cores of a large node: see docs/benchmarks.md.
	maxProcs = 2
	// memoryRatio is the part of the container's memory limit from which on the garbage collector runs more often, so
	// that the kernel does not end the program. The rest is the program itself, and what others use in the pod.
	memoryRatio = 0.9
	// memoryRefresh is the time between two looks at the limit: a resize of the pod in place starts no new program.
	memoryRefresh = time.Minute
)

// limitResources sets how much CPU and memory the Go runtime uses, unless the environment sets GOMAXPROCS, GOGC or
// GOMEMLIMIT: at most maxProcs cores, fewer on a smaller machine; gcPercent; and memoryRatio of the memory limit of the
// container, if it has one, which it follows until ctx ends. AUTOMEMLIMIT replaces memoryRatio in the environment; with
// "off" the limit is not read.
func limitResources(ctx context.Context, limit memlimit.Provider) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(maxProcs, runtime.GOMAXPROCS(0)))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	_, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(memoryRatio),
		memlimit.WithRefreshInterval(ctx, memoryRefresh))
	if err != nil && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		ctrl.Log.Info("The memory limit of the container cannot be read, so garbage is collected without regard to it",
			"reason", err.Error())
	}
}
