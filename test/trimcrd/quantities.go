package main

// foreignQuantity is the pattern of a quantity in schemas that are generated from Kubernetes' type. It admits any
// exponent, and decoding 1e-99999999999 into that type does not end.
const foreignQuantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))` +
	`(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// boundedQuantity admits 20 digits on each side of the point, and exponents of two digits.
const boundedQuantity = `^[+-]?([0-9]{1,20}([.][0-9]{0,20})?|[.][0-9]{1,20})` +
	`([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`

// boundQuantities replaces the pattern of quantities, in a schema and all below it.
func boundQuantities(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["pattern"] == foreignQuantity {
			value["pattern"] = boundedQuantity
		}
		for _, inner := range value {
			boundQuantities(inner)
		}
	case []any:
		for _, inner := range value {
			boundQuantities(inner)
		}
	}
}
