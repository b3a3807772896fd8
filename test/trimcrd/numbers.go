package main

import (
	"math"

	"github.com/clusterpolicy/gpu-operator/internal/undecodable"
)

// foreignQuantity is the pattern of a quantity in schemas that are generated from Kubernetes' type. It admits any
// exponent, and decoding 1e-99999999999 into that type does not end.
const foreignQuantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))` +
	`(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// boundNumbers bounds quantities, and fields that are a number or a text, in a schema and all below it. Kubernetes
// decodes the number of the latter into 32 bits, and rules with that bound would exceed the cost that the API server of
// Kubernetes 1.32 allows.
func boundNumbers(value any) {
	switch value := value.(type) {
	case map[string]any:
		switch {
		case value["pattern"] == foreignQuantity:
			value["pattern"] = undecodable.Quantity
		case value["x-kubernetes-int-or-string"] == true:
			value["minimum"], value["maximum"] = math.MinInt32, math.MaxInt32
		}
		for _, inner := range value {
			boundNumbers(inner)
		}
	case []any:
		for _, inner := range value {
			boundNumbers(inner)
		}
	}
}
