package validate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Driver proves that a driver works, on the host or in the driver container.
type Driver struct {
	// HostRoot is where the host's root file system is mounted here.
	HostRoot string
	// DriverRoot is where the driver container's root file system is mounted here, InstallDir the
	// same on the host.
	DriverRoot, InstallDir string
	// ContainerExpected tells that the operator runs a driver container. If so it is waited for;
	// if not, a driver of somebody else's container in DriverRoot is also accepted.
	ContainerExpected bool
	// MarkersDir is where the driver container says that it is ready.
	MarkersDir string
	// Run runs nvidia-smi; Chroot on a node.
	Run Runner
}

// Check is a Check. A driver on the host comes first: where there is one that works, the driver
// container does not install another.
func (d Driver) Check(ctx context.Context) ([]marker.Assignment, error) {
	onHost, hostErr := runSMI(ctx, d.Run, d.HostRoot)
	switch {
	case onHost && hostErr == nil:
		return assignments(true, "/", labels.HostRootMount, "/", labels.HostRootMount), nil
	case d.ContainerExpected:
		// A leftover on the host, such as tools without a kernel module, is no obstacle.
		if err := d.awaitContainer(); err != nil {
			return nil, err
		}
	case onHost:
		return nil, fmt.Errorf("the host's driver does not work: %w", hostErr)
	}
	inRoot, err := runSMI(ctx, d.Run, d.DriverRoot)
	switch {
	case inRoot && err == nil:
		devRoot, devRootMount := d.devRoot()
		return assignments(false, d.InstallDir, labels.DriverRootMount, devRoot, devRootMount), nil
	case inRoot:
		return nil, fmt.Errorf("the driver container's driver does not work: %w", err)
	case d.ContainerExpected:
		return nil, fmt.Errorf("the driver container is ready, but there is no nvidia-smi below %s; check that %s is mounted there with propagation from the host",
			d.DriverRoot, d.InstallDir)
	default:
		return nil, errors.New("there is no nvidia-smi on the host, and no driver container; install a driver on the node or set spec.driver.enabled to true")
	}
}

func (d Driver) awaitContainer() error {
	path := filepath.Join(d.MarkersDir, labels.DriverContainerReady)
	if _, err := os.Stat(path); err != nil {
		return &awaitFile{path: path, reason: "the driver container on this node is not ready (" +
			labels.DriverContainerReady + " is missing); see the pod of the driver on this node"}
	}
	return nil
}

// devRoot returns where the GPUs' device nodes are, on the host and in a pod: in the driver's root
// if it has a /dev.
func (d Driver) devRoot() (onHost, mount string) {
	if info, err := os.Stat(filepath.Join(d.DriverRoot, "dev")); err == nil && info.IsDir() {
		return d.InstallDir, labels.DriverRootMount
	}
	return "/", labels.HostRootMount
}

// assignments are what the entrypoints of NVIDIA's images read.
func assignments(onHost bool, driverRoot, driverRootMount, devRoot, devRootMount string) []marker.Assignment {
	return []marker.Assignment{
		{Key: labels.IsHostDriverKey, Value: strconv.FormatBool(onHost)},
		{Key: labels.DriverRootKey, Value: driverRoot},
		{Key: labels.DriverRootMountKey, Value: driverRootMount},
		{Key: labels.DevRootKey, Value: devRoot},
		{Key: labels.DevRootMountKey, Value: devRootMount},
	}
}
