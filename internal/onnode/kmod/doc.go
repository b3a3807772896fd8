// Package kmod reports which kernel modules of the node are loaded. Every container sees them in its /sys.
package kmod
