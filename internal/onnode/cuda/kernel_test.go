package cuda

import (
	"math"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

// sums returns the result of a healthy GPU.
func sums(a, b []float32) []float32 {
	sum := poisoned()
	for i := range count {
		sum[i] = a[i] + b[i]
	}
	return sum
}

func TestVerify(t *testing.T) {
	tests := map[string]struct {
		spoil func(sum, a, b, before []float32) // nil for a correct result.
		err   string
	}{
		"accepts the sums": {},
		"finds a result that was not written": {
			spoil: func(sum, _, _, _ []float32) { copy(sum, poisoned()) },
			err:   "element 0 of 10007 is NaN",
		},
		"finds zeros": {
			spoil: func(sum, _, _, _ []float32) { clear(sum[:count]) },
			err:   "element 0 of 10007 is 0 where",
		},
		"finds a result that is only written up to a place": {
			spoil: func(sum, _, _, _ []float32) { copy(sum[5000:], poisoned()[5000:]) },
			err:   "element 5000 of 10007 is NaN",
		},
		"finds a last element that is not written": {
			spoil: func(sum, _, _, _ []float32) { sum[count-1] = poison },
			err:   "element 10006 of 10007 is NaN",
		},
		"finds a wrong last bit": {
			spoil: func(sum, _, _, _ []float32) { sum[77] = math.Nextafter32(sum[77], 0) },
			err:   "element 77 of 10007",
		},
		"finds two swapped results": {
			spoil: func(sum, _, _, _ []float32) { sum[1], sum[2] = sum[2], sum[1] },
			err:   "element 1 of 10007",
		},
		"finds the first addend": {
			spoil: func(sum, a, _, _ []float32) { copy(sum, a[:count]) },
			err:   "element 0 of 10007",
		},
		"finds the second addend": {
			spoil: func(sum, _, b, _ []float32) { copy(sum, b[:count]) },
			err:   "element 0 of 10007",
		},
		"finds the result of the other round": {
			spoil: func(sum, _, _, other []float32) { copy(sum, other) },
			err:   "element 0 of 10007",
		},
		"finds a thread that writes beyond the data": {
			spoil: func(sum, _, _, _ []float32) { sum[padded-1] = 0 },
			err:   "element 233 after the last of 10007 is 0",
		},
	}
	for name, tc := range tests {
		for round := range rounds {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				a, b := inputs(round)
				sum := sums(a, b)
				if tc.spoil == nil {
					g.Expect(verify(round, a, b, sum)).To(Succeed())
					return
				}
				tc.spoil(sum, a, b, sums(inputs(1-round)))
				g.Expect(verify(round, a, b, sum)).To(MatchError(ContainSubstring(tc.err)))
			})
		}
	}
}

func TestInputsHaveDistinctSums(t *testing.T) {
	g := NewWithT(t)
	var all []float32
	for round := range rounds {
		a, b := inputs(round)
		all = append(all, sums(a, b)[:count]...)
	}
	slices.Sort(all)
	g.Expect(slices.Compact(slices.Clone(all))).To(HaveLen(len(all)))
	g.Expect(count%2).To(Equal(1), "the last block is not full")
	g.Expect(padded).To(BeNumerically(">", count))
}

func TestEachResultHasItsOwnRemedy(t *testing.T) {
	seen := map[string]result{otherRemedy: success}
	for code, remedy := range remedies {
		if other, twice := seen[remedy]; twice {
			t.Errorf("results %d and %d have the same remedy: %s", code, other, remedy)
		}
		seen[remedy] = code
	}
}
