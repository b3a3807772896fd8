// Package controller has no code: its folders are the controllers, and its tests run both of them at a cluster without a
// control plane.
//
// # What is kept
//
// This is all state that one pass, or one reconcile of a node, leaves to the next. Each row may be lost at any time, as it
// is in a restart: what that costs stands beside it, and TestInMemoryStateMayBeLost loses each row. Nothing grows with nodes
// that are gone: TestNodeChurn.
//
//	| what                                   | by what it is replaced                         | lost, it costs                                 |
//	|----------------------------------------|------------------------------------------------|------------------------------------------------|
//	| fleet entries, one a node, with its    | each reconcile of the node; its Node is gone   | an assessment of each node; damping and        |
//	| plan (fleet.Fleet)                     |                                                | settling begin anew; a write that is refused   |
//	| basis, with the decisions              | another spec, references, toolkit images,      | an assessment of each node                     |
//	| (fleet.Basis)                          | DaemonSet or cause of missing pods             |                                                |
//	| plan (clusterpolicy.caches)            | other decisions, facts version, optional kinds | planning once more                             |
//	| objects, one set an operand            | other decisions, layouts, step, owner or live  | rendering and comparing once more              |
//	| (clusterpolicy.caches)                 | templates of the operand                       |                                                |
//	| records, one an object (apply.table)   | a call, its back-off, the live object's        | a comparison, a read of the Namespace, and an  |
//	|                                        | version; 32 turns without the object           | early call for each object that fails          |
//	| last writes of statuses                | each write; more than 16 policies              | an early write of the counters                 |
//	| (statuswriter.Writer)                  |                                                |                                                |
//	| causes of missing pods, and when to    | numbers of missing pods, by DaemonSet UID;     | a list of Events some seconds later, until     |
//	| look again (observe.CreateFailures)    | time                                           | which the cause is not reported                |
//	| what was told of the definition, and   | another definition or policy; the spec that    | an Event that there is already; a spec that    |
//	| since when a spec differs without an   | was last applied                               | has lost fields for good is applied later      |
//	| edit (clusterpolicy.schemaGuard)       |                                                |                                                |
//	| fields that the definition lacks       | resource version of the definition             | a read of the definition                       |
//	| (observe.Schema)                       |                                                |                                                |
//	| watches that come and go (Optional-    | definitions of the cluster; nodes that need    | a watch that is begun anew                     |
//	| Kinds, observe.DriverToolkit)          | the driver toolkit                             |                                                |
//	| refused changes of taints              | time                                           | an attempt that is refused                     |
//	| (node.refusals)                        |                                                |                                                |
//
// No decision follows from what else outlives a pass: the informers' caches, in which pods share equal parts
// (observe.PodTrimmer) and the work queues with their back-off; how many nodes the last pass saw, by which the next one
// waits for more events; the rate limits of Events (events.Recorder); the last pass and the counters that Prometheus reads
// (metrics.Meter), and the answers about who may read them (metricsauth).
package controller
