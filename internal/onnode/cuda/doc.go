// Package cuda proves that CUDA works: it runs a kernel on every GPU that libcuda.so.1 shows and
// checks the numbers. The kernel is PTX text, which the driver itself compiles for the GPU, so that
// neither a CUDA toolkit nor a sample program is needed.
//
// The library is opened with dlopen, by its soname: which file that is, the container runtime
// decides when it puts the driver's libraries into a container. That is what is to be proven.
//
// A program that imports this package is linked to the C library. So gpu-node, which is static,
// must not; it runs gpu-node-cuda.
//
// library.go binds the functions of libcuda.so.1, errors.go puts their error codes into words,
// prove.go visits the GPUs, device.go runs the kernel on one of them, kernel.go has its numbers.
package cuda
