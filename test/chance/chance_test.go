package chance

import (
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTheSeed(t *testing.T) {
	for name, test := range map[string]struct {
		variables map[string]string
		want      uint64
		err       string
	}{
		"is that of the variable": {variables: map[string]string{"SEED": "7", "CI": "true"}, want: 7},
		"is random in CI":         {variables: map[string]string{"CI": "true"}, want: 42},
		"is random for all tests": {variables: map[string]string{"TEST_FULL": "1"}, want: 42},
		"is the same elsewhere":   {want: 1},
		"must be a number":        {variables: map[string]string{"SEED": "x"}, err: "SEED=x is no number: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := choose(func(name string) string { return test.variables[name] }, func() uint32 { return 42 })
			if test.err != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestSamples(t *testing.T) {
	g, all := NewWithT(t), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	first := Sample(t, "a", all, 4, strconv.Itoa)
	g.Expect(first).To(HaveLen(4))
	g.Expect(all).To(Equal([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
	g.Expect(Sample(t, "a", all, 4, strconv.Itoa)).To(Equal(first), "the same in one run")
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	g.Expect(Sample(t, "a", reversed, 4, strconv.Itoa)).To(Equal(first), "their order does not matter")
	g.Expect(Sample(t, "b", all, 4, strconv.Itoa)).NotTo(Equal(first), "purposes have samples of their own")
	g.Expect(Sample(t, "a", all, 20, strconv.Itoa)).To(ConsistOf(all))
	g.Expect(Sample(t, "a", all[:0], 4, strconv.Itoa)).To(BeEmpty())
	g.Expect(Sample(t, "a", all, 0, strconv.Itoa)).To(BeEmpty())
}

// Each case is in the sample of one of the runs that are needed for all of them, whichever these are.
func TestEachCaseHasItsTurn(t *testing.T) {
	for size := 1; size <= 12; size++ {
		all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
		for first := range uint64(40) {
			reached := map[int]bool{}
			for run := range (uint64(len(all)) + uint64(size) - 1) / uint64(size) {
				for _, one := range rotate(first+run, "a", all, size, strconv.Itoa)[:min(size, len(all))] {
					reached[one] = true
				}
			}
			NewWithT(t).Expect(reached).To(HaveLen(len(all)), "samples of %d, from seed %d on", size, first)
		}
	}
}

// Each case runs once in so many runs, and these have about as many cases each.
func TestTurns(t *testing.T) {
	g, inTurn := NewWithT(t), 0
	for i := range 300 {
		name := strconv.Itoa(i)
		g.Expect(Turn(t, name, 1)).To(BeTrue())
		if Turn(t, name, 3) {
			inTurn++
		}
		runs := 0
		for day := range uint64(3) {
			if turn(name, 20785+day, 3) {
				runs++
			}
		}
		g.Expect(runs).To(Equal(1), name)
	}
	g.Expect(inTurn).To(BeNumerically("~", 100, 25))
}

func TestNumbers(t *testing.T) {
	g := NewWithT(t)
	if testing.Short() {
		g.Expect(Numbers(t, "a", 4, 2)).To(Equal(Sample(t, "a", []int{0, 1, 2, 3}, 2, strconv.Itoa)))
	} else {
		g.Expect(Numbers(t, "a", 4, 2)).To(Equal([]int{0, 1, 2, 3}))
	}
}
