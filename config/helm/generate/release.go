package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// workingTree is the version of the chart in the repository.
const workingTree = "0.0.0-dev"

// release describes the release of a chart.
type release struct {
	// version is a semantic version without the prefix v.
	version string
	// image of the operator, with a tag or a digest; empty for a working tree, whose chart can only be installed with
	// values for the image.
	image string
	// source is the chart as helm install names it.
	source string
}

// reference is an image as the values of block operator.
type reference struct {
	Repository string `json:"repository"`
	Image      string `json:"image"`
	Version    string `json:"version"`
}

// check refuses a version that Helm does not accept, and a release without a complete image.
func (r release) check() error {
	image := r.reference()
	switch {
	case semver.Canonical("v"+r.version) != "v"+r.version:
		return fmt.Errorf("-version %q is not a semantic version: give one such as 1.2.3", r.version)
	case r.image == "" && r.version != workingTree:
		return errors.New("-image is not set: give the operator's image of the release")
	case r.image != "" && (image.Repository == "" || image.Image == "" || image.Version == ""):
		return fmt.Errorf("-image %q is incomplete: give one such as registry.example.com/gpu-operator:v1.2.3", r.image)
	}
	return nil
}

// reference returns the parts of the image; a port in the registry is no tag.
func (r release) reference() reference {
	name, version, isDigest := strings.Cut(r.image, "@")
	slash := strings.LastIndex(name, "/")
	if colon := strings.LastIndex(name, ":"); colon > slash {
		if !isDigest {
			version = name[colon+1:]
		}
		name = name[:colon]
	}
	if slash < 0 {
		return reference{Image: name, Version: version}
	}
	return reference{Repository: name[:slash], Image: name[slash+1:], Version: version}
}

// appVersion returns the version that the programs in the image report, which is also the tag of the image.
func (r release) appVersion() string {
	if r.version == workingTree {
		return "dev"
	}
	return "v" + r.version
}

// setRelease documents the image of a release as the default.
func (v *values) setRelease(r release) {
	image := r.reference()
	if image.Image == "" {
		return
	}
	operator := v.schema.Properties["operator"].Properties
	operator["repository"].Default, operator["image"].Default = image.Repository, image.Image
}

// readme adapts the reference of the values to a release: the command has no values for the image, and links lead to
// the documents of that release.
func (r release) readme(text []byte) []byte {
	if r.version == workingTree {
		return text
	}
	return []byte(strings.NewReplacer(
		" \\\n  --set operator.repository=registry.example.com,operator.version=dev", "",
		"config/helm/gpu-operator ", r.source+" ", "](../../../", "]("+home+"/blob/"+r.appVersion()+"/",
	).Replace(string(text)))
}

// template returns, as a named template, the image of the release for the helper gpu-operator.image.
func (r release) template() ([]byte, error) {
	image, err := json.Marshal(r.reference())
	if err != nil {
		return nil, fmt.Errorf("encoding the image of the release: %w", err)
	}
	return fmt.Appendf(nil, header+`{{- define "gpu-operator.release" -}}
%s
{{- end }}
`, "the flags of a release", image), nil
}
