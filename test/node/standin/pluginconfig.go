//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// How GPUs are shared.
const (
	sharingNone = "none"
	sharingTime = "time-slicing"
	sharingMPS  = "mps"
)

// sharing is what the configuration of the device plugin has about shared GPUs.
type sharing struct {
	strategy string
	// replicas is how often a device of each resource is advertised.
	replicas map[string]int
	// failAbove: a container may request only one share. renamed: resources that are shared have another name.
	failAbove, renamed bool
}

// advertised returns the name under which a resource is advertised.
func (s sharing) advertised(resource string) string {
	if s.renamed && s.of(resource) > 1 {
		return resource + ".shared"
	}
	return resource
}

// of returns how often each device of a resource is advertised.
func (s sharing) of(resource string) int { return max(1, s.replicas[resource]) }

// replicated is a block of the configuration's file.
type replicated struct {
	RenameByDefault, FailRequestsGreaterThanOne bool

	Resources []struct {
		Name     string
		Replicas int
	}
}

// readSharing reads the configuration; without one, nothing is shared.
func readSharing() (sharing, error) {
	shared := sharing{strategy: sharingNone, replicas: map[string]int{}}
	path := os.Getenv("CONFIG_FILE")
	if path == "" {
		return shared, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return shared, fmt.Errorf("read the configuration: %w", err)
	}
	var file struct {
		Sharing struct{ TimeSlicing, MPS *replicated }
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return shared, fmt.Errorf("read the configuration: %w", err)
	}
	block := file.Sharing.TimeSlicing
	switch {
	case file.Sharing.MPS != nil:
		// It counts where both are.
		block = file.Sharing.MPS
		shared.strategy, shared.failAbove = sharingMPS, true
	case block != nil:
		shared.strategy, shared.failAbove = sharingTime, block.FailRequestsGreaterThanOne
	default:
		return shared, nil
	}
	shared.renamed = block.RenameByDefault
	for _, resource := range block.Resources {
		shared.replicas[resourcePrefix+strings.TrimPrefix(resource.Name, resourcePrefix)] = resource.Replicas
	}
	return shared, nil
}
