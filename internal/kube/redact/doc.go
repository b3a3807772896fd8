// Package redact removes credentials from objects and texts that leave a cluster. It is pure, and reports what it has
// removed without the values.
//
// Where a value may be anything, it is withheld as a whole, unless its place is known to be harmless: annotations of
// others, and the contents of ConfigMaps. Elsewhere credentials are found by their name and by their form. A credential
// that is found anywhere is then removed wherever else it appears, such as in a log.
package redact
