package validate

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Module returns the Check of a module that the driver's pod loads besides the driver: that of labels.MarkerNvidiaFS,
// labels.MarkerGDRCopy or labels.MarkerPeerMem. It returns nil for any other marker. sysRoot is where sysfs is mounted
// here.
func Module(component labels.Marker, sysRoot string) Check {
	for _, extra := range extras {
		if extra.marker == component {
			return func(context.Context) ([]marker.Assignment, error) {
				return nil, kernel{sys: sysRoot}.requireModule(extra.module, extra.remedy())
			}
		}
	}
	return nil
}

// MOFED validates that the Mellanox driver (MLNX_OFED, DOCA) is loaded, which GPUDirect RDMA needs. If it is not
// needed the check passes immediately.
type MOFED struct {
	// RDMA is set if GPUDirect RDMA is requested: spec.driver.rdma.enabled.
	RDMA bool
	// OnHost is set if the host has the Mellanox driver: spec.driver.rdma.useHostMofed. If not, a pod of
	// NVIDIA's network operator installs it.
	OnHost bool
	// ReadyFile is the file that this pod writes once it is ready; labels.MOFEDReady if empty.
	ReadyFile string
	// SysRoot is where sysfs is mounted here; /sys if empty.
	SysRoot string
	// Log gets the reason if there is nothing to validate.
	Log *slog.Logger
}

// Check implements Check.
func (m MOFED) Check(context.Context) ([]marker.Assignment, error) {
	kernel := kernel{sys: cmp.Or(m.SysRoot, "/sys")}
	if !m.RDMA {
		m.Log.Info("the Mellanox driver is not needed", "because", "GPUDirect RDMA is not enabled")
		return nil, nil
	}
	needed, err := kernel.hasMellanoxNIC()
	if err != nil {
		return nil, err
	}
	if !needed {
		m.Log.Info("the Mellanox driver is not needed", "because", "the node has no Mellanox network adapter")
		return nil, nil
	}
	if m.OnHost {
		return nil, kernel.requireModule("mlx5_core",
			"install the Mellanox driver on the host, or set spec.driver.rdma.useHostMofed to false")
	}
	path := cmp.Or(m.ReadyFile, labels.MOFEDReady)
	if exists(path) {
		return nil, nil
	}
	return nil, awaitExistence(path, "the Mellanox driver on this node is not ready ("+path+
		" is missing); see the driver pod of NVIDIA's network operator on this node, or set spec.driver.rdma.useHostMofed "+
		"to true if the host has the driver")
}
