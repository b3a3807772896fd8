// Command generate writes the bundle for the Operator Lifecycle Manager (OLM) from what the rest of the
// repository installs: the objects of config/manifests, the images of the code and the supported versions of
// Kubernetes. So the bundle cannot drift away from them. make bundle runs it.
//
// The format is registry+v1. OLM itself makes the accounts, roles and bindings from the permissions of the
// ClusterServiceVersion, and takes further objects of a few kinds beside it; see carried.
package main
