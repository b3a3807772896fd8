package specgen

import "math/rand/v2"

// Random returns a spec of some fields with some of their values. Fields of one element of a list are selected
// together. The API server may reject contradictory fields.
func Random(dice *rand.Rand, fields []Field) map[string]any {
	spec := map[string]any{}
	// Both few and many fields find bugs.
	share := dice.Float64() * dice.Float64()
	for _, field := range fields {
		values := field.Values()
		if len(values) == 0 || dice.Float64() > share || field.inList() {
			continue
		}
		spec = Merge(spec, field.Spec(values[dice.IntN(len(values))]))
	}
	return spec
}

// inList reports whether the field is a part of a list's elements other than the name of a variable.
func (f Field) inList() bool {
	for i, name := range f.Path {
		if name == element {
			return f.Path[i-1] != "env" || f.Name() != "value"
		}
	}
	return false
}
