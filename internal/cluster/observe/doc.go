// Package observe owns reading the cluster: for a pass the policies, the Snapshot of DaemonSets and CRDs, and the
// objects that the spec refers to; for a node its facts and the operands' pods, by an index of the informer of pods.
// Package cachefilter trims the Nodes, pods and CRDs that the manager's cache stores.
//
// It writes nothing. Objects come from caches and are shared: callers must not modify them. What is rare or large is
// read from the API server: create failures, the schema of the ClusterPolicy CRD, which it compares with its own
// (schema.go), pods that use GPUs or that the kubelet refused, resource claims, drivers of NVIDIA's operator, logs of
// the MIG manager, and orphans.
package observe
