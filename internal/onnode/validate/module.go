package validate

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// Module is the Check of a module that the driver's pod loads besides the driver: that of
// labels.MarkerNvidiaFS, labels.MarkerGDRCopy or labels.MarkerPeerMem. sysRoot is where sysfs is
// mounted here. Any other marker has no such check: then it is nil.
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

// MOFED proves that the Mellanox driver (MLNX_OFED, DOCA) is there, which GPUDirect RDMA needs. Where
// it is not needed the check passes at once.
type MOFED struct {
	// RDMA tells that GPUDirect RDMA is wanted: spec.driver.rdma.enabled.
	RDMA bool
	// OnHost tells that the host has the Mellanox driver: spec.driver.rdma.useHostMofed. If not,
	// NVIDIA's network operator brings it in a pod.
	OnHost bool
	// ReadyFile is the file by which that pod tells that it is ready; labels.MOFEDReady if empty.
	ReadyFile string
	// SysRoot is where sysfs is mounted here; /sys if empty.
	SysRoot string
	// Log is told why there is nothing to prove.
	Log *slog.Logger
}

// Check is a Check.
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
		m.Log.Info("the Mellanox driver is not needed", "because", "the node has no network adapter of Mellanox")
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
