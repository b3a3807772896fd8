//go:build linux

// Command run runs the tests of the bundle that package gpubundle assembles, on a machine of which nothing is known but
// that it runs Linux: as root, with or without the driver of NVIDIA's GPUs. It finds out what the machine allows, skips
// what it does not, ends after a time limit, and compares the machine with what it was before.
//
// The results are in a folder: summary.json and summary.txt, for each part its output and, where it writes them,
// results of its own.
package main
