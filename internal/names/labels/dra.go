package labels

import "strings"

const (
	// DRADriver is the name of NVIDIA's driver for dynamic resource allocation, in the allocations of resource claims.
	DRADriver = "gpu.nvidia.com"
	// draResourcePrefix starts the extended resource that each DeviceClass implies, before its name.
	draResourcePrefix = "deviceclass.resource.kubernetes.io/"
)

// IsDRAResource reports whether an extended resource is implied by a DeviceClass that NVIDIA's DRA driver installs for
// GPUs: gpu.nvidia.com, mig.nvidia.com and vfio.gpu.nvidia.com.
func IsDRAResource(name string) bool {
	class, implied := strings.CutPrefix(name, draResourcePrefix)
	return implied && (class == DRADriver || class == "mig.nvidia.com" || class == "vfio."+DRADriver)
}
