package main

import (
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
)

const source = `package sample

import "errors"

type T struct{ Err error }

func one() error { return errors.New("one") }

func two() (int, error) {
	if err := one(); err != nil {
		return 0, err
	}
	return 1, nil
}

func three() (a, b int, err error) { return pair() }

func four(t *T) error {
	t.fail(one())
	t.Err = one()
	_ = T{Err: one()}
	return do(func() error { return one() })
}

func five() (err error) {
	return
}
`

// Every returned or recorded error is dropped once, with one binary for all.
func TestMutations(t *testing.T) {
	g := NewWithT(t)
	found, err := inFile("/sample.go", []byte(source), []string{"fail"})
	g.Expect(err).NotTo(HaveOccurred())
	for i := range found {
		found[i].number = i + 1
	}
	var all []string
	for _, m := range found {
		all = append(all, m.String())
	}
	g.Expect(all).To(Equal([]string{
		`sample.go:7: errors.New("one")`, "sample.go:11: err", "sample.go:16: pair()", "sample.go:19: one()",
		"sample.go:20: one()",
		"sample.go:21: one()", "sample.go:22: do(func() error { return one() })", "sample.go:22: one()",
	}))
	text := string(mutated(found))
	for _, line := range []string{
		`return mutationDrop(1, errors.New("one"))`,
		"return 0, mutationDrop(2, err)\n",
		"return 1, nil\n",
		"return func() (int, int, error) { result0, result1, err := pair(); " +
			"return result0, result1, mutationDrop(3, err) }()",
		"t.fail(mutationDrop(4, one()))",
		"t.Err = mutationDrop(5, one())",
		"T{Err: mutationDrop(6, one())}",
		"return mutationDrop(7, do(func() error { return mutationDrop(8, one()) }))\n",
	} {
		g.Expect(text).To(ContainSubstring(line))
	}
}

func TestOnlyChosenPlaces(t *testing.T) {
	g := NewWithT(t)
	found, err := inFile("/sample.go", []byte(source), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(matching(found, regexp.MustCompile(`sample\.go:(7|11)$`))).To(HaveLen(2))
}
