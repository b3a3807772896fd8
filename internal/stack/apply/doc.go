// Package apply is the only writer of the stack's objects: server-side apply with one field owner, and pruning of what
// is no longer rendered. Objects that already match are not written. The pass calls it after rendering. Calls run
// concurrently, each with its own deadline, so that one that hangs delays no other. Failed and altered writes are
// returned as errors and retried with back-off. It must not depend on single operands.
//
// It also adds and removes the finalizer of a policy, takes over the objects that NVIDIA's operator left, and labels
// the Namespace for Pod Security.
package apply
