package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// logged is what the tests look at in a log of one debug line, one info line and one error.
type logged struct {
	Lines        int
	Stacks, JSON bool
	// Time is a pattern.
	Time string
}

func TestLogFlags(t *testing.T) {
	const epoch, rfc3339 = `^\d{10}\.\d+$`, `^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$`
	for args, want := range map[string]logged{
		"":                               {Lines: 2, JSON: true, Time: rfc3339},
		"--debug":                        {Lines: 3, JSON: true, Time: rfc3339},
		"--zap-log-level=debug":          {Lines: 3, JSON: true, Time: rfc3339},
		"--zap-log-level=5":              {Lines: 3, JSON: true, Time: rfc3339},
		"--zap-log-level=error":          {Lines: 1, JSON: true, Time: rfc3339},
		"--debug --zap-log-level=info":   {Lines: 2, JSON: true, Time: rfc3339},
		"--zap-time-encoding=epoch":      {Lines: 2, JSON: true, Time: epoch},
		"--zap-stacktrace-level=error":   {Lines: 2, JSON: true, Time: rfc3339, Stacks: true},
		"--zap-encoder=console":          {Lines: 2},
		"--zap-devel":                    {Lines: 3, Stacks: true},
		"--zap-devel --zap-encoder=json": {Lines: 3, JSON: true, Time: rfc3339, Stacks: true},
	} {
		t.Run(args, func(t *testing.T) {
			g := NewWithT(t)
			options, written := &logOptions{}, &bytes.Buffer{}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			options.addFlags(flags)
			g.Expect(flags.Parse(strings.Fields(args))).To(Succeed())
			options.zap.DestWriter = written
			log := options.logger().WithValues("key", "value")
			log.V(1).Info("a message")
			log.Info("a message")
			log.Error(errors.New("an error"), "a message")
			text := written.String()
			g.Expect(strings.Count(text, "a message")).To(Equal(want.Lines), text)
			g.Expect(strings.Count(text, "value")).To(Equal(want.Lines), "the values of the logger")
			g.Expect(strings.Contains(text, "testing.tRunner")).To(Equal(want.Stacks), text)
			line, _, _ := strings.Cut(text, "\n")
			fields := map[string]json.RawMessage{}
			if !want.JSON {
				g.Expect(json.Unmarshal([]byte(line), &fields)).NotTo(Succeed(), line)
				return
			}
			g.Expect(json.Unmarshal([]byte(line), &fields)).To(Succeed(), line)
			g.Expect(strings.Trim(string(fields["ts"]), `"`)).To(MatchRegexp(want.Time))
		})
	}
}

func TestWrongLogFlags(t *testing.T) {
	for _, arg := range []string{
		"--zap-log-level=loud", "--zap-log-level=0", "--zap-encoder=xml", "--zap-stacktrace-level=none",
		"--zap-time-encoding=lunar",
	} {
		options, flags := &logOptions{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		options.addFlags(flags)
		NewWithT(t).Expect(flags.Parse([]string{arg})).NotTo(Succeed(), arg)
	}
}

// By default only a panic has a stack trace.
func TestPanicsHaveStackTraces(t *testing.T) {
	g := NewWithT(t)
	options, written := &logOptions{}, &bytes.Buffer{}
	options.zap.DestWriter = written
	underlier, isZap := options.logger().GetSink().(interface{ GetUnderlying() *zap.Logger })
	g.Expect(isZap).To(BeTrue())
	g.Expect(func() { underlier.GetUnderlying().Panic("a panic") }).To(Panic())
	g.Expect(written.String()).To(ContainSubstring("testing.tRunner"))
}
