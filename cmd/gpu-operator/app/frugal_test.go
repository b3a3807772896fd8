package app

import (
	"runtime"
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
)

func TestResourceLimitsYieldToTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	defer debug.SetGCPercent(debug.SetGCPercent(90))
	t.Setenv("GOMAXPROCS", "3")
	t.Setenv("GOGC", "90")
	limitResources()
	g.Expect(runtime.GOMAXPROCS(0)).To(Equal(3))
	g.Expect(debug.SetGCPercent(90)).To(Equal(90))
	t.Setenv("GOMAXPROCS", "")
	t.Setenv("GOGC", "")
	limitResources()
	g.Expect(runtime.GOMAXPROCS(0)).To(Equal(1))
	g.Expect(debug.SetGCPercent(90)).To(Equal(gcPercent))
}
