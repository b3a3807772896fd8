package main

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
)

// relatedImage is an image that a mirror for a cluster without internet must have.
type relatedImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// systems are the ends of the tags of images that are made for an operating system: Red Hat CoreOS of all
// releases of OpenShift that are supported, and Ubuntu, on which OLM is met most often beside it. Others run too, but
// their images are not listed: a mirror that finds a listed image missing fails.
var systems = []string{"rhel9", "ubuntu22.04", "ubuntu24.04"}

// relatedImages are all that the operator runs by default, and its own.
func relatedImages(operator string) ([]relatedImage, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	all := []relatedImage{{image.Operator().Name, operator}}
	for _, fallback := range catalogue.Images() {
		suffixes := []string{""}
		if fallback.PerSystem {
			suffixes = systems
		}
		for _, system := range suffixes {
			suffix := ""
			if system != "" {
				suffix = "-" + system
			}
			reference, err := fallback.Resolve(v1.ImageSpec{}, suffix)
			if err != nil {
				return nil, fmt.Errorf("relatedImages: %w", err)
			}
			all = append(all, relatedImage{fallback.Name + suffix, reference.Image})
		}
	}
	// One image may run as two operands; it is listed once.
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(r relatedImage) bool {
		twice := seen[r.Image]
		seen[r.Image] = true
		return twice
	}), nil
}
