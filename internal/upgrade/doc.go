// Package upgrade plans driver upgrades. It is pure: nodes, their pods, the policies, the granted slots and the time
// in; the next steps and a report out. Package controller/upgrade reads the input and carries out the steps.
//
// The state of an upgrade is on its Node: the label of NVIDIA's operator, and the Record in an annotation. Each
// transition is one patch of the Node with the preconditions UID and resourceVersion. Slots limit how many nodes are
// upgraded at a time; they are granted through one ConfigMap with a resourceVersion precondition, before the patch that
// uses the slot. So a crash between two writes, and a second manager, can neither exceed the limits nor lose a node.
//
// MIG layouts that the operator changes have slots of the same budgets. A node whose pods are evicted for one has a
// Drain in another annotation, written in the same way.
//
// # Room
//
// A driverPlan plans the upgrade of one node, and a layoutPlan its MIG layout. Both drain the node by the folder drain.
// The folder gpuuse decides which pods use GPUs: those that keep a node from its upgrade, a new MIG layout or its
// removal. Begin with Cluster.Plan.
package upgrade
