// Package host implements the machine of a simulated node on which the programs of its containers really run: a root
// file system in a temporary directory, and the processes of gpu-node.
//
// Containers are not isolated. Mounts of a container are directories of the machine, and the paths in gpu-node's
// arguments are replaced by those on this computer. A path that a container does not mount leads into an empty
// directory, as on a node.
//
// It does not cover mount propagation, user ids, capabilities and read-only mounts. The stand-in in
// test/simulator/standin replaces the programs of NVIDIA's images.
package host
