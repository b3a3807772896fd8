// Package stack has no code; its folders answer what a policy makes of a cluster: package plan decides for each
// operand and node, package render makes the objects, package rollout decides what they keep of live ones so that no
// pod is replaced needlessly, and package apply writes them. Package nvidiadriver converts NVIDIADriver objects into
// node pools and back; package drivertoolkit determines for which nodes OpenShift's driver toolkit builds the driver.
//
// All are pure but apply, which is the only writer of the stack's objects.
//
// Begin with package plan.
package stack
