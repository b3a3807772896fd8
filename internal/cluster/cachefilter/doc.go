// Package cachefilter owns what the manager's cache stores and which of its events start a reconcile: the transforms
// that trim Nodes, pods and CRDs to the fields that the operator reads, and the predicates that drop events which
// change no result.
//
// It makes no API calls. Package observe has the caches of referenced objects and of the driver toolkit, and trims
// those itself.
package cachefilter
