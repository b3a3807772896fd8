// Package fakegpu builds stand-ins for the part of NVIDIA's driver that programs load or run: libcuda.so.1,
// libnvidia-ml.so.1 and nvidia-smi. They are real libraries and a real program, in C, so that a test covers the
// loader, the symbols, the calling convention and the exit codes as on a node. The GPUs of libcuda.so.1 interpret
// PTX.
//
// Environment variables of the process under test describe the machine. Each is a list of words separated by spaces.
// For one that is not set, a file of that name beside the library counts, where words may also be on lines: so a test
// can change the machine of a process whose environment it does not make.
//
// FAKE_GPUS has a word for each GPU: "gpu", or "migN" for one in MIG mode with N MIG devices. One GPU if unset, none
// if empty. As with the real library, CUDA shows one MIG device, or no MIG device and all other GPUs;
// CUDA_VISIBLE_DEVICES, unique ids with commas between, selects.
//
// The version of the driver is that in the name of the file of libnvidia-ml.so.1, as where that is a link to
// libnvidia-ml.so.580.95.05, and 580.95.05 if the name has none.
//
// FAKE_MODEL is the model of all GPUs: a100, h100, which has MIG too, or t4, which has not. a100 if unset.
//
// FAKE_STATE is the directory of what the library writes, which processes with copies of it share; that of the library
// if unset.
//
// The MIG layout that a program has made by libnvidia-ml.so.1 is in the file FAKE_MIG there, which then counts instead
// of the words migN. Events of GPUs are lines of the file FAKE_XID. The names of functions that are called and that the
// library does not have are added to FAKE_UNKNOWN of the state: it exports all that NVIDIA's own programs may look up,
// as a symbol that is missing ends a program.
//
// FAKE_CUDA and FAKE_NVML set faults:
//
//	FUNCTION=CODE   the function fails with this code
//	hang:FUNCTION   it never returns
//	crash:FUNCTION  it crashes with SIGSEGV
//	on=INDEX        the faults only apply to the GPU with this index
//	WORD@INDEX      a code or a value for the GPU with this index only
//
// FAKE_HANGS is the path of a file that a process makes before it hangs.
//
// FAKE_NVML has the state of the GPUs, too; values below 0 are not supported by the GPU:
//
//	action=N, uncorrected=N, remap.pending=N, remap.failed=N, remap.correctable=N, remap.uncorrectable=N,
//	heat.nanos=N, brake.nanos=N         the fields of these meanings; 0 by default
//	sram, throttle=BITS                 the threshold for the errors of the SRAM is exceeded; why clocks are low
//	width=N, width.max=N, generation=N, generation.max=N   the PCIe link
//	nvlinks=N, nvlinks.down=N           how many NVLinks there are, and how many of them are down
//
// The file FAKE_HANDLES beside libnvidia-ml.so.1, if there is one, is locked by each process that has opened it.
//
// and FAKE_CUDA only:
//
//	count=N     cuDeviceGetCount returns this number
//	mode=N      the compute mode of the GPUs
//	wrong=I     number I of each result has its last bit flipped
//	overrun     the last thread writes beyond the data
//	threads=N   only the first N threads of a launch run
//	launches=N  only the first N launches run
package fakegpu
