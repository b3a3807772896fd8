// Package runenv starts an operand with the environment that the driver's marker describes: what the shell
// entrypoints of NVIDIA's images do with "set -o allexport; . driver-ready", without a shell and without
// evaluating anything.
//
// It contains the driver's root as the operand and as the host see it (DRIVER_ROOT_CTR_PATH,
// NVIDIA_DRIVER_ROOT), and the same for /dev (DEV_ROOT_CTR_PATH, NVIDIA_DEV_ROOT). The entrypoints of some
// operands derive more on the node, which rules do here:
//
//   - device plugin: GDRCOPY_ENABLED from the module gdrdrv; GDS_ENABLED and MOFED_ENABLED from nvidia_fs. The
//     plugin then passes those devices to the pods that request a GPU.
//   - MIG manager: WITH_SHUTDOWN_HOST_GPU_CLIENTS from IS_HOST_DRIVER. With a driver on the host it must stop
//     the host's own services (DCGM, persistenced) before it can change the GPUs.
//
// LD_LIBRARY_PATH is left out on purpose. The operands load the driver's libraries either from where the
// container runtime injects them or by their full path below DRIVER_ROOT_CTR_PATH, and the MIG manager changes
// its root to it. A library path into the driver's root would make the operand's own programs load the C library
// of the driver's image, which is of another version.
package runenv
