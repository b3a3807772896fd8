//go:build linux

package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// fakeGPUs is the file beside the driver's libraries that has a word for each GPU, see package fakegpu.
const fakeGPUs = "FAKE_GPUS"

// LibraryDir is where the driver has its libraries.
var LibraryDir = map[string]string{
	"amd64": "/usr/lib/x86_64-linux-gnu", "arm64": "/usr/lib/aarch64-linux-gnu",
}[runtime.GOARCH]

// mpsControl is the driver's program of the Multi-Process Service.
const mpsControl = "nvidia-cuda-mps-control"

// driverImageSystem ends the tags of images that are for one operating system: the machine's.
const driverImageSystem = "-ubuntu24.04"

// played are the programs of each of NVIDIA's images that the stand-in plays, first the one that the image starts.
var played = map[string][]string{
	"driver-manager":    {"driver-manager"},
	"container-toolkit": {"nvidia-toolkit"},
	"device-plugin":     {"nvidia-device-plugin", "gpu-feature-discovery", "mps-control-daemon"},
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
		if component == "device-plugin" {
			// Injected from the driver, elsewhere.
			made.Links["usr/bin/"+mpsControl] = "../../stand-in"
		}
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
	// A whole system has it; programs of the operator that enter the driver's root are linked to its parts.
	whole, err := cLibrary()
	if err != nil {
		return Image{}, err
	}
	maps.Copy(driver.Files, whole)
	driver.Env = append(driver.Env, "DRIVER_VERSION="+version)
	return driver, nil
}

// ProgramImages are the images of NVIDIAImages, of which three have NVIDIA's programs, from the folder programs, at the
// places of the published images: those of the container toolkit, of the device plugin and of the MIG manager. Their C
// library and their tools are those of this computer. The driver is that of ProgramDriverImage.
func ProgramImages(programs, standIn, libcuda, driverVersion string) ([]Image, error) {
	images, err := NVIDIAImages(standIn, libcuda)
	if err != nil {
		return nil, err
	}
	if images[len(images)-1], err = ProgramDriverImage(standIn, libcuda, driverVersion); err != nil {
		return nil, err
	}
	own, err := ownProgramImages(programs, standIn)
	if err != nil {
		return nil, err
	}
	for _, image := range own {
		at := slices.IndexFunc(images, func(i Image) bool { return slices.Equal(i.Names, image.Names) })
		images[at] = image
	}
	return images, nil
}

// ownProgramImages are the images of ProgramImages that have NVIDIA's programs.
func ownProgramImages(programs, standIn string) ([]Image, error) {
	return namedImages(map[string]func() (Image, error){
		"container-toolkit": func() (Image, error) { return toolkitImage(programs) },
		"device-plugin":     func() (Image, error) { return pluginImage(programs, played["device-plugin"]) },
		"mig-manager":       func() (Image, error) { return migImage(programs, standIn) },
	})
}

// HostDriverPrograms are the names of NVIDIA's programs that HostDriverImages needs.
func HostDriverPrograms() []string {
	return slices.Concat(toolkitPrograms, []string{toolkitInstaller, dra.Program}, hostDriverPlugin)
}

// hostDriverPlugin are the programs of the device plugin's image on a machine whose GPUs MPS does not share.
var hostDriverPlugin = []string{"nvidia-device-plugin", "gpu-feature-discovery"}

// HostDriverImages are the images with NVIDIA's programs, from the folder programs, for a machine that has the driver
// itself: of the toolkit, the device plugin and the DRA driver. Its GPUs are neither partitioned nor shared by MPS.
func HostDriverImages(programs string) ([]Image, error) {
	images, err := namedImages(map[string]func() (Image, error){
		"container-toolkit": func() (Image, error) { return toolkitImage(programs) },
		"device-plugin":     func() (Image, error) { return pluginImage(programs, hostDriverPlugin) },
	})
	if err != nil {
		return nil, err
	}
	claims, err := DRAImage(programs)
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", dra.Image, err)
	}
	return append(images, claims), nil
}

// namedImages makes images by their components, and gives them the names of those.
func namedImages(makers map[string]func() (Image, error)) ([]Image, error) {
	var images []Image
	for _, component := range slices.Sorted(maps.Keys(makers)) {
		name, err := ImageName(component)
		if err != nil {
			return nil, err
		}
		image, err := makers[component]()
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", name, err)
		}
		image.Names = []string{name}
		images = append(images, image)
	}
	return images, nil
}

// ProgramDriverImage is DriverImage below NVIDIA's programs, in the version that its library has: they find the files
// of a driver by the version that NVML returns. Its programs are files of their own, which can be injected without what
// the others share.
func ProgramDriverImage(standIn, libcuda, version string) (Image, error) {
	driver, err := DriverImage(standIn, libcuda, version)
	if err != nil {
		return Image{}, err
	}
	for _, program := range []string{"usr/bin/nvidia-smi", "usr/bin/" + mpsControl} {
		delete(driver.Links, program)
		driver.Files[program] = standIn
	}
	return driver, nil
}

// toolkitInstaller is the program of the toolkit's image, toolkitPrograms are those that it installs.
const toolkitInstaller = "nvidia-ctk-installer"

var toolkitPrograms = []string{
	"nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime.cdi",
	"nvidia-container-runtime.legacy", "nvidia-container-runtime-hook",
}

// Programs are the names of NVIDIA's programs that ProgramImages needs.
func Programs() []string {
	return slices.Concat(toolkitPrograms,
		[]string{toolkitInstaller, migManager, migParted, dra.Program}, played["device-plugin"])
}

// toolkitArtifacts is where the toolkit's image has the content of its packages.
const toolkitArtifacts = "artifacts/deb"

// toolkitImage is the image of the container toolkit. What is not a Go program, libnvidia-container and the program
// nvidia-container-cli, is only there by name: nothing but the legacy mode runs it. The installer reads the
// configuration of the container runtime by chroot.
func toolkitImage(programs string) (Image, error) {
	const installer, chroot, missing = "work/" + toolkitInstaller, "usr/sbin/chroot", "/bin/false"
	i := Image{
		Files: map[string]string{
			installer: filepath.Join(programs, toolkitInstaller), chroot: "/" + chroot,
			toolkitArtifacts + "/usr/bin/nvidia-container-cli": missing,
		},
		Links:      map[string]string{"work/nvidia-toolkit": "/" + installer},
		Entrypoint: []string{"/" + installer},
		Env: []string{
			"PATH=/work:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/busybox",
			"NVIDIA_DISABLE_REQUIRE=true", "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=utility",
		},
	}
	for _, library := range []string{"libnvidia-container.so.1", "libnvidia-container-go.so.1"} {
		i.Files[toolkitArtifacts+LibraryDir+"/"+library] = missing
	}
	for _, program := range toolkitPrograms {
		i.Files[toolkitArtifacts+"/usr/bin/"+program] = filepath.Join(programs, program)
	}
	return i, i.addLibraries(installer, chroot)
}

// pluginImage is the image of the device plugin with some of its programs. The daemon of the Multi-Process Service runs
// mount and umount for its memory, and tail for its log.
func pluginImage(programs string, names []string) (Image, error) {
	i := Image{
		Files: map[string]string{}, Links: map[string]string{}, Entrypoint: []string{"nvidia-device-plugin"},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"NVIDIA_DISABLE_REQUIRE=true", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
		},
	}
	for _, program := range names {
		i.Files["usr/bin/"+program] = filepath.Join(programs, program)
	}
	for _, tool := range []string{"usr/bin/mount", "usr/bin/umount", "usr/bin/tail"} {
		i.Files[tool] = "/" + tool
	}
	return i, i.addLibraries(slices.Collect(maps.Keys(i.Files))...)
}

// The programs of the MIG manager's image, besides the toolkit's that describes devices.
const migManager, migParted = "nvidia-mig-manager", "nvidia-mig-parted"

// migImage is the image of the MIG manager. It runs programs of the driver and of the host by chroot. Its
// nvidia-mig-parted is started by the stand-in, which shows it the machine's modules.
func migImage(programs, standIn string) (Image, error) {
	const chroot, inTmp = "usr/sbin/chroot", "tmp/empty"
	i := Image{
		Files: map[string]string{chroot: "/" + chroot}, Links: map[string]string{}, Entrypoint: []string{migManager},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"NVIDIA_DISABLE_REQUIRE=true", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all",
			"NVIDIA_DRIVER_CAPABILITIES=utility",
		},
	}
	for _, program := range []string{migManager, migParted, "nvidia-ctk"} {
		i.Files["usr/bin/"+program] = filepath.Join(programs, program)
	}
	err := i.addLibraries(slices.Collect(maps.Keys(i.Files))...)
	i.Files["usr/local/bin/"+migParted], i.Files[inTmp] = standIn, os.DevNull
	return i, err
}

// DRAImage is the image of NVIDIA's DRA driver, with its program for GPUs. A shell starts that, and it puts a hook of
// the toolkit on the host.
func DRAImage(programs string) (Image, error) {
	const plugin, hook, shell, sleep = "usr/bin/" + dra.Program, "usr/bin/nvidia-cdi-hook", "bin/bash", "bin/sleep"
	i := Image{
		Names: []string{dra.Image},
		Files: map[string]string{
			plugin: filepath.Join(programs, dra.Program), hook: filepath.Join(programs, filepath.Base(hook)),
			shell: "/" + shell, sleep: "/" + sleep,
		},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/busybox", "NVIDIA_DISABLE_REQUIRE=true",
			"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility",
		},
	}
	return i, i.addLibraries(plugin, hook, shell, sleep)
}

// addLibraries adds the libraries that some of the image's programs need, and those that a driver needs.
func (i Image) addLibraries(places ...string) error {
	whole, err := cLibrary()
	if err != nil {
		return err
	}
	maps.Copy(i.Files, whole)
	for _, place := range places {
		libraries, err := Libraries(i.Files[place])
		if err != nil {
			return err
		}
		maps.Copy(i.Files, libraries)
	}
	return nil
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
