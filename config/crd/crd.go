// Package crd embeds the CustomResourceDefinition of this release for the programs that install it or compare it with
// the cluster's.
package crd

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// Name of the definition.
const Name = "clusterpolicies.nvidia.com"

// ClusterPolicy is the definition of the kind ClusterPolicy, as YAML. make manifests generates it.
//
//go:embed bases/nvidia.com_clusterpolicies.yaml
var ClusterPolicy []byte

// properties are the properties of ClusterPolicy v1, as JSON: a tenth of the size of the definition, which takes many
// times its size in memory once it is decoded. make manifests generates them.
//
//go:embed properties.json
var properties []byte

// Own returns the v1 schema of this release as far as Missing compares it. It fails if the embedded file is invalid.
func Own() (map[string]any, error) {
	own := map[string]any{}
	if err := json.Unmarshal(properties, &own); err != nil {
		return nil, fmt.Errorf("decoding the properties of ClusterPolicy: %w", err)
	}
	return own, nil
}
