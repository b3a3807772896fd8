// Package crd holds the CustomResourceDefinition of this release for the programs that compare it with the
// cluster's or install it.
package crd

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// Name of the definition.
const Name = "clusterpolicies.nvidia.com"

// ClusterPolicy is the definition of the kind ClusterPolicy, as YAML. make manifests writes it.
//
//go:embed bases/nvidia.com_clusterpolicies.yaml
var ClusterPolicy []byte

// properties are those of the version v1 of ClusterPolicy, as JSON: a tenth of the definition, which takes many times
// its size in memory once it is decoded. make manifests writes them.
//
//go:embed properties.json
var properties []byte

// Own returns the schema of the version v1 of this release as far as Lacking compares it. It fails if the program was
// built with a broken file.
func Own() (map[string]any, error) {
	own := map[string]any{}
	if err := json.Unmarshal(properties, &own); err != nil {
		return nil, fmt.Errorf("decoding the properties of ClusterPolicy: %w", err)
	}
	return own, nil
}
