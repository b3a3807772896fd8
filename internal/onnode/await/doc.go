// Package await blocks until parts of the GPU stack work on this node: until their markers can be trusted, or the
// driver container of the pod is up.
package await
