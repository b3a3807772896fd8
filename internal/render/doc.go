// Package render is pure: it turns a step of the plan and the operand's assets into typed objects.
// What all operands have in common is added here, once: namespace, owner, labels, scheduling, update strategy, pull
// secrets, the wait for what comes first on the node, and the scrape settings of ServiceMonitors.
//
// A pod is composed in this order: the DaemonSet of the operand's folder; shared init containers that write a marker
// (assets/*.yaml); the containers in files of their own (assets/OPERAND/containers) that the instance names, with their
// volumes; volumes and settings of containers that the instance adds. Assets are decoded strictly, and a name that does
// not exist is an error.
package render
