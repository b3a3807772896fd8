package status

import "testing"

// An operand without which GPUs can be used is told with the policy alone, and so with all that is known.
func TestAnOperandBesideTheLadderFailsWithItsLastWords(t *testing.T) {
	const cause = "fails on 2 of 2 nodes: node-00000 (container main: CrashLoopBackOff, exit code 1), " +
		"node-00001 (container main: CrashLoopBackOff, exit code 1)"
	b := newBed(t, 2)
	b.fail(0, "dcgm-exporter", "")
	b.fail(1, "dcgm-exporter", "attempt 1")
	first := b.status()
	if got, want := operandOf(t, first, "dcgm-exporter").Message, cause+": node-00001 says: attempt 1"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	tests := map[string]struct {
		change func()
		want   string
	}{
		"the next attempt is no news":      {change: func() { b.fail(1, "dcgm-exporter", "attempt 2") }, want: cause + ": node-00001 says: attempt 1"},
		"neither is one that says nothing": {change: func() { b.fail(1, "dcgm-exporter", "") }, want: cause + ": node-00001 says: attempt 1"},
		"another cause is": {
			change: func() { b.start(0, "dcgm-exporter"); b.fail(1, "dcgm-exporter", "attempt 3") },
			want:   "fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): node-00001 says: attempt 3",
		},
		"nothing is left of it when it starts well": {
			change: func() { b.start(0, "dcgm-exporter"); b.start(1, "dcgm-exporter") },
			want:   "ready on 0/2 nodes: node-00000 (container main is not ready yet), node-00001 (container main is not ready yet)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b.fail(0, "dcgm-exporter", "")
			test.change()
			if got := operandOf(t, b.status(first), "dcgm-exporter").Message; got != test.want {
				t.Errorf("the message is %q, want %q", got, test.want)
			}
		})
	}
}
