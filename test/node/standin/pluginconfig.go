//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"

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
	// failAbove: a container may request only one share.
	failAbove bool
}

// of returns how often each device of a resource is advertised.
func (s sharing) of(resource string) int { return max(1, s.replicas[resource]) }

// replicated is a block of the configuration's file.
type replicated struct {
	FailRequestsGreaterThanOne *bool
	Resources                  []struct {
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
	case block != nil && file.Sharing.MPS != nil:
		return shared, errors.New("using both time-slicing and MPS is not supported")
	case block != nil:
		shared.strategy = sharingTime
	case file.Sharing.MPS != nil:
		block = file.Sharing.MPS
		shared.strategy, shared.failAbove = sharingMPS, true
	default:
		return shared, nil
	}
	if block.FailRequestsGreaterThanOne != nil {
		shared.failAbove = *block.FailRequestsGreaterThanOne
	}
	for _, resource := range block.Resources {
		shared.replicas[resource.Name] = resource.Replicas
	}
	return shared, nil
}
