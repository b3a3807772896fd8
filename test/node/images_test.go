//go:build linux

package node_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// loadNVIDIA loads images under NVIDIA's names on the node; the stand-in plays their programs.
func (b *env) loadNVIDIA() {
	b.t.Helper()
	stack := fakegpu.Build(b.t)
	images, err := node.NVIDIAImages(os.Getenv(standInVariable), filepath.Join(stack.Lib, "libcuda.so.1"))
	b.Expect(err).NotTo(HaveOccurred())
	for _, image := range images {
		b.load(image)
	}
}

// played returns an image in which the stand-in plays some programs, the first of which the image starts.
func played(name string, programs ...string) node.Image {
	return node.PlayedImage(os.Getenv(standInVariable), name, programs...)
}
