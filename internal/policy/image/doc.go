// Package image builds references of images from repository, name and version, and has the operator's own image. The
// default images of the operands are declared by the operands. It is pure.
package image
