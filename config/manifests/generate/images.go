package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
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

// digests are those of images, by their names with a tag.
type digests map[string]string

// readDigests reads a file with the name and the digest of an image in each line; none without a file.
func readDigests(file string) (digests, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the digests: %w", err)
	}
	found := digests{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || !digestForm.MatchString(words[1]) {
			return nil, fmt.Errorf("reading the digests: %s has the line %q: give a name and its digest, with sha256: first",
				file, strings.TrimSpace(line))
		}
		found[words[0]] = words[1]
	}
	return found, nil
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// pin returns the image by its digest; as it is if the digest is not known.
func (d digests) pin(reference string) string {
	digest, known := d[reference]
	if !known {
		return reference
	}
	return reference[:strings.LastIndex(reference, ":")] + "@" + digest
}

// relatedImages returns all images that the operator runs by default, and its own: by their digests where these are
// known, but for those of an operating system, as their tag is chosen on the node.
func relatedImages(operator string, known digests) ([]relatedImage, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	all := []relatedImage{{image.Operator().Name, operator}}
	for _, fallback := range catalogue.Images() {
		if !fallback.PerSystem {
			reference, err := pinned(fallback, known)
			if err != nil {
				return nil, err
			}
			all = append(all, relatedImage{fallback.Name, reference})
			continue
		}
		for _, system := range systems {
			reference, err := fallback.Resolve(v1.ImageSpec{}, "-"+system)
			if err != nil {
				return nil, fmt.Errorf("relatedImages: %w", err)
			}
			all = append(all, relatedImage{fallback.Name + "-" + system, reference.Image})
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

// pinned returns a default image by its digest, if that is known.
func pinned(fallback image.Default, known digests) (string, error) {
	reference, err := fallback.Resolve(v1.ImageSpec{}, "")
	if err != nil {
		return "", fmt.Errorf("relatedImages: %w", err)
	}
	return known.pin(reference.Image), nil
}

// pinDefaults makes the operator run the default images whose digests are known by these, as relatedImages lists them.
func pinDefaults(deployment *appsv1.Deployment, known digests) error {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return err
	}
	operator := &deployment.Spec.Template.Spec.Containers[0]
	for _, fallback := range catalogue.Images() {
		reference, err := pinned(fallback, known)
		if err != nil {
			return err
		}
		if !fallback.PerSystem && strings.Contains(reference, "@") {
			operator.Env = append(operator.Env, corev1.EnvVar{Name: fallback.Variable, Value: reference})
		}
	}
	return nil
}

// unpinned returns the images that may be pinned, by their tags.
func unpinned() ([]string, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, fallback := range catalogue.Images() {
		reference, err := pinned(fallback, nil)
		if err != nil {
			return nil, err
		}
		if !fallback.PerSystem && !slices.Contains(names, reference) {
			names = append(names, reference)
		}
	}
	return names, nil
}
