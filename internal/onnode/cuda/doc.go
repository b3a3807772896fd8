// Package cuda validates that CUDA works: it runs a kernel on every GPU that libcuda.so.1 shows and checks the
// result. The kernel is PTX, which the driver itself compiles for the GPU, so that neither a CUDA toolkit nor a
// sample program is needed.
//
// The library is opened with dlopen, by its soname. The container runtime determines which file that is, when it
// injects the driver's libraries into a container, and this is what is validated.
//
// A program that imports this package is linked to the C library. The static gpu-node must not import it, and runs
// gpu-node-cuda instead.
//
// library.go binds the functions of libcuda.so.1, errors.go has causes and remedies for their error codes,
// validate.go visits the GPUs, device.go runs the kernel on one of them, kernel.go has its data.
package cuda
