//go:build linux

package node_test

import (
	"os"
	"path/filepath"
	"runtime"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// driverImageSystem ends the tags of images that are for one operating system: the machine's.
const driverImageSystem = "-ubuntu24.04"

// loadNVIDIA makes images under the names of NVIDIA's known on the node; the stand-in plays what is in them.
func (b *bed) loadNVIDIA() {
	b.t.Helper()
	for component, programs := range map[image.Component][]string{
		image.DriverManager: {"driver-manager"},
		image.Toolkit:       {"nvidia-toolkit"},
		image.DevicePlugin:  {"nvidia-device-plugin", "gpu-feature-discovery"},
		image.DCGM:          {"nv-hostengine"},
		image.DCGMExporter:  {"dcgm-exporter"},
	} {
		made := played(b.imageName(component, ""), programs...)
		// What NVIDIA's images say, so that what is to have no GPU says void.
		made.Env = append(made.Env, "NVIDIA_VISIBLE_DEVICES=all")
		b.load(made)
	}
	driver := played(b.imageName(image.Driver, driverImageSystem), "nvidia-driver", "nvidia-smi", "cat", "mkdir", "mv", "rm")
	// The start-up probe is a script.
	driver.Files["bin/sh"] = "/bin/sh"
	libraries, err := node.Libraries("/bin/sh")
	b.Expect(err).NotTo(HaveOccurred())
	for place, source := range libraries {
		driver.Files[place] = source
	}
	stack := fakegpu.Build(b.t)
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	driver.Files[filepath.Join("usr/lib", triplet, "libcuda.so.1")] = filepath.Join(stack.Lib, "libcuda.so.1")
	b.load(driver)
}

// played is an image in which the stand-in plays some programs, the first of which the image starts.
func played(name string, programs ...string) node.Image {
	i := node.Image{
		Names: []string{name}, Files: map[string]string{"stand-in": os.Getenv(standInVariable)}, Links: map[string]string{},
		Entrypoint: []string{programs[0]}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
	for _, program := range programs {
		i.Links["usr/bin/"+program] = "../../stand-in"
	}
	return i
}

func (b *bed) imageName(component image.Component, system string) string {
	b.t.Helper()
	reference, err := image.Resolve(component, v1.ImageSpec{}, system)
	b.Expect(err).NotTo(HaveOccurred())
	return reference.Image
}
