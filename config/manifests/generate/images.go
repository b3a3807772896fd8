package main

import (
	"fmt"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
)

// relatedImage is an image that a mirror for an air-gapped cluster needs.
type relatedImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// systems are the suffixes of the tags of images that are built per operating system: Red Hat CoreOS of all supported
// releases of OpenShift, and Ubuntu, the next most common one with OLM. Others work too, but their images are not
// listed: a mirror fails if a listed image does not exist.
var systems = []string{"rhel9", "ubuntu22.04", "ubuntu24.04"}

// relatedImages returns all images that the operator runs by default, and its own.
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
	// Two operands may run one image; it is listed once.
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(r relatedImage) bool {
		twice := seen[r.Image]
		seen[r.Image] = true
		return twice
	}), nil
}
