// Package controller has no code: its folders are the controllers, and its tests run those of the policy and of nodes
// without a control plane.
//
// # State
//
// This table lists all state that one pass, or one reconcile of a node, leaves to the next. Each row may be lost at any
// time, as in a restart; the last column is the cost. TestInMemoryStateMayBeLost discards each row. No state of deleted
// nodes is kept: TestNodeChurn. The state of driver upgrades is on the Nodes and in one ConfigMap, and that of health
// actions on the Nodes; the specs of package upgrade lose its rows at each write.
//
//	| state                                  | replaced by                         | cost of losing it                  |
//	|----------------------------------------|-------------------------------------|------------------------------------|
//	| fleet entries, one per node, each with | a reconcile of the node, or its     | an assessment of each node; dwell  |
//	| the node's plan (fleet.Fleet)          | deletion                            | times start again; a write that is |
//	|                                        |                                     | rejected                           |
//	| basis with the decisions (fleet.Basis) | a change of spec, references,       | an assessment of each node         |
//	|                                        | toolkit images, DaemonSets or       |                                    |
//	|                                        | reasons of missing pods             |                                    |
//	| plan (clusterpolicy.caches)            | other decisions, facts version or   | one more planning                  |
//	|                                        | optional kinds                      |                                    |
//	| objects, one set per operand           | other decisions, layouts, step,     | one more rendering and comparison  |
//	| (clusterpolicy.caches)                 | owner or live pod templates         |                                    |
//	| records, one per object (apply.table)  | a call, its back-off, a new version | a comparison, a read of the        |
//	|                                        | of the live object; 32 rounds or    | Namespace, and an early retry of   |
//	|                                        | prunes without the object           | each failing object                |
//	| last writes of statuses                | each write; more than 16 policies   | an early write of the counters     |
//	| (statuswriter.Writer, DriverWriter)    |                                     |                                    |
//	| why MIG layouts failed, in the fleet's | another state, layout or pod of the | a read of the log of each node     |
//	| entries (fleet.MIGCause)               | MIG manager                         | whose layout failed                |
//	| reasons of missing pods, and the time  | numbers of missing pods, by         | a list of Events some seconds      |
//	| of the next list                       | DaemonSet UID; time                 | later, and no reason until then    |
//	| (observe.CreateFailures)               |                                     |                                    |
//	| what was reported about the CRD, and   | another CRD or policy; the last     | a repeated Event; a spec that has  |
//	| since when a spec differs with the     | applied spec                        | lost fields for good is applied    |
//	| same generation                        |                                     | later                              |
//	| (clusterpolicy.schemaGuard)            |                                     |                                    |
//	| a version of a policy that the API     | time; another version               | objects that the garbage collector |
//	| server does not have                   |                                     | deletes again                      |
//	| (clusterpolicy.deletedPolicy)          |                                     |                                    |
//	| that nothing of NVIDIA's operator is   | a DaemonSet of it, or a rollout     | a list of ConfigMaps               |
//	| left (clusterpolicy.leftPruned)        |                                     |                                    |
//	| that no driver of it is left           | a DaemonSet or a pod of it          | a list of DaemonSets, and of pods, |
//	| (clusterpolicy.driversTakenOver)       |                                     | of drivers                         |
//	| the finalizer that was added           | another policy                      | a patch that is rejected           |
//	| (clusterpolicy.addedFinalizer)         |                                     |                                    |
//	| what was reported about NVIDIA's       | another finding; its end            | a repeated log line                |
//	| operator (clusterpolicy.Reconciler)    |                                     |                                    |
//	| its pod that was last found, and its   | a list of pods; DaemonSets          | a list of pods; an earlier write   |
//	| annotations (otheroperator.Watcher)    |                                     | of it without a pod does not count |
//	| fields that the CRD does not have      | resource version of the CRD         | a read of the CRD                  |
//	| (observe.Schema)                       |                                     |                                    |
//	| watches of optional kinds              | CRDs of the cluster; nodes that     | a watch that starts again          |
//	| (OptionalKinds, observe.DriverToolkit, | need the driver toolkit             |                                    |
//	| observe.NVIDIADrivers)                 |                                     |                                    |
//	| rejected changes of taints             | time                                | an attempt that is rejected        |
//	| (node.taintBackoff)                    |                                     |                                    |
//	| nodes that replace the pods which read | new pods that are ready; time       | as many other nodes begin; a pod   |
//	| a changed configuration (node.rereads) |                                     | is replaced again                  |
//	| versions of nodes after driver         | the cached node; its deletion       | a write that is rejected           |
//	| upgrades wrote them (upgrade.memory)   |                                     |                                    |
//	| back-offs of nodes and of evictions    | a call that succeeds; time; the end | an early attempt; the reason of a  |
//	| that failed (upgrade.memory)           | of the node or the pod              | blocked pod is missing until then  |
//	| that no slots are granted, and how     | a slot; another number of pods      | a read of the slots; an early read |
//	| long pods are not read again           |                                     | of pods                            |
//	| (upgrade.memory)                       |                                     |                                    |
//	| verdicts of health actions, one per    | a pass over all nodes               | conditions with faults are written |
//	| node with an action (fleet.Fleet)      |                                     | after the next pass                |
//	| neighbours, one set per node with any  | a list of pods                      | a list of pods; until then they    |
//	| (fleet.Fleet), and when to look again  |                                     | count as conditions show them      |
//	| (neighbours.Watcher)                   |                                     |                                    |
//	| versions of nodes after health actions | the cached node; a call that        | a write that is rejected; an early |
//	| wrote them, back-offs of nodes, and    | succeeds; time; the end of the      | attempt; one more pass             |
//	| that nothing is to be done             | node; actions in the spec           |                                    |
//	| (healthaction.memory)                  |                                     |                                    |
//
// No decision follows from other state that outlives a pass: the informers' caches, in which pods share equal parts
// (cachefilter.PodTrimmer); the work queues with their back-off; the number of nodes in the last pass, which sets the
// debounce time; the rate limits of Events (events.Recorder); the last pass and the counters for Prometheus
// (metrics.Meter); and the answers about who may read these (metricsauth).
package controller
