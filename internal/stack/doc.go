// Package stack has no code; its folders answer what a policy makes of a cluster: package plan decides for each
// operand and node, package render makes the objects, package rollout decides what they keep of live ones so that no
// pod is replaced needlessly, and package apply writes them. Packages nvidiadriver and drivertoolkit decide the same
// for drivers.
//
// All are pure but apply, which is the only writer of the stack's objects.
//
// Begin with package plan.
package stack
