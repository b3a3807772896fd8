//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// needed are the controllers of cgroup v1 that a kubelet and runc require.
var needed = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}

// Available returns why no real node can run here, in one sentence; nil if one can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("a real node needs root")
	}
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, controller := range needed {
		if !slices.ContainsFunc(hierarchies,
			func(h hierarchy) bool { return slices.Contains(strings.Split(h.options, ","), controller) }) {
			return fmt.Errorf("a real node needs the controller %s of cgroup v1, which is not mounted here", controller)
		}
	}
	types, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("find out what the kernel can mount: %w", err)
	}
	if !slices.Contains(strings.Fields(string(types)), "overlay") {
		return errors.New("a real node needs the file system overlay, which this kernel does not have")
	}
	return nil
}
