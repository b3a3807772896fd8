//go:build linux

// Command gpubundle assembles what a machine with GPUs needs to run the operator on one node, into a folder and, on
// request, an archive of it. Such a machine may have no network, no Go and no C compiler: only root and a driver.
//
// The folder is laid out as this repository with its cache, so that the tests in it find what they find here: programs
// in .cache, manifests in config, and the go.mod files that name the versions of the programs. The program in the
// folder run is what the machine starts.
package main
