// Package previews compares what kubectl gpu render and plan print with what the operator then applies or has applied,
// on a real API server: for random policies, NVIDIADrivers, nodes with and without the labels of a running operator,
// and objects that policies name. Nothing else acts on the objects: there are no controllers, and no pod but those that
// a case creates.
//
// Each case is made from its seed alone. Its differences are none, or each is named by what was printed before.
package previews
