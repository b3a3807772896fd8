//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// managementKind is the CDI kind of the devices that the toolkit describes for the containers of the stack: all of the
// driver on the node. managementFile is its place, in the toolkit's container and on the host.
const (
	managementKind = "management.nvidia.com/gpu"
	managementFile = "/var/run/cdi/management.nvidia.com-gpu.json"
	// toolkitConfig is the configuration of the runtime, beside its programs. Without CDI it describes the devices.
	toolkitConfig = ".config/nvidia-container-runtime/config.toml"
	// injections is where the runtime records what it has injected.
	injections = "/var/lib/stand-in-injections"
)

// management is a description of devices, as far as the runtime reads it. All paths are the host's.
type management struct {
	Kind string
	// Driver is the version of the driver that is described.
	Driver string
	// Devices are the device nodes that every container gets, GPUs those of each GPU by its number.
	Devices []string
	GPUs    map[int]string
	// Mounts are files of the driver by their places in containers.
	Mounts map[string]string
}

// describe describes the driver. The toolkit reads its root, here and on the host, from the marker.
func describe() (management, error) {
	root, onHost := os.Getenv("DRIVER_ROOT_CTR_PATH"), os.Getenv("NVIDIA_DRIVER_ROOT")
	dev, devOnHost := os.Getenv("DEV_ROOT_CTR_PATH"), os.Getenv("NVIDIA_DEV_ROOT")
	version, err := moduleVersion("/")
	if err != nil {
		return management{}, fmt.Errorf("find the driver: %w", err)
	}
	found := management{
		Kind: managementKind, Driver: version, GPUs: map[int]string{},
		Mounts: map[string]string{"/usr/bin/nvidia-smi": filepath.Join(onHost, "usr/bin/nvidia-smi")},
	}
	gpus, err := gpusIn(filepath.Join(dev, "dev"))
	if err != nil {
		return management{}, fmt.Errorf("find the GPUs: %w", err)
	}
	for _, gpu := range gpus {
		found.GPUs[gpu] = filepath.Join(devOnHost, "dev", "nvidia"+strconv.Itoa(gpu))
	}
	for _, name := range []string{"nvidiactl", "nvidia-uvm"} {
		found.Devices = append(found.Devices, filepath.Join(devOnHost, "dev", name))
	}
	for _, library := range libraries {
		file := versioned(library, found.Driver)
		if _, err := os.Stat(filepath.Join(root, libraryDir(), file)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return management{}, err
		}
		found.Mounts[filepath.Join(libraryDir(), library)] = filepath.Join(onHost, libraryDir(), file)
	}
	return found, nil
}

// versioned returns the file of a library of the driver.
func versioned(library, version string) string { return strings.TrimSuffix(library, "1") + version }

// writeManagement describes the driver for the runtime, in a file.
func writeManagement(path string) error {
	found, err := describe()
	if err != nil {
		return err
	}
	content, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".new", content, 0o644), os.Rename(path+".new", path))
}

// inject injects into a container what its environment requests. Like the real runtime, it creates no container if
// there is no description of the devices, or if something that is described does not exist.
func inject(s spec) error {
	visible := s.variable("NVIDIA_VISIBLE_DEVICES")
	if slices.Contains([]string{"", "void", "none"}, visible) {
		return nil
	}
	described, err := readManagement(visible)
	if err != nil {
		return err
	}
	devices, words := described.Devices, []string(nil)
	requested := strings.Split(visible, ",")
	for gpu, device := range described.GPUs {
		if visible == "all" || slices.Contains(requested, strconv.Itoa(gpu)) || slices.Contains(requested, gpuUUID(gpu)) {
			devices, words = append(devices, device), append(words, "gpu")
		}
	}
	for _, device := range devices {
		if err := s.device(device, "/dev/"+filepath.Base(device)); err != nil {
			return err
		}
	}
	for at, source := range described.Mounts {
		if _, err := os.Stat(source); err != nil {
			return fmt.Errorf("mount what %s describes: %w", managementFile, err)
		}
		s.mount(source, at)
	}
	// The number of GPUs that the driver's libraries find.
	s.section("process").add("env", "FAKE_GPUS="+strings.Join(words, " "))
	return writeInjection(s, described.Driver)
}

// readManagement reads the description of the devices that a container requests.
func readManagement(visible string) (described management, err error) {
	self, err := os.Executable()
	if err != nil {
		return described, err
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(self), toolkitConfig))
	if err != nil {
		return described, fmt.Errorf("read the configuration of the toolkit: %w", err)
	}
	if len(content) == 0 {
		content, err = os.ReadFile(managementFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return described, fmt.Errorf("unresolvable CDI devices %s=%s", managementKind, visible)
	}
	if err == nil {
		err = json.Unmarshal(content, &described)
	}
	if err != nil {
		return described, fmt.Errorf("read %s: %w", managementFile, err)
	}
	return described, nil
}

// writeInjection records which driver's files a container has got, and which driver is loaded.
func writeInjection(s spec, driver string) error {
	loaded, err := moduleVersion(machineDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	annotations, _ := s["annotations"].(map[string]any)
	return appendLine(injections, map[string]any{
		"Pod": annotations[criAnnotation+"sandbox-name"], "Container": annotations[criAnnotation+"container-name"],
		"At": time.Now().UnixNano(), "Driver": driver, "Loaded": loaded,
	})
}
