// Package controller has no code: its folders are the controllers, and its tests run those of the policy and of nodes
// without a control plane. clusterpolicy makes a pass over the policy and the stack; node assesses a node, and writes
// its labels, taints and condition; upgrade moves nodes to another driver or MIG layout; healthaction acts on faults of
// GPUs; neighbours looks for other software that uses GPUs. allnodes is the frame of upgrade and healthaction.
//
// # State
//
// This table lists all state that one pass, or one reconcile of a node, leaves to the next. Each row may be lost at any
// time, as in a restart; the last column is the cost. TestInMemoryStateMayBeLost discards the rows of the policy, of
// nodes and of the fleet. TestStateIsListed holds that no field is missing. No state of deleted nodes is kept:
// TestNodeChurn. The state of driver upgrades is on the Nodes and in one ConfigMap, and that of health actions on the
// Nodes; the specs of package upgrade lose its rows at each write.
//
// What is kept is a copy, never a pointer into the scope of a pass, a list or a log: that would keep all of it in
// memory. TestWhatWasReadIsReleased, and in each controller a test of its scopes, hold that; TestSoak and the soaks of
// the suites hold that no row grows with the number of passes. The sizes are of the heap, rounded up: those
// of entries, basis, plan, objects and records are measured with the nodes of the tests, the others follow from the
// types. Package manifest also remembers the objects of decoded files, 20 kB each, until 128 reads of others.
//
//	| state                            | replaced by               | size                   | cost of losing it        |
//	|----------------------------------|---------------------------|------------------------|--------------------------|
//	| fleet entries, one per node,     | a reconcile of the node,  | one per node: 5 kB;    | an assessment of each    |
//	| each with the node's plan        | or its deletion           | its labels are those   | node; dwell times start  |
//	| (Fleet.entries)                  |                           | of the cached Node     | again; a write that is   |
//	|                                  |                           |                        | rejected; pods that were |
//	|                                  |                           |                        | refused at the last      |
//	|                                  |                           |                        | boot, and stages in the  |
//	|                                  |                           |                        | join metrics, may not be |
//	|                                  |                           |                        | reported                 |
//	| which nodes driver upgrades have | a reconcile of the node,  | one name per such      | passes look at all nodes |
//	| to look at, and sums of all      | or its deletion; a new    | node, 0.1 kB; one sum  | until each was assessed  |
//	| others by group (Fleet.active,   | Basis                     | per group, and 0.1 kB  |                          |
//	| Fleet.rest)                      |                           | per node without GPUs  |                          |
//	| basis with the decisions         | a change of what nodes    | one, 30 kB; until a    | an assessment of each    |
//	| (Fleet.basis)                    | are assessed by: spec,    | node is assessed by it | node                     |
//	|                                  | references,               | the one before, too    |                          |
//	|                                  | NVIDIADrivers, OpenShift, |                        |                          |
//	|                                  | toolkit images,           |                        |                          |
//	|                                  | DaemonSets, reasons of    |                        |                          |
//	|                                  | missing pods, removal     |                        |                          |
//	| plan (Reconciler.caches)         | other decisions, facts    | one, with the facts of | one more planning        |
//	|                                  | version, optional kinds   | the nodes: 0.4 kB each |                          |
//	|                                  | or variants of live       |                        |                          |
//	|                                  | DaemonSets                |                        |                          |
//	| objects, one set per operand     | other decisions, layouts, | one per operand, 80 kB | one more rendering and   |
//	| (Reconciler.caches)              | optional kinds, step,     | in all, and more per   | comparison               |
//	|                                  | owner or live pod         | driver pool            |                          |
//	|                                  | templates                 |                        |                          |
//	| records, one per object          | a call, its back-off, a   | one per object, 160 kB | a comparison, a read of  |
//	| (apply.table)                    | new version of the live   | in all                 | the Namespace, and an    |
//	|                                  | object; 32 rounds or      |                        | early retry of each      |
//	|                                  | prunes without the object |                        | failing object           |
//	| last writes of statuses          | each write; more than 16  | 0.3 kB each: 5 kB, and | an early write of the    |
//	| (statuswriter.Writer,            | policies, or 1,024        | 300 kB                 | counters, or one pass    |
//	| DriverWriter)                    | NVIDIADrivers             |                        |                          |
//	| why MIG layouts failed, in the   | another state, layout or  | in the entry, at most  | a read of the log of     |
//	| fleet's entries (fleet.MIGCause) | pod of the MIG manager    | 0.4 kB                 | each node whose layout   |
//	|                                  |                           |                        | failed                   |
//	| reasons of missing pods, and the | numbers of missing pods,  | one per DaemonSet, 1   | a list of Events some    |
//	| time of the next list            | by DaemonSet UID; time    | kB                     | seconds later, and no    |
//	| (observe.CreateFailures)         |                           |                        | reason until then        |
//	| why pods do not start, and the   | number of unready pods;   | 0.4 kB for each pod    | a list of Events in the  |
//	| time of the next list            | the next list; time       | that fails             | first pass               |
//	| (observe.StartFailures)          |                           |                        |                          |
//	| what was reported about the CRD, | another CRD or policy;    | 0.3 kB                 | a repeated Event; a spec |
//	| and since when a spec differs    | the last applied spec     |                        | that has lost fields for |
//	| with the same generation         |                           |                        | good is applied later    |
//	| (Reconciler.schemaGuard)         |                           |                        |                          |
//	| a version of a policy that the   | time; another version     | 0.1 kB                 | objects that the garbage |
//	| API server does not have         |                           |                        | collector deletes again  |
//	| (Reconciler.deletedPolicy)       |                           |                        |                          |
//	| that nothing of NVIDIA's         | a DaemonSet of it         | a flag                 | a list of ConfigMaps     |
//	| operator is left                 |                           |                        |                          |
//	| (Reconciler.leftPruned)          |                           |                        |                          |
//	| that no driver of it is left     | a DaemonSet or a pod of   | a flag                 | a list of DaemonSets,    |
//	| (Reconciler.driversTakenOver)    | it                        |                        | and of pods, of drivers  |
//	| the finalizer that was added     | another policy            | 0.1 kB                 | a patch that is rejected |
//	| (Reconciler.addedFinalizer)      |                           |                        |                          |
//	| Events about objects that cannot | another generation; more  | 0.1 kB each, at most   | an Event that exists     |
//	| be decoded                       | than 1,024                | 100 kB                 | already                  |
//	| (Reconciler.undecodableEvents)   |                           |                        |                          |
//	| what was reported about NVIDIA's | another finding; its end  | 0.1 kB                 | a repeated log line      |
//	| operator                         |                           |                        |                          |
//	| (Reconciler.otherOperator)       |                           |                        |                          |
//	| its pod that was last found,     | a list of pods;           | one pod, 0.3 kB; one   | a list of pods; a review |
//	| whether the last list failed,    | DaemonSets; time          | per DaemonSet, 0.1 kB; | of each account; an      |
//	| its annotations, and which       |                           | one per account of     | earlier write of it      |
//	| accounts may write policies      |                           | such pods, 0.2 kB, at  | without a pod does not   |
//	| (Watcher.listed,                 |                           | most 200 kB            | count                    |
//	| Watcher.version, Watcher.found,  |                           |                        |                          |
//	| Watcher.seen, Watcher.failed,    |                           |                        |                          |
//	| Watcher.answers, Watcher.writes) |                           |                        |                          |
//	| fields that the CRD does not     | resource version of the   | the schema of the spec | a read of the CRD        |
//	| have (observe.Schema)            | CRD                       | if any is missing,     |                          |
//	|                                  |                           | some MB; else none     |                          |
//	| watches of optional kinds        | CRDs of the cluster;      | one per kind, with its | a watch that starts      |
//	| (OptionalKinds,                  | nodes that need the       | objects                | again                    |
//	| observe.DriverToolkit,           | driver toolkit            |                        |                          |
//	| observe.OpenShift,               |                           |                        |                          |
//	| observe.NVIDIADrivers)           |                           |                        |                          |
//	| rejected changes of taints       | the next one after their  | one per change within  | an attempt that is       |
//	| (Reconciler.taintBackoff)        | time                      | 30 s, 0.2 kB           | rejected                 |
//	| nodes that replace the pods      | new pods that are ready;  | as many nodes as may   | as many other nodes      |
//	| which read a changed             | time                      | do so at a time, 1 kB  | begin; a pod is replaced |
//	| configuration                    |                           | each                   | again                    |
//	| (Reconciler.rereads)             |                           |                        |                          |
//	| report of driver upgrades        | a pass over all nodes     | one per node with an   | the status has no        |
//	| (Fleet.upgrades)                 |                           | upgrade, 0.3 kB        | upgrades until the next  |
//	|                                  |                           |                        | pass                     |
//	| versions of nodes after driver   | the cached node; the node | one per node that was  | a write that is rejected |
//	| upgrades wrote them              | at rest, or its deletion  | just written, 0.1 kB   |                          |
//	| (memory.versions)                |                           |                        |                          |
//	| back-offs of nodes and of        | a call that succeeds;     | one per failing node   | an early attempt; the    |
//	| evictions that failed            | time; the end of the pod  | and per pod that is    | reason of a blocked pod  |
//	| (memory.failures,                | or node; the node at rest | not evicted, 0.2 kB    | is missing until then    |
//	| memory.rejected)                 |                           |                        |                          |
//	| that no slots are granted, how   | a slot; another number of | one per busy node, 0.1 | a read of the slots; an  |
//	| long pods are not read again,    | pods; time                | kB                     | early read of pods       |
//	| and nodes found busy for a MIG   |                           |                        |                          |
//	| layout (memory.mayHaveSlots,     |                           |                        |                          |
//	| memory.waited, memory.poll,      |                           |                        |                          |
//	| memory.busy)                     |                           |                        |                          |
//	| why calls for the slots are      | a call that succeeds; an  | 0.5 kB                 | another text of the same |
//	| refused (memory.refused)         | answer of another kind    |                        | cause in the status      |
//	| Events about blocked evictions,  | the node at rest, or its  | one per such node, 0.3 | an Event that exists     |
//	| and about annotations that were  | deletion; of annotations  | kB                     | already is recorded      |
//	| replaced (memory.blocked,        | the deletion alone        |                        | again                    |
//	| memory.replaced)                 |                           |                        |                          |
//	| pods of users that nodes wait    | two seconds; an eviction; | one per such node, 0.1 | an early read of pods    |
//	| for (memory.workloads)           | another version of the    | kB for each pod        |                          |
//	|                                  | node, its plan or basis   |                        |                          |
//	| verdicts of health actions, one  | a pass over all nodes     | one per node with a    | conditions with faults   |
//	| per node with an action          |                           | fault, 0.4 kB          | are written after the    |
//	| (Fleet.health)                   |                           |                        | next pass                |
//	| neighbours, one set per node     | a list of pods            | one per node with any, | a list of pods; until    |
//	| with any (Fleet.neighbours), as  |                           | 0.4 kB                 | then they count as       |
//	| they were last found, whether    |                           |                        | conditions show them,    |
//	| that failed, and when to look    |                           |                        | and a DRA driver that is |
//	| again (Watcher.last,             |                           |                        | gone counts as gone at   |
//	| Watcher.failed, Watcher.next)    |                           |                        | once                     |
//	| versions of nodes after health   | the cached node; a call   | one per node that was  | a write that is          |
//	| actions wrote them, back-offs of | that succeeds; time; the  | just written or fails, | rejected; an early       |
//	| nodes, and that nothing is to be | end of the node; actions  | 0.3 kB                 | attempt; one more pass;  |
//	| done (memory.versions,           | in the spec               |                        | a node whose action is   |
//	| memory.failures,                 |                           |                        | rejected keeps its place |
//	| memory.rejections, memory.idle)  |                           |                        | longer                   |
//	| nodes by the configuration of    | a reconcile of the node,  | one name per such      | a node more may read a   |
//	| the device plugin that they read | or its deletion           | node, 0.1 kB           | changed configuration at |
//	| (Fleet.readers)                  |                           |                        | a time                   |
//	| how many nodes are not assessed  | a reconcile of a node, or | four numbers           | an assessment of each    |
//	| or start, whether all are known, | its deletion              |                        | node; one more planning  |
//	| and the version of their facts   |                           |                        |                          |
//	| (Fleet.unassessed,               |                           |                        |                          |
//	| Fleet.starting, Fleet.hydrated,  |                           |                        |                          |
//	| Fleet.factsVersion)              |                           |                        |                          |
//	| nodes to assess again for health | their reconcile           | one name per such      | none: a start assesses   |
//	| actions and neighbours           |                           | node, 0.1 kB           | all nodes                |
//	| (Fleet.changedHealth,            |                           |                        |                          |
//	| Fleet.changedNeighbours)         |                           |                        |                          |
//	| equal verdicts and operands of   | others that are equal for | one of each, 2 kB      | memory, until they are   |
//	| entries (Fleet.sharedOperands,   | many nodes                |                        | equal again              |
//	| Fleet.sharedEssential)           |                           |                        |                          |
//	| reads that failed, with what was | a read that succeeds      | 0.2 kB each            | a repeated log line      |
//	| reported                         |                           |                        |                          |
//	| (Reconciler.failedReads)         |                           |                        |                          |
//	| whether the monitoring stack may | time                      | 0.2 kB                 | a read of the Namespace  |
//	| read metrics                     |                           |                        |                          |
//	| (Reconciler.monitoring)          |                           |                        |                          |
//	| the number of nodes in the last  | the next pass             | a number               | a pass that is a little  |
//	| pass, by which the debounce time |                           |                        | early or late            |
//	| is chosen (Reconciler.nodes)     |                           |                        |                          |
//
// No decision follows from other state that outlives a pass: the informers' caches with their indexes of pods
// (observe.PodIndex), in which pods share equal parts (cachefilter.PodTrimmer); the work queues with their back-off;
// the number of nodes in the last pass, which sets the debounce time; the rate limits of Events (events.Recorder); the
// last pass and the counters for Prometheus (metrics.Meter); and the answers about who may read these (metricsauth).
package controller
