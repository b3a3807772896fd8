package app

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

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
	limitResources(memlimit.Limit(256 << 20))
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
			limitResources(test.limit)
			g.Expect(runtime.GOMAXPROCS(0)).To(Equal(1))
			g.Expect(debug.SetGCPercent(90)).To(Equal(gcPercent))
			g.Expect(debug.SetMemoryLimit(-1)).To(Equal(test.want))
		})
	}
}
