// Package redact removes credentials from objects and texts that leave a cluster. It is pure, and reports what it has
// removed without the values.
//
// Values that may be anything are withheld as a whole: annotations of other domains, the data of Secrets, and the data
// of ConfigMaps unless the caller keeps it. Elsewhere credentials are found by their name and by their form. A
// credential that is found anywhere is then removed wherever else it appears, such as in a log.
package redact
