// Package nfd runs the programs of Node Feature Discovery (NFD), nfd-master, nfd-worker and nfd-gc, as processes beside
// a test's control plane, on machines that are folders. What they write is compared with node discovery here, and
// package install migrates from them.
package nfd
