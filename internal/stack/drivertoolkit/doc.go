// Package drivertoolkit determines for which nodes OpenShift's driver toolkit builds the driver, and what of it the
// cluster is missing. It is pure.
package drivertoolkit
