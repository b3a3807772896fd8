// This file is in the package itself on purpose: it makes the tests depend on the program's code, so that go test
// repeats them when that changes. The others start the program as a process, which the cache of test results does not
// track.
package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

func TestVariables(t *testing.T) {
	tests := map[string]struct {
		variable string
		args     []string
		want     bool
		err      string
	}{
		"set the flag":                        {variable: "true", want: true},
		"are none if empty":                   {variable: "", want: false},
		"lose against the flag":               {variable: "true", args: []string{"--x=false"}, want: false},
		"lose against the flag, though wrong": {variable: "sure", args: []string{"--x"}, want: true},
		"are named if wrong":                  {variable: "sure", err: "the environment variable X_ENABLED: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("X_ENABLED", tc.variable)
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			x := flags.Bool("x", false, "")
			g.Expect(flags.Parse(tc.args)).To(Succeed())
			err := variables{"x": "X_ENABLED"}.apply(flags)
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(*x).To(Equal(tc.want))
		})
	}
}
