package specgen

import "math/rand/v2"

// Random is a spec of some fields with some of their values. Fields of one element of a list are chosen
// together. It may contradict itself, which the API server then says.
func Random(dice *rand.Rand, fields []Field) map[string]any {
	spec := map[string]any{}
	// Few fields or many: both find mistakes.
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

// inList tells whether the field is a part of the elements of a list other than the name of a variable.
func (f Field) inList() bool {
	for i, name := range f.Path {
		if name == element {
			return f.Path[i-1] != "env" || f.Name() != "value"
		}
	}
	return false
}
