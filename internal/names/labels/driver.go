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

// ModuleFiles returns the names of the files with parameters of kernel modules that the driver container reads, one for
// each module. They are keys of the ConfigMap in spec.driver.kernelModuleConfig.
func ModuleFiles() []string {
	return []string{"nvidia.conf", "nvidia-uvm.conf", "nvidia-modeset.conf", "nvidia-peermem.conf"}
}
