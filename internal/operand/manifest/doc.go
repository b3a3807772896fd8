// Package manifest turns an operand's folder of assets and values into typed objects, and owns the list of kinds that
// assets may have. It is pure.
//
// Assets are templates that insert values and leave out parts by flags; they are parsed once. They are decoded
// strictly: a missing key, an unknown field or an unsupported kind is an error.
package manifest
