// Package osrelease reads the operating system of the node from its os-release file.
package osrelease
