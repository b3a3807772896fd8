package labels

import "strings"

// DriverOf returns the version of a node's driver by its labels, of which older releases of GPU Feature Discovery write
// only the parts; empty if it has reported none. It ends before the first part that is missing.
func DriverOf(node map[string]string) string {
	if version := node[DriverVersion]; version != "" {
		return version
	}
	var parts []string
	for _, key := range []string{DriverMajor, DriverMinor, DriverRevision} {
		part := node[key]
		if part == "" {
			break
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ".")
}
