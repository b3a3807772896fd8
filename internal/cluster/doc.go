// Package cluster has no code; its folders answer what the operator knows of the cluster: package cachefilter what the
// caches keep and which events wake a controller, package observe what is read for a pass or a node, and package fleet
// what the controllers share in memory.
//
// The controllers, the manager, status and the commands of kubectl gpu import them. They have no client but readers.
//
// Begin with package fleet: its entries are what all verdicts of the status are made of.
package cluster
