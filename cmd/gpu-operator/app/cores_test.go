package app

import (
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
)

func TestOneCoreUnlessToldOtherwise(t *testing.T) {
	g := NewWithT(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	t.Setenv("GOMAXPROCS", "3")
	useOneCore()
	g.Expect(runtime.GOMAXPROCS(0)).To(Equal(3))
	t.Setenv("GOMAXPROCS", "")
	useOneCore()
	g.Expect(runtime.GOMAXPROCS(0)).To(Equal(1))
}
