package crd

import (
	"encoding/json"
	"fmt"
)

// MaxSize bounds the definition, in bytes of JSON. kubectl apply stores all of it in an annotation, and the annotations
// of an object have at most 262,144 bytes together. The difference leaves room for fields to come.
const MaxSize = 220_000

// Size returns how many bytes a definition has in JSON, as kubectl apply stores it.
func Size(definition map[string]any) (int, error) {
	data, err := json.Marshal(definition)
	if err != nil {
		return 0, fmt.Errorf("encoding the definition: %w", err)
	}
	return len(data), nil
}
