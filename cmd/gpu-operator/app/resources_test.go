package app

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	. "github.com/onsi/gomega"
)

func TestResourceLimitsYieldToTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	defer debug.SetGCPercent(debug.SetGCPercent(90))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
	t.Setenv("GOMAXPROCS", "3")
	t.Setenv("GOGC", "90")
	t.Setenv("GOMEMLIMIT", "1TiB")
	limitResources(t.Context(), memlimit.Limit(256<<20))
	g.Expect(runtime.GOMAXPROCS(0)).To(Equal(3))
	g.Expect(debug.SetGCPercent(90)).To(Equal(90))
	g.Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo(1 << 40))
}

func TestResourcesAreLimited(t *testing.T) {
	for _, name := range []string{"GOMAXPROCS", "GOGC"} {
		t.Setenv(name, "")
	}
	for name, test := range map[string]struct {
		limit memlimit.Provider
		want  int64
	}{
		"to the container's memory":   {memlimit.Limit(1000 << 20), 900 << 20},
		"without a limit of memory":   {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, math.MaxInt64},
		"outside a container":         {func() (uint64, error) { return 0, memlimit.ErrNoCgroup }, math.MaxInt64},
		"if the limit cannot be read": {func() (uint64, error) { return 0, errors.New("no such file") }, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
			defer debug.SetGCPercent(debug.SetGCPercent(90))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
			limitResources(t.Context(), test.limit)
			g.Expect(runtime.GOMAXPROCS(0)).To(Equal(2))
			g.Expect(debug.SetGCPercent(90)).To(Equal(50), "as measured, see docs/benchmarks.md")
			g.Expect(debug.SetMemoryLimit(-1)).To(Equal(test.want))
		})
	}
}

// A container whose memory is resized in place goes on with the same process. A limit that cannot be read for a while
// leaves the last one.
func TestTheMemoryLimitFollowsTheContainer(t *testing.T) {
	for _, name := range []string{"GOMAXPROCS", "GOGC"} {
		t.Setenv(name, "")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	defer debug.SetGCPercent(debug.SetGCPercent(90))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		type answer struct {
			limit  uint64
			failed error
		}
		var now atomic.Pointer[answer]
		now.Store(&answer{limit: 1000 << 20})
		limitResources(t.Context(), func() (uint64, error) { return now.Load().limit, now.Load().failed })
		g.Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo(900 << 20))
		for _, step := range []struct {
			limit  uint64
			failed error
			want   int64
		}{
			{2000 << 20, nil, 1800 << 20}, {0, errors.New("no such file"), 1800 << 20}, {500 << 20, nil, 450 << 20},
			{0, memlimit.ErrNoLimit, math.MaxInt64},
		} {
			now.Store(&answer{step.limit, step.failed})
			time.Sleep(time.Minute)
			synctest.Wait()
			g.Expect(debug.SetMemoryLimit(-1)).To(Equal(step.want))
		}
	})
}
