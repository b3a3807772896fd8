package main

import (
	"math"

	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

// foreignQuantity is the pattern of a quantity in schemas that are generated from Kubernetes' type. It admits any
// exponent, and decoding 1e-99999999999 into that type does not end.
const foreignQuantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))` +
	`(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// decodableTime is the part of the format date-time that Go decodes: with capital letters and an offset of less than a
// day. A schema with a format also admits a list in place of a text: no list has one item at least and none at most.
const decodableTime = `^[0-9-]{10}T[0-9:]{8}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`

// boundNumbers bounds quantities, times, and fields that are a number or a text, in a schema and all below it.
// Kubernetes decodes the number of the latter into 32 bits, and rules with that bound would exceed the cost that the
// API server of Kubernetes 1.32 allows.
func boundNumbers(value any) {
	switch value := value.(type) {
	case map[string]any:
		switch {
		case value["pattern"] == foreignQuantity:
			value["pattern"] = undecodable.Quantity
		case value["format"] == "date-time":
			value["pattern"] = decodableTime
			value["minItems"], value["maxItems"] = 1, 0
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
