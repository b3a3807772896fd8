package driver

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "driver"

// Operand is the driver.
func Operand() operand.Operand {
	return operand.Operand{
		Name:            Name,
		Images:          []image.Default{driverDefault, managerDefault, gdsDefault, gdrCopyDefault},
		Workloads:       []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Stage:           v1.StageDriver,
		UpdatesOnDelete: true,
		DaemonSet:       "nvidia-driver-daemonset",
		PerPool:         true,
		ServesPool:      servesPool,
		Placement:       placement,
		Decide:          decide,
		Instances:       instances,
		References:      references,
		Doubtful:        doubtful,
		DoubtfulOnPool:  doubtfulOnPool,
		Varies:          operand.VariesDriver,
	}
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.Driver.Enabled {
		return operand.Disabled("spec.driver.enabled")
	}
	if in.OpenShiftUnread != "" {
		return operand.Refuse(v1.ReasonReconcileFailed,
			"the driver stays as it is until the version and the proxy of OpenShift are read: "+in.OpenShiftUnread)
	}
	if refused := checkNVIDIADriverCRD(in); refused.Choice != operand.Install {
		return refused
	}
	if in.UsesNVIDIADrivers() && in.NodePool == nil {
		// Only the drivers of the objects are installed.
		return operand.Accept()
	}
	if refused := checkEnv(in); refused.Choice != operand.Install {
		return refused
	}
	if in.PoolCriteria().Kernel {
		return checkPrecompiled(in)
	}
	return operand.Accept()
}

func rdma(in operand.Input) bool { return *in.Spec.Driver.RDMA.Enabled }

// hostMOFED reports whether the host provides the network driver. It matters only with RDMA.
func hostMOFED(in operand.Input) bool { return rdma(in) && *in.Spec.Driver.RDMA.UseHostMOFED }

func gds(in operand.Input) bool { return *in.Spec.GDS.Enabled }

func gdrcopy(in operand.Input) bool { return *in.Spec.GDRCopy.Enabled }

func placement(in operand.Input) operand.Placement {
	placement := operand.Placement{PlacementSpec: in.Spec.Driver.PlacementSpec, Field: "spec.driver"}
	if in.NodePool != nil && in.NodePool.Driver != nil {
		placement.PodSecurityContext = in.NodePool.Driver.PodSecurityContext
	}
	return placement
}
