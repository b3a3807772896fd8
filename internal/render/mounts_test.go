package render_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A file that is mounted by itself is that of the pod's start, though an upgrade of the host has put another
// one into its place since; and where it is missing, the pod does not start.
func TestNodeDiscoveryMountsDirectories(t *testing.T) {
	for _, ds := range (situation{}).daemonSets(t)["node-discovery"] {
		for _, volume := range ds.Spec.Template.Spec.Volumes {
			switch source := volume.HostPath; {
			case source == nil:
			case source.Type == nil, *source.Type != corev1.HostPathDirectory && *source.Type != corev1.HostPathDirectoryOrCreate:
				t.Errorf("the volume %s mounts %s, which need not be a directory", volume.Name, source.Path)
			}
		}
	}
}
