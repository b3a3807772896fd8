// Package fleet owns what the node controller and the pass share: an entry for each node, with its facts and
// assessment, and the Basis that nodes are assessed by, which is the decisions of the spec and the stack's DaemonSets.
// It also has the report of driver upgrades with an index of the nodes that these have to look at, the verdicts of
// health actions, the neighbours of each node, and which nodes read a configuration of the device plugin.
//
// Only the node controller writes entries; the pass aggregates them into the status of the policy. Only the pass
// publishes a Basis, and only the upgrade controller sets the report. The package makes no API calls, and its content
// may be lost: a restart fills it from the Nodes.
package fleet
