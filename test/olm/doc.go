// Package olm checks the bundle by the validators that the Operator Lifecycle Manager publishes, those that its tools
// do not run by default among them. It is a module of its own, so that their dependencies stay out of the operator's.
package olm
