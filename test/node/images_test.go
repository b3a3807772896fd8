//go:build linux

package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// loadNVIDIA loads images under NVIDIA's names on the node; the stand-in plays their programs.
func (b *env) loadNVIDIA() {
	b.t.Helper()
	images, err := node.NVIDIAImages(os.Getenv(standInVariable), driverLibrary(b.t))
	b.Expect(err).NotTo(HaveOccurred())
	for _, image := range images {
		b.load(image)
	}
}

// driverLibrary builds the stand-ins of the driver's libraries, with the machine's GPUs, and returns that of CUDA.
func driverLibrary(t *testing.T) string {
	t.Helper()
	dir := fakegpu.Build(t).Lib
	if err := os.WriteFile(filepath.Join(dir, "FAKE_GPUS"), []byte(strings.Repeat("gpu ", gpus)), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "libcuda.so.1")
}

// played returns an image in which the stand-in plays some programs, the first of which the image starts.
func played(name string, programs ...string) node.Image {
	return node.PlayedImage(os.Getenv(standInVariable), name, programs...)
}
