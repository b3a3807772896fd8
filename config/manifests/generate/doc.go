// Command generate writes the bundle for the Operator Lifecycle Manager (OLM) from the rest of the repository: the
// objects of config/manifests, the fields of the API, the images of the code and the supported versions of Kubernetes.
// So the bundle stays in sync with them. make bundle runs it.
//
// The format is registry+v1. OLM itself creates the ServiceAccounts, roles and bindings from the permissions of the
// ClusterServiceVersion, and installs further objects of a few kinds; see carried.
package main
