// Package chance is the one source of chance for tests: which of many cases a run tries, and with which random values.
// A run has one seed. In CI it is another one each day, so that each case is tried sooner or later, and it is printed,
// so that the run can be repeated.
package chance

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Variable is the environment variable with the seed, a number.
const Variable = "SEED"

// seed is that of this process.
var seed = sync.OnceValues(func() (uint64, error) { return choose(os.Getenv, rand.Uint32) })

// choose returns the seed of Variable. Without one it is random in CI and with TEST_FULL=1, and 1 elsewhere, so that
// the same commit passes or fails on every machine. The error is about a seed that is no number.
func choose(variable func(string) string, random func() uint32) (uint64, error) {
	switch text := variable(Variable); {
	case text != "":
		chosen, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s=%s is no number: %w", Variable, text, err)
		}
		return chosen, nil
	case variable("CI") != "", variable("TEST_FULL") != "":
		return uint64(random()), nil
	}
	return 1, nil
}

// Seed returns the seed of this run, and logs how to repeat it. The test fails if it is no number.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	chosen, err := seed()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("chance is that of %s=%d", Variable, chosen)
	return chosen
}

// Of returns the source of random values for a purpose, such as a row of a table. Those of two purposes are
// independent.
func Of(tb testing.TB, purpose string) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), hash(purpose))) //nolint:gosec // A sample, not a secret.
}

// Sample returns some of the cases, all of them if there are no more. Samples of consecutive seeds follow each other in
// an order that depends on the purpose and the names of the cases, so that each case has its turn: CI's seed is the
// number of the day. That holds where each run has a sample; within a choice that chance makes, use Shuffled.
func Sample[T any](tb testing.TB, purpose string, from []T, size int, name func(T) string) []T {
	tb.Helper()
	return rotate(Seed(tb), purpose, from, size, name)[:min(size, len(from))]
}

// Part returns all cases, or with -short a sample of this size. make test-full runs the packages that call it whole.
func Part[T any](tb testing.TB, purpose string, from []T, size int, name func(T) string) []T {
	tb.Helper()
	if !testing.Short() {
		return from
	}
	return Sample(tb, purpose, from, size, name)
}

// Numbers is Part of the numbers below count, which stand for as many cases.
func Numbers(tb testing.TB, purpose string, count, size int) []int {
	tb.Helper()
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	return Part(tb, purpose, all, size, strconv.Itoa)
}

// Shuffled returns the cases in random order.
func Shuffled[T any](tb testing.TB, purpose string, from []T) []T {
	tb.Helper()
	cases := slices.Clone(from)
	Of(tb, purpose).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	return cases
}

func rotate[T any](seed uint64, purpose string, from []T, size int, name func(T) string) []T {
	sum := func(c T) uint64 { return hash(purpose + "\x00" + name(c)) }
	cases := slices.Clone(from)
	slices.SortStableFunc(cases, func(a, b T) int { return cmp.Compare(sum(a), sum(b)) })
	if len(cases) == 0 {
		return cases
	}
	of := uint64(len(cases))
	first := seed % of * (uint64(size) % of) % of //nolint:gosec // A size is not negative.
	return slices.Concat(cases[first:], cases[:first])
}

// Turn reports whether a case runs that is to run once in so many runs. Of that many consecutive seeds, exactly one
// selects it.
func Turn(tb testing.TB, name string, runs uint64) bool {
	tb.Helper()
	return turn(name, Seed(tb), runs)
}

func turn(name string, seed, runs uint64) bool { return hash(name)%runs == seed%runs }

func hash(text string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text)) // It never fails.
	return sum.Sum64()
}

// Itself names cases that are texts.
func Itself(name string) string { return name }
