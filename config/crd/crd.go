// Package crd holds the CustomResourceDefinition of this release for the programs that compare it with the
// cluster's or install it.
package crd

import _ "embed"

// Name of the definition.
const Name = "clusterpolicies.nvidia.com"

// ClusterPolicy is the definition of the kind ClusterPolicy, as YAML. make manifests writes it.
//
//go:embed bases/nvidia.com_clusterpolicies.yaml
var ClusterPolicy []byte
