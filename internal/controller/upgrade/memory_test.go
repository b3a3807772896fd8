package upgrade

import (
	"testing"
	"time"
)

// The text of an admission webhook may differ with each attempt, and is part of what is written to the Node.
func TestRejectionsKeepTheirText(t *testing.T) {
	const first, next = otherRejection + "request 1", otherRejection + "request 2"
	const budget, other = "PDB team-a/web allows 0 disruptions", "PDB team-a/all allows 0 disruptions"
	for name, test := range map[string]struct{ first, next, want string }{
		"a webhook's text that differs": {first, next, first},
		"a webhook after a budget":      {budget, first, first},
		"a budget after a webhook":      {first, budget, budget},
		"another budget":                {budget, other, other},
	} {
		t.Run(name, func(t *testing.T) {
			m, timing := newMemory(), &Timing{FirstEviction: time.Second, LastEviction: time.Minute}
			m.reject("web", test.first, time.Time{}, timing)
			m.reject("web", test.next, time.Time{}, timing)
			if got := m.rejection("web"); got.reason != test.want || got.wait != 2*time.Second {
				t.Errorf("got %+v, want %q", got, test.want)
			}
			m.evicted("web")
			m.reject("web", test.next, time.Time{}, timing)
			if got := m.rejection("web").reason; got != test.next {
				t.Errorf("after an eviction: got %q, want %q", got, test.next)
			}
		})
	}
}
