// Package packaged reads what the packages of the operator install: the chart by the real Helm, and the bundle as the
// Operator Lifecycle Manager (OLM) reads it. It only uses their files.
package packaged
