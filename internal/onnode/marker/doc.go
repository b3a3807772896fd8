// Package marker reads and writes the markers: the files in labels.ValidationsDir that a container writes once a part
// of the stack is validated on this node. Written by gpu-node validate, read by gpu-node wait and exec and, the
// driver's, by the entrypoints of NVIDIA's operand images.
//
// A marker is a list of shell assignments, one per line. Besides what the operands need it names when it was true: the
// boot of the node (BOOT_ID), the driver instance (DRIVER_INSTANCE, empty where there is none), and the time at which
// validation began (STARTED_AT). A reader refuses
//
//   - a marker of another boot;
//   - a marker whose DRIVER_INSTANCE differs from that in labels.DriverContainerReady. Where that file is
//     missing, the driver container of the marker has been stopped, and the next one is still being installed:
//     the marker is stale too.
//
// The driver's marker also names the kernel module that it was true for (DRIVER_MODULE). gpu-node wait and exec refuse
// it, and the markers that depend on it, while another version or none is loaded: the driver instance stays the same
// where the driver container starts again in its pod, and where a driver on the host is unloaded.
//
// NVIDIA's start-up probe writes no driver instance. The modification time of its file is used instead: each write
// means that the driver was loaded again, so that everything has to be validated again.
//
// A marker without BOOT_ID is one of NVIDIA's validator, whose driver-ready has five assignments and whose other files
// are empty. Such a file may be left over from an earlier driver, so it is trusted by its time only: it must not be
// older than the boot of the node (btime in labels.ProcStat) nor than labels.DriverContainerReady. Where the latter is
// missing, driver-ready must name a driver on the host, and any other file is trusted if driver-ready is. A
// driver-ready with a missing assignment, or whose last line does not end, is incomplete. There is a limit: a clock
// that was set back between a reboot and the marker is not noticed, unless the directory is in memory, as /run is.
package marker
