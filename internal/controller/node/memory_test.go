package node

import (
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// reconcileWeakly is reconcileAfter, and returns a weak pointer to the scope of the reconcile.
func (e *env) reconcileWeakly(d time.Duration) (weak.Pointer[scope], error) {
	e.t.Helper()
	e.clock.SetTime(e.clock.Now().Add(d))
	s, err := e.reconciler.newScope(e.t.Context(), "a")
	e.Expect(err).NotTo(HaveOccurred())
	pointer := weak.Make(s)
	_, err = s.run(e.t.Context())
	return pointer, err
}

// Nothing of a reconcile outlives it but what its entry is meant to keep, however the reconcile ends: a pointer into a
// scope would keep the node, the entry before it, and so all scopes before it in memory.
func TestScopesAreReleased(t *testing.T) {
	tests := map[string]struct {
		env func(*testing.T) *env
		// shows reports whether the entry has what the case is about.
		shows func(*env) bool
		fails bool
	}{
		"a node that is ready": {
			env:   func(t *testing.T) *env { e := newEnv(t); e.publish(); return e },
			shows: func(e *env) bool { return e.fleet.Get("a").Latest.Ready() },
		},
		"tenants for which a MIG layout waits": {
			env: func(t *testing.T) *env {
				e := newLayoutEnv(t, sevenSmall)
				e.createTenant()
				e.updateNode(advertises("8"))
				return e
			},
			shows: func(e *env) bool { return len(e.fleet.Get("a").Writes.Tenants.Pods) > 0 },
		},
		"the cause of a failed MIG layout": {
			env: func(t *testing.T) *env {
				e, log := newMIGEnv(t)
				log.says("no room")
				e.migState(labels.MIGStateFailed)
				return e
			},
			shows: func(e *env) bool { return e.fleet.Get("a").Writes.MIGCause.Words != "" },
		},
		"a failed write": {
			env: func(t *testing.T) *env {
				e := newEnv(t)
				e.publish()
				e.patchErr = errors.New("the API server is not available")
				return e
			},
			shows: func(e *env) bool { return e.fleet.Get("a").WriteError != "" },
			fails: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := test.env(t)
			var scopes []weak.Pointer[scope]
			for _, value := range []string{"x", "y", "z"} {
				e.updateNode(func(node *corev1.Node) { node.Labels["example.com/changes"] = value })
				s, err := e.reconcileWeakly(time.Minute)
				e.Expect(err != nil).To(Equal(test.fails), "%v", err)
				scopes = append(scopes, s)
			}
			e.Expect(test.shows(e)).To(BeTrue())
			heap.Collect()
			for i, s := range scopes {
				alive := s.Value() != nil
				e.Expect(alive).To(BeFalse(), "scope of reconcile %d", i+1)
			}
			runtime.KeepAlive(e)
		})
	}
}
