// Package drivertoolkit determines for which nodes OpenShift's driver toolkit builds the driver, and what of it the
// cluster is missing. It is pure, and looks up no image: package observe reads the ImageStream, and the operand driver
// chooses the image for the release of a node.
package drivertoolkit
