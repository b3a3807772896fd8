// Package marker reads and writes the markers: the files in labels.ValidationsDir that tell that
// a part of the stack works on this node. Written by gpu-node validate, read by gpu-node wait and
// exec and, the driver's, by the entrypoints of NVIDIA's operand images.
//
// A marker is a list of shell assignments, one a line. Besides what the operands need it carries a
// proof of when it was true: the boot of the node (BOOT_ID) and the instance of the driver
// container (DRIVER_INSTANCE, empty where there is none), and since when its prover had been trying
// (STARTED_AT). A reader refuses
//
//   - a marker of another boot;
//   - a marker whose DRIVER_INSTANCE is not the one that labels.DriverContainerReady names now.
//     Where that file is missing, the driver container that a marker names has been stopped, and
//     the next one is still being installed: this marker is stale too.
//
// NVIDIA's start-up probe names no instance. The time of its file stands in for the name: whoever
// writes it has loaded the driver anew, and what was proven before is to be proven again.
//
// A marker without BOOT_ID is one of NVIDIA's validator, whose driver-ready has five assignments and
// whose other files are empty. Such a file may be left over from a driver that is gone, so it is
// trusted only on the evidence of times. It must not be older than the boot of the node (btime in
// labels.ProcStat) nor than labels.DriverContainerReady. Where the latter is missing, driver-ready
// must tell of a driver on the host, and any other file is as good as driver-ready is. A driver-ready
// without all of its assignments, or whose last line does not end, is half written. The evidence has
// a limit: a clock that was set back between a reboot and the marker is not noticed, unless the
// directory is in memory, as /run is.
package marker
