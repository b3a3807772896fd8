// Package observe reads the cluster: for a pass the policies, a Snapshot of DaemonSets and definitions, and what the
// spec refers to; for a node its facts and the operands' pods there. It trims what enters the caches, and its predicates
// decide which events matter. Reads come from the caches, and what they return is shared with these: it must not be
// changed. Create failures, the whole definition of ClusterPolicy and the pods that use a GPU are read from the API server.
package observe
