package app

import (
	"github.com/go-logr/logr"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// overriddenImages returns the default images that the environment replaces, and a sentence for each variable that is
// ignored. It logs both.
func overriddenImages(
	catalogue operand.Catalogue, log logr.Logger, variable func(string) string,
) (image.Overrides, []string) {
	defaults := catalogue.Images()
	overrides, ignored := image.FromVariables(defaults, variable)
	ignored = append(ignored, image.Unused(variable)...)
	for _, d := range defaults {
		if _, replaced := overrides[d.Name]; replaced {
			log.Info("A variable replaces a default image", "variable", d.Variable, "image", variable(d.Variable))
		}
	}
	for _, sentence := range ignored {
		log.Info("A variable for an image is ignored", "reason", sentence)
	}
	return overrides, ignored
}
