package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// nvidiaCache is the cache folder for NVIDIA's programs.
const nvidiaCache = "nvidia"

// nvidiaModule is a module of NVIDIA's and what is built from it.
type nvidiaModule struct {
	// path is the module's; dir is the folder below test/nvidia that pins its version.
	path, dir string
	programs  []string
}

// nvidiaModules are the modules of NVIDIA's programs.
func nvidiaModules() []nvidiaModule {
	return []nvidiaModule{
		{
			path: "github.com/NVIDIA/k8s-device-plugin", dir: "deviceplugin",
			programs: []string{"nvidia-device-plugin", "gpu-feature-discovery", "config-manager", "mps-control-daemon"},
		},
		{
			path: "github.com/NVIDIA/nvidia-container-toolkit", dir: "containertoolkit",
			programs: []string{
				"nvidia-ctk", "nvidia-ctk-installer", "nvidia-container-runtime", "nvidia-container-runtime.cdi",
				"nvidia-container-runtime.legacy", "nvidia-container-runtime-hook", "nvidia-cdi-hook",
			},
		},
		{
			path: "github.com/NVIDIA/mig-parted", dir: "migparted",
			programs: []string{"nvidia-mig-parted", "nvidia-mig-manager"},
		},
		{path: "sigs.k8s.io/dra-driver-nvidia-gpu", dir: "dradriver", programs: []string{"gpu-kubelet-plugin"}},
	}
}

// EnsureNVIDIAPrograms returns the folder with NVIDIA's own programs of these names, all that are pinned if there are
// none, and builds those that are missing or not of the version that modules below test/nvidia pin. It writes a line to
// progress for each program that it builds. Concurrent processes wait for each other.
//
// They are linked dynamically and need a C compiler, as they load the driver's libraries.
func EnsureNVIDIAPrograms(ctx context.Context, progress io.Writer, names ...string) (dir string, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	tools, err := nvidiaTools(root, names)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", nvidiaCache, "bin")
	return dir, ensure(ctx, dir, tools, progress)
}

// nvidiaTools returns the programs of these names, all if there are none. The error names one that is not pinned.
func nvidiaTools(root string, names []string) ([]tool, error) {
	var tools []tool
	for _, module := range nvidiaModules() {
		dir := filepath.Join(root, "test", "nvidia", module.dir)
		version, err := requiredVersion(dir, module.path)
		if err != nil {
			return nil, fmt.Errorf("find the version of %s: %w", module.path, err)
		}
		for _, name := range module.programs {
			if len(names) > 0 && !slices.Contains(names, name) {
				continue
			}
			tools = append(tools, tool{
				name: name, pkg: module.path + "/cmd/" + name, module: module.path, version: version, dir: dir,
				cold: "1 min", environment: withCgo, linker: lazily,
			})
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
			return nil, fmt.Errorf("no module below test/nvidia has the program %s", name)
		}
	}
	return tools, nil
}

// lazily makes the linker bind a symbol of the driver's libraries when it is called: a driver need not have all.
const lazily = "'-extldflags=-Wl,-z,lazy'"

// withCgo enables cgo, with which the programs load the driver's libraries.
func withCgo(context.Context, string) ([]string, error) { return []string{"CGO_ENABLED=1"}, nil }
