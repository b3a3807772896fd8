package cuda

import "fmt"

// result is a CUresult, the status that each function of libcuda.so.1 returns.
type result int32

// The results that this package handles. See remedies for the others.
const (
	success           result = 0
	outOfMemory       result = 2
	deviceUnavailable result = 46
)

// remedies has the cause, as far as the result shows it, and the remedy of the results. The numbers are the contract
// of libcuda.so.1, the same in all its versions.
var remedies = map[result]string{
	outOfMemory: "there is no memory left; raise the memory limit of this container if it has one, and see the kernel log",
	34:          "this libcuda.so.1 is the stub of a CUDA toolkit; remove the directory of stubs from LD_LIBRARY_PATH",
	// In other compute modes this is no failure: see inUse.
	deviceUnavailable: "the GPU refuses work; see the kernel log for Xid errors and reset the GPU",
	100: "there is no GPU for CUDA here; check NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES of this container, " +
		"the log of the container toolkit on this node, and where MIG is enabled that MIG devices exist",
	101: "a GPU that is listed cannot be opened; see the kernel log for Xid errors",
	209: "the driver does not support this GPU; install a driver branch that does",
	214: "the GPU's memory has an error that cannot be corrected; see the kernel log, reset the GPU, and have it " +
		"replaced if this repeats",
	218: "the driver's compiler refuses the kernel; reinstall the driver, whose files may be of several versions",
	220: "the NVLink of the GPU has an error that cannot be corrected; see the kernel log and reset the GPU",
	221: "the driver's compiler, libnvidia-ptxjitcompiler.so.1, is not in this container; reinstall the driver, " +
		"then restart the container toolkit on this node",
	222: "the driver is too old for this kernel; install a driver of a branch that is still supported",
	223: "the environment variable CUDA_DISABLE_JIT or CUDA_DISABLE_PTX_JIT disables the compiler; unset it",
	304: "a system call of the driver fails; check that /dev/nvidia-uvm and /dev/nvidiactl are in this container and " +
		"can be opened",
	702: "the kernel does not end in time; see the kernel log for Xid errors and reset the GPU",
	801: "the GPU or its virtualisation does not support CUDA; check its mode and the licence of a vGPU",
	802: "the GPUs are not ready; check that the fabric manager runs on this node and is of the driver's version " +
		"(NVSwitch, NVLink), and in confidential computing that the GPUs are set to ready",
	803: "the kernel module and the driver's libraries differ in version; after a driver update restart the container " +
		"toolkit on this node, or reboot the node",
	804: "the CUDA compatibility libraries hide those of the driver, and this GPU does not support them; use an image " +
		"without cuda-compat",
	805: "the MPS server cannot be reached; check the MPS control daemon on this node",
	807: "the MPS server is not ready; check the MPS control daemon on this node",
	999: "unknown to the driver itself; check that the module nvidia_uvm is loaded and see the kernel log for Xid errors",
}

// otherRemedy is for all other results: mostly those of a kernel that failed.
const otherRemedy = "see the kernel log for Xid errors, and reset the GPU or reboot the node"

// failure is a function of libcuda.so.1 that failed.
type failure struct {
	function string
	code     result
	// name is the library's name of the code, such as CUDA_ERROR_NO_DEVICE.
	name string
}

// what returns the function and the error, without a remedy.
func (f *failure) what() string { return fmt.Sprintf("%s: %s (%d)", f.function, f.name, f.code) }

func (f *failure) Error() string {
	remedy, known := remedies[f.code]
	if !known {
		remedy = otherRemedy
	}
	return fmt.Sprintf("%s fails with %s (%d): %s", f.function, f.name, f.code, remedy)
}
