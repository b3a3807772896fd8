// Package fakegpu builds stand-ins for the part of NVIDIA's driver that programs load or run:
// libcuda.so.1, libnvidia-ml.so.1 and nvidia-smi. They are real libraries and a real program, in C,
// so that a test takes the same way as on a node: the loader, the symbols, the calling convention,
// the exit codes. The GPUs of libcuda.so.1 interpret the PTX they are given.
//
// Environment variables of the process under test tell what the machine is like. Each is a list of
// words separated by spaces.
//
// FAKE_GPUS has a word for each GPU: "gpu", or "migN" for one in MIG mode with N MIG devices. One
// GPU if unset, none if empty. As with the real library, CUDA shows one MIG device, or no MIG device
// and all other GPUs; CUDA_VISIBLE_DEVICES, unique ids with commas between, chooses.
//
// FAKE_CUDA and FAKE_NVML have the faults:
//
//	FUNCTION=CODE   the function fails with this code
//	hang:FUNCTION   it never returns
//	crash:FUNCTION  it dies of SIGSEGV
//	on=INDEX        all of this only concerns the GPU with this index
//
// and FAKE_CUDA only:
//
//	count=N     cuDeviceGetCount says so many
//	mode=N      the compute mode of the GPUs
//	wrong=I     number I of each result has its last bit flipped
//	overrun     the last thread writes although it is beyond the data
//	threads=N   only the first N threads of a launch run
//	launches=N  only the first N launches run
package fakegpu
