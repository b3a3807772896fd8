// Package host is the machine of a simulated node on which the programs of its containers really run:
// a root file system in a temporary directory, and the processes of gpu-node.
//
// Containers are not isolated. What a container mounts is found in the machine's directories, and the
// paths that gpu-node would see are replaced by those on this computer, in its arguments alone. A
// path that a container does not mount leads into an empty directory, as it would on a node.
//
// It cannot show mount propagation, user ids, capabilities and read-only mounts. Programs of NVIDIA's
// images are played by the stand-in in test/simulator/standin.
package host
