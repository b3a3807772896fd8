package image

import (
	"fmt"
	"regexp"
	"strings"
)

// Overrides are defaults with the images that environment variables of the operator name, by Default.Name. Nil replaces
// no default.
type Overrides map[string]Default

// Of returns the default that applies instead of d.
func (o Overrides) Of(d Default) Default {
	if replaced, found := o[d.Name]; found {
		return replaced
	}
	return d
}

// pinned is a reference with a registry and a tag or a digest. The parts are repository, name, tag and digest.
var pinned = regexp.MustCompile(
	`^([a-zA-Z0-9][a-zA-Z0-9._:/-]*|\[[0-9a-f:]+\][a-zA-Z0-9._:/-]*)/([a-z0-9]+(?:[._-]+[a-z0-9]+)*)` +
		`(?::([a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)

// FromVariables returns the overrides by the variables of these defaults, whose values variable returns, and a sentence
// for each variable that is ignored: one that is no complete reference, or whose image has another name than the
// default. The command and the files of another program would not fit the manifests.
func FromVariables(defaults []Default, variable func(name string) string) (Overrides, []string) {
	overrides, ignored := Overrides{}, []string(nil)
	for _, d := range defaults {
		value := variable(d.Variable)
		if value == "" {
			continue
		}
		replaced, err := d.replacedBy(value)
		if err != nil {
			ignored = append(ignored, fmt.Sprintf("the operator's variable %s is ignored: %v", d.Variable, err))
			continue
		}
		overrides[d.Name] = replaced
	}
	return overrides, ignored
}

// replacedBy returns the default with the parts of a reference.
func (d Default) replacedBy(reference string) (Default, error) {
	parts := pinned.FindStringSubmatch(reference)
	if parts == nil || parts[3] == "" && parts[4] == "" {
		return d, fmt.Errorf("%q has no registry, or no tag and no digest: set a reference such as %s/%s:%s", reference,
			d.Repository, d.Image, d.Version)
	}
	if parts[2] != d.Image {
		return d, fmt.Errorf("the image %q is not named %s: copy %s/%s under its own name, or set the image in spec.%s",
			reference, d.Image, d.Repository, d.Image, d.Field)
	}
	d.Repository, d.Version = parts[1], parts[3]
	if parts[4] != "" {
		d.Version = parts[4]
	}
	return d, nil
}

// validatorVariable is a variable of NVIDIA's operator. Its image does not contain the on-node program.
const validatorVariable = "VALIDATOR_IMAGE"

// unusedVariables are those of NVIDIA's operator for images of operands that the operator does not have.
var unusedVariables = []string{
	"CC_MANAGER_IMAGE", "CUDA_BASE_IMAGE", "DRA_DRIVER_IMAGE", "KATA_MANAGER_IMAGE", "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE",
	"SANDBOX_DEVICE_PLUGIN_IMAGE", "VFIO_MANAGER_IMAGE", "VGPU_DEVICE_MANAGER_IMAGE", "VGPU_MANAGER_IMAGE",
}

// Unused returns a sentence for the variables of NVIDIA's operator that are set and have no effect, whatever their
// value.
func Unused(variable func(name string) string) []string {
	var sentences, set []string
	if variable(validatorVariable) != "" {
		sentences = append(sentences, "the operator's variable "+validatorVariable+" is ignored: the validator runs the "+
			"image of the operator, or of spec.validator")
	}
	for _, name := range unusedVariables {
		if variable(name) != "" {
			set = append(set, name)
		}
	}
	if len(set) > 0 {
		sentences = append(sentences, fmt.Sprintf("the operator's variables %s are ignored: there are no such operands, "+
			"remove them", strings.Join(set, ", ")))
	}
	return sentences
}
