// Package marker reads and writes the markers: the files in labels.ValidationsDir that tell that
// a part of the stack works on this node. Written by gpu-node validate, read by gpu-node wait and
// exec and, the driver's, by the entrypoints of NVIDIA's operand images.
//
// A marker is a list of shell assignments, one a line. Besides what the operands need it carries a
// proof of when it was true: the boot of the node (BOOT_ID) and the instance of the driver
// container (DRIVER_INSTANCE, empty where no driver container names one). A reader refuses
//
//   - a marker without BOOT_ID, which any other program's marker is: it may be left over from a
//     driver that is gone;
//   - a marker of another boot;
//   - a marker whose DRIVER_INSTANCE is not the one that labels.DriverContainerReady names now.
//     Where that file is missing, the driver container that a marker names has been stopped, and
//     the next one is still being installed: this marker is stale too.
package marker
