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

func four(t *T) (found int) {
	t.fail(one())
	t.Err = one()
	_ = T{Err: one()}
	do(func() error { return one() })
	return 4
}

func five() (err error) {
	return
}
`

// Every error that is returned or recorded is dropped once, and what gives it is still called.
func TestMutations(t *testing.T) {
	g := NewWithT(t)
	found, err := inFile("/sample.go", []byte(source), []string{"fail"})
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, m := range found {
		all = append(all, m.String())
	}
	dropped := func(text string) string { return text + " -> func() error { _ = " + text + "; return nil }()" }
	g.Expect(all).To(Equal([]string{
		"sample.go:7: " + dropped(`errors.New("one")`),
		"sample.go:11: " + dropped("err"),
		"sample.go:16: pair() -> func() (int, int, error) { result0, result1, _ := pair(); return result0, result1, nil }()",
		"sample.go:19: " + dropped("one()"),
		"sample.go:20: " + dropped("one()"),
		"sample.go:21: " + dropped("one()"),
		"sample.go:22: " + dropped("one()"),
	}))
	g.Expect(string(found[1].mutated())).To(ContainSubstring("\t\treturn 0, func() error { _ = err; return nil }()\n"))
}

func TestOnlyChosenPlaces(t *testing.T) {
	g := NewWithT(t)
	found, err := inFile("/sample.go", []byte(source), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(matching(found, regexp.MustCompile(`sample\.go:(7|11)$`))).To(HaveLen(2))
}
