package simulator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPhase(t *testing.T) {
	ended := func(code int32) *container { return &container{phase: terminated, exitCode: code} }
	runs := &container{phase: running}
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	tests := map[string]struct {
		restart     corev1.RestartPolicy
		init, mains []*container
		want        corev1.PodPhase
		// restarts: the last container is restarted.
		restarts bool
	}{
		"it succeeds": {
			restart: never, mains: []*container{ended(0), ended(0)}, want: corev1.PodSucceeded,
		},
		"it fails": {
			restart: never, mains: []*container{ended(0), ended(1)}, want: corev1.PodFailed,
		},
		"it fails once all have ended": {restart: never, mains: []*container{runs, ended(1)}, want: corev1.PodRunning},
		"it fails before it has started": {
			restart: never, init: []*container{ended(1)}, mains: []*container{{}}, want: corev1.PodFailed,
		},
		"it is tried again": {
			restart: onFailure, mains: []*container{ended(1)}, want: corev1.PodRunning, restarts: true,
		},
		"it is not repeated": {restart: onFailure, mains: []*container{ended(0)}, want: corev1.PodSucceeded},
		"it always restarts": {
			restart: always, mains: []*container{runs, ended(0)}, want: corev1.PodRunning, restarts: true,
		},
		"its init container is tried again": {
			restart: always, init: []*container{ended(1)}, mains: []*container{{}}, want: corev1.PodPending,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &pod{
				object: &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.restart}}, inits: test.init, mains: test.mains,
			}
			if got := p.phase(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			last := p.mains[len(p.mains)-1]
			if got := last.phase == terminated && last.willRestart(conditions{pod: p}); got != test.restarts {
				t.Errorf("its last container restarts: %t, want %t", got, test.restarts)
			}
		})
	}
}
