// Package render turns a step of the plan and the operand's assets into typed objects. It is pure: it never calls the
// API server, and its output depends only on the plan and on the live DaemonSets that the pass has read. In the pass it
// comes after package plan and before package apply.
//
// It adds what all operands have in common: namespace, owner, labels, scheduling, update strategy, pull secrets, the
// wait for other operands on the node, and the scrape settings of ServiceMonitors.
//
// A pod is composed in this order: the DaemonSet in the operand's folder; shared init containers that write a marker
// (assets/*.yaml); the containers in files of their own (assets/OPERAND/containers) that the instance names, with their
// volumes; volumes and settings of containers that the instance adds. A name that does not exist is an error.
package render
