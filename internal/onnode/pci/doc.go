// Package pci reads the PCI devices of the node, and reports when they change. It needs no privilege: a
// container's /sys shows the devices of the node, and any user may listen to the kernel's events.
package pci
