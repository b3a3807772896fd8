// Package crd contains the CustomResourceDefinitions of this release, for programs that install them or compare them
// with those of the cluster.
package crd

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// The names of the definitions.
const (
	Name             = "clusterpolicies.nvidia.com"
	NVIDIADriverName = "nvidiadrivers.nvidia.com"
)

// ClusterPolicy is the definition of the kind ClusterPolicy in YAML. make manifests generates it.
//
//go:embed bases/nvidia.com_clusterpolicies.yaml
var ClusterPolicy []byte

// NVIDIADriver is the definition of the kind NVIDIADriver in YAML. make manifests generates it.
//
//go:embed bases/nvidia.com_nvidiadrivers.yaml
var NVIDIADriver []byte

// Definition is a CustomResourceDefinition of this release.
type Definition struct {
	// Name of the object.
	Name string
	// Text is the object in YAML.
	Text []byte
	// Kind that it defines.
	Kind schema.GroupVersionKind
	// properties are those of its version, in JSON. They are a tenth of the definition, which needs much memory when it
	// is decoded. make manifests generates them.
	properties []byte
}

//go:embed properties.json
var policyProperties []byte

//go:embed nvidiadriver-properties.json
var driverProperties []byte

// All returns the definitions. ClusterPolicy is the first one.
func All() []Definition { return []Definition{OfClusterPolicy(), OfNVIDIADriver()} }

// OfClusterPolicy returns the definition of the kind ClusterPolicy.
func OfClusterPolicy() Definition {
	return Definition{Name, ClusterPolicy, v1.ClusterPolicyKind, policyProperties}
}

// OfNVIDIADriver returns the definition of the kind NVIDIADriver.
func OfNVIDIADriver() Definition {
	return Definition{NVIDIADriverName, NVIDIADriver, v1alpha1.NVIDIADriverKind, driverProperties}
}

// Own returns the schema of this release as far as Missing compares it. It fails if the program was built with a broken
// file.
func (d Definition) Own() (map[string]any, error) {
	own := map[string]any{}
	if err := json.Unmarshal(d.properties, &own); err != nil {
		return nil, fmt.Errorf("decoding the properties of %s: %w", d.Kind.Kind, err)
	}
	return own, nil
}
