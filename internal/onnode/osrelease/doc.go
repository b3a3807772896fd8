// Package osrelease reads which operating system runs on the node, from its file os-release.
package osrelease
