package simulator

import "testing"

// Play starts a simulator until the end of the test.
func Play(tb testing.TB, opts Options) *Simulator {
	tb.Helper()
	s, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}
