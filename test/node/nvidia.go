//go:build linux

package node

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
)

// fakeGPUs is the file beside the driver's libraries that has a word for each GPU, see package fakegpu.
const fakeGPUs = "FAKE_GPUS"

// LibraryDir is where the driver has its libraries.
var LibraryDir = map[string]string{
	"amd64": "/usr/lib/x86_64-linux-gnu", "arm64": "/usr/lib/aarch64-linux-gnu",
}[runtime.GOARCH]

// driverImageSystem ends the tags of images that are for one operating system: the machine's.
const driverImageSystem = "-ubuntu24.04"

// played are the programs of each of NVIDIA's images that the stand-in plays, first the one that the image starts.
var played = map[string][]string{
	"driver-manager":    {"driver-manager"},
	"container-toolkit": {"nvidia-toolkit"},
	"device-plugin":     {"nvidia-device-plugin", "gpu-feature-discovery", "config-manager", "mps-control-daemon"},
	"dcgm":              {"nv-hostengine"},
	"dcgm-exporter":     {"dcgm-exporter"},
	"mig-manager":       {"nvidia-mig-manager"},
}

// PauseImage is the image of the sandbox container; no pod starts on a machine without it.
func PauseImage(standIn string) Image {
	return Image{
		Names: []string{"example.com/pause:1"}, Files: map[string]string{"pause": standIn}, Entrypoint: []string{"/pause"},
	}
}

// NVIDIAImages are images under NVIDIA's names, as a policy without any image uses them on a machine. The program
// standIn, that of cluster.BuildNodeStandIn, plays their programs; libcuda is the driver's library, such as that of
// package fakegpu, beside which are its NVML and the file with its GPUs.
func NVIDIAImages(standIn, libcuda string) ([]Image, error) {
	var images []Image
	for component, programs := range played {
		name, err := ImageName(component)
		if err != nil {
			return nil, err
		}
		made := PlayedImage(standIn, name, programs...)
		// As in NVIDIA's images; containers that are to have no GPU have void.
		made.Env = append(made.Env, "NVIDIA_VISIBLE_DEVICES=all")
		images = append(images, made)
	}
	driver, err := DriverImage(standIn, libcuda, "")
	return append(images, driver), err
}

// DriverImage is the driver's image in a version of it, empty for the default one.
func DriverImage(standIn, libcuda, version string) (Image, error) {
	reference, err := resolve("driver", version)
	if err != nil {
		return Image{}, fmt.Errorf("name the image of the driver: %w", err)
	}
	name := reference.Image
	version = strings.TrimSuffix(reference.Version, driverImageSystem)
	driver := PlayedImage(standIn, name, "nvidia-driver", "nvidia-smi", "rm")
	// Before it ends, a shell removes what its start-up probe wrote.
	const shell = "/bin/sh"
	driver.Files[shell[1:]] = shell
	dir := LibraryDir[1:]
	for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		driver.Files[filepath.Join(dir, name+version)] = filepath.Join(filepath.Dir(libcuda), name+"1")
		driver.Links[filepath.Join(dir, name+"1")] = name + version
	}
	driver.Files[filepath.Join(dir, fakeGPUs)] = filepath.Join(filepath.Dir(libcuda), fakeGPUs)
	for _, program := range []string{shell, filepath.Join(filepath.Dir(libcuda), "libnvidia-ml.so.1")} {
		libraries, err := Libraries(program)
		if err != nil {
			return Image{}, err
		}
		maps.Copy(driver.Files, libraries)
	}
	// A whole system has them; programs of the operator that enter the driver's root are linked to them.
	for _, name := range []string{"libdl.so.2", "libpthread.so.0"} {
		source, err := findLibrary(name)
		if err != nil {
			return Image{}, err
		}
		driver.Files[source[1:]] = source
	}
	driver.Env = append(driver.Env, "DRIVER_VERSION="+version)
	return driver, nil
}

// PlayedImage is an image in which the stand-in plays some programs, the first of which the image starts.
func PlayedImage(standIn, name string, programs ...string) Image {
	i := Image{
		Names: []string{name}, Files: map[string]string{"stand-in": standIn}, Links: map[string]string{},
		Entrypoint: []string{programs[0]}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
	for _, program := range programs {
		i.Links["usr/bin/"+program] = "../../stand-in"
	}
	return i
}

// ImageName returns the name of an image of NVIDIA's that a policy without any image uses on a machine.
func ImageName(component string) (string, error) {
	reference, err := resolve(component, "")
	if err != nil {
		return "", fmt.Errorf("name the image of %s: %w", component, err)
	}
	return reference.Image, nil
}

// resolve returns the reference of an image of the catalogue in a version of it, empty for the default.
func resolve(name, version string) (image.Reference, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return image.Reference{}, err
	}
	images := catalogue.Images()
	at := slices.IndexFunc(images, func(d image.Default) bool { return d.Name == name })
	if at < 0 {
		return image.Reference{}, errors.New("no operand has it")
	}
	system := ""
	if images[at].PerSystem {
		system = driverImageSystem
	}
	return images[at].Resolve(v1.ImageSpec{Version: version}, system)
}
