// Package observe owns reading the cluster: for a pass the policies, the Snapshot of DaemonSets and CRDs, and the
// objects that the spec refers to; for a node its facts and the operands' pods, by an index of the informer of pods.
// Package cachefilter trims what the manager's cache stores.
//
// It makes no decisions and no writes. Objects come from caches and are shared: callers must not modify them. Only
// create failures, the schema of the ClusterPolicy CRD, pods that use GPUs, and orphans are read from the API server.
package observe
