package validate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// awaitContainer fails until the start-up probe of the driver container has passed.
func (d Driver) awaitContainer() error {
	path := filepath.Join(d.MarkersDir, labels.DriverContainerReady)
	if exists(path) {
		return nil
	}
	return awaitExistence(path, "the driver container on this node is not ready ("+
		labels.DriverContainerReady+" is missing); see the pod of the driver on this node")
}

// awaitDaemons fails while the driver container reports that its daemons are not up. A driver container without
// daemons reports nothing.
func (d Driver) awaitDaemons() error {
	path := filepath.Join(d.MarkersDir, labels.DriverDaemonsStatus)
	status := func() error {
		content, err := os.ReadFile(path)
		if state := bytes.TrimSpace(content); err == nil && string(state) != labels.DriverDaemonsReady {
			return fmt.Errorf(
				"the daemons of the driver container are not up (%s is %q); see the log of the driver container on this node",
				labels.DriverDaemonsStatus, firstLine(state))
		}
		return nil
	}
	if err := status(); err != nil {
		return &awaitFile{path: path, reason: err.Error(), until: status}
	}
	return nil
}

// extra is a kernel module that the driver container loads if it is configured to.
type extra struct {
	marker labels.Marker
	module string
	// key is the line in labels.DriverContainerReady that states this.
	key string
	// container is the container of the driver's pod that loads the module.
	container string
}

var extras = []extra{
	{labels.MarkerNvidiaFS, "nvidia_fs", labels.GDSEnabledKey, "nvidia-fs-ctr"},
	{labels.MarkerGDRCopy, "gdrdrv", labels.GDRCopyEnabledKey, "nvidia-gdrcopy-ctr"},
	{labels.MarkerPeerMem, "nvidia_peermem", labels.RDMAEnabledKey, "nvidia-peermem-ctr"},
}

// remedy returns the remedy if the module is not loaded.
func (e extra) remedy() string {
	return "see the container " + e.container + " in the pod of the driver on this node and the kernel log"
}

// Companions returns the markers of the modules that the driver container reports to load. Its driver is not ready
// before they are, because other containers wait for the driver only. They do not apply to a driver on the host.
func (d Driver) Companions() []Companion {
	companions := make([]Companion, 0, len(extras))
	for _, extra := range extras {
		companions = append(companions, Companion{Marker: extra.marker, Check: func(found []marker.Assignment) (bool, error) {
			if slices.Contains(found, marker.Assignment{Key: labels.IsHostDriverKey, Value: labels.True}) {
				return false, nil
			}
			container, err := marker.Dir{Path: d.MarkersDir}.Container()
			if err != nil {
				return false, err
			}
			enabled, err := container.Enabled(extra.key)
			if err != nil || !enabled {
				return false, err
			}
			if err := d.kernel().requireModule(extra.module, extra.remedy()); err != nil {
				// Another container of the pod builds it after the driver is ready.
				return false, pendingDependency{fmt.Errorf("the driver container has %s, but %w", extra.key, err)}
			}
			return true, nil
		}})
	}
	return companions
}
