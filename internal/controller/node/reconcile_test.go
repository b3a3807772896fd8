package node

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

func TestWorkingNodeHasOneConditionWrite(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.Expect(e.fleet.Get("a")).To(HaveField("BasisVersion", BeZero()), "there is no Basis")
	e.Expect(e.node().Labels).NotTo(HaveKey(labels.Pool))
	e.publish()
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	e.Expect(e.node().Labels).To(HaveKeyWithValue(labels.Pool, "ubuntu24.04-amd64"))
	entry := e.fleet.Get("a")
	e.Expect(entry.BasisVersion).To(Equal(uint64(1)))
	e.Expect(entry.Facts.Pool).To(Equal("ubuntu24.04-amd64"), "as the labels were written")
	e.Expect(entry.StatusAssessment().Ready()).To(BeTrue())
	e.Expect(entry.Latest.Since).To(Equal(now.Add(time.Second)))
	version := e.node().ResourceVersion
	for range 3 {
		e.Expect(e.reconcileAfter(time.Minute)).To(BeZero())
	}
	e.Expect(e.node().ResourceVersion).To(Equal(version))
	e.Expect(e.conditionWrites).To(Equal(1))
	e.Expect(e.fleet.Get("a").Latest.Since).To(Equal(now.Add(time.Second)))
	e.Expect(e.eventReasons()).To(BeEmpty())
}

// The stages of a starting node are written after their dwell time, also the first one.
func TestStageIsWrittenAfterItsDwell(t *testing.T) {
	const s = time.Second
	t.Run("ready before it is written", func(t *testing.T) {
		e := newEnv(t)
		e.publish()
		e.setPod("driver", starts)
		e.Expect(e.reconcileAfter(0)).To(Equal(10 * s))
		e.makeReady("driver")
		e.setPod("container-toolkit", starts)
		e.Expect(e.reconcileAfter(9 * s)).To(Equal(10 * s))
		e.Expect(e.reported()).To(BeEmpty())
		e.makeReady("container-toolkit")
		e.Expect(e.reconcileAfter(9 * s)).To(BeZero())
		e.Expect(e.reported()).To(Equal("True GPUReady"))
		e.Expect(e.conditionWrites).To(Equal(1))
		e.Expect(e.fleet.Get("a").Writes.Stage).To(BeEmpty())
	})
	t.Run("failed before it is written", func(t *testing.T) {
		e := newEnv(t)
		e.publish()
		e.setPod("driver", starts)
		e.Expect(e.reconcileAfter(0)).To(Equal(10 * s))
		e.setPod("driver", crashes)
		_, err := e.reconcileAfter(s)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(e.reported()).To(Equal("False CrashLoopBackOff"))
		e.Expect(e.eventReasons()).To(ConsistOf("CrashLoopBackOff"))
	})
	t.Run("lasts", func(t *testing.T) {
		e := newEnv(t)
		e.publish()
		e.setPod("driver", starts)
		e.Expect(e.reconcileAfter(0)).To(Equal(10 * s))
		e.Expect(e.reconcileAfter(9 * s)).To(Equal(s))
		e.Expect(e.reported()).To(BeEmpty())
		_, err := e.reconcileAfter(s)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(e.reported()).To(Equal("False Starting"))
		e.Expect(assess.GPUReadyCondition(e.node()).LastTransitionTime.Time).To(BeTemporally("==", now))
		e.makeReady("driver")
		e.setPod("container-toolkit", starts)
		e.Expect(e.reconcileAfter(s)).To(Equal(10 * s))
		_, err = e.reconcileAfter(10 * s)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(assess.GPUReadyCondition(e.node()).Message).To(ContainSubstring("stage Toolkit"))
		e.makeReady("container-toolkit")
		e.setPod("device-plugin", starts)
		e.Expect(e.reconcileAfter(s)).To(Equal(40*s), "the dwell time grows with each write")
		e.Expect(e.conditionWrites).To(Equal(2))
	})
	t.Run("ends before it is written", func(t *testing.T) {
		e := newEnv(t)
		e.publish()
		e.setPod("driver", starts)
		_, err := e.reconcileAfter(0)
		e.Expect(err).NotTo(HaveOccurred())
		_, err = e.reconcileAfter(10 * s)
		e.Expect(err).NotTo(HaveOccurred())
		e.makeReady("driver")
		e.setPod("container-toolkit", starts)
		e.Expect(e.reconcileAfter(s)).To(Equal(10 * s))
		e.Expect(e.reconciler.isPublished(e.node())).To(BeFalse(), "another condition is due")
		e.setPod("driver", starts)
		e.makeReady("container-toolkit")
		_, err = e.reconcileAfter(s)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(e.reconciler.isPublished(e.node())).To(BeTrue())
		e.makeReady("driver")
		e.setPod("container-toolkit", starts)
		e.Expect(e.reconcileAfter(time.Minute)).To(Equal(10*s), "the dwell time starts again")
		e.Expect(e.conditionWrites).To(Equal(1))
	})
}

// A pod that is replaced within four seconds changes neither the condition nor the policy's status.
func TestReplacedPodIsReportedAfterTheDwell(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.setPod("driver", starts)
	e.Expect(e.reconcileAfter(time.Minute)).To(Equal(4 * time.Second))
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	e.Expect(e.fleet.Get("a").StatusAssessment().Ready()).To(BeTrue())
	e.Expect(e.fleet.Get("a").Latest.Ready()).To(BeFalse())
	_, err := e.reconcileAfter(4 * time.Second)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.reported()).To(Equal("False Starting"))
	e.Expect(assess.GPUReadyCondition(e.node()).LastTransitionTime.Time).
		To(BeTemporally("==", now.Add(time.Minute)), "since the pod was replaced")
	e.Expect(e.fleet.Get("a").StatusAssessment().Since).To(Equal(now.Add(time.Minute)))
	e.makeReady("driver")
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	e.Expect(e.eventReasons()).To(BeEmpty(), "it had not failed")
}

// An overdue node has one Event when it becomes ready, whatever stages it passes before.
func TestOverdueNodeHasAnEventWhenReady(t *testing.T) {
	for name, between := range map[string]func(*env){
		"immediately":     func(*env) {},
		"after a restart": func(*env) {},
		"after a stage that is not written": func(e *env) {
			e.setPod("container-toolkit", starts)
			_, err := e.reconcileAfter(time.Second)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(assess.GPUReadyCondition(e.node()).Message).To(ContainSubstring("not ready after 30m"))
			e.makeReady("container-toolkit")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.publish()
			e.setPod("driver", starts)
			for range 2 {
				_, err := e.reconcileAfter(31 * time.Minute)
				e.Expect(err).NotTo(HaveOccurred())
			}
			e.Expect(assess.GPUReadyCondition(e.node()).Message).To(ContainSubstring("not ready after 30m"))
			e.Expect(e.eventReasons()).To(ConsistOf("Starting"))
			if name == "after a restart" {
				e.fleet.Delete("a")
				_, err := e.reconcileAfter(time.Second)
				e.Expect(err).NotTo(HaveOccurred())
			}
			e.makeReady("driver")
			between(e)
			_, err := e.reconcileAfter(time.Second)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(e.reported()).To(Equal("True GPUReady"))
			e.Expect(e.eventReasons()).To(ConsistOf("Starting", "GPUReady"))
		})
	}
}

// The error of a write is in the entry, and the write is neither repeated immediately nor dropped by later events.
func TestFailedWrite(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.patchErr = errors.New("etcd is full")
	_, err := e.reconcileAfter(0)
	e.Expect(err).To(MatchError("patching labels of node a: etcd is full"))
	entry := e.fleet.Get("a")
	e.Expect(entry.WriteError).To(Equal("patching labels of node a: etcd is full"))
	e.Expect(entry.BasisVersion).To(Equal(uint64(1)), "it is still assessed")
	e.Expect(e.reconcileAfter(400*time.Millisecond)).To(Equal(600*time.Millisecond), "an event arrives meanwhile")
	e.Expect(e.fleet.Get("a").WriteError).NotTo(BeEmpty())
	e.patchErr = nil
	e.Expect(e.reconcileAfter(600 * time.Millisecond)).To(BeZero())
	e.Expect(e.fleet.Get("a").WriteError).To(BeEmpty())
	e.Expect(e.reported()).To(Equal("True GPUReady"))
}

func TestConflictIsNoError(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.patchErr = apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("it has changed"))
	e.Expect(e.reconcileAfter(0)).To(Equal(time.Second))
	e.Expect(e.fleet.Get("a").WriteError).To(BeEmpty())
	e.patchErr = nil
	e.Expect(e.reconcileAfter(500 * time.Millisecond)).To(Equal(500 * time.Millisecond))
	e.Expect(e.reported()).To(BeEmpty())
	e.Expect(e.reconcileAfter(500 * time.Millisecond)).To(BeZero())
	e.Expect(e.reported()).To(Equal("True GPUReady"))
}

// If the cache is older than the last write, nothing is decided.
func TestStaleNodeIsRequeued(t *testing.T) {
	e := newEnv(t)
	e.publish()
	stale := e.node()
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	written := e.node()
	entry := e.fleet.Get("a")
	inner, is := e.client.(client.WithWatch)
	e.Expect(is).To(BeTrue(), "a fake client watches")
	e.reconciler.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(
			_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
		) error {
			if node, isNode := object.(*corev1.Node); isNode {
				stale.DeepCopyInto(node)
			}
			return nil
		},
	})
	e.Expect(e.reconcileAfter(time.Second)).To(Equal(time.Second))
	e.Expect(e.fleet.Get("a")).To(BeIdenticalTo(entry))
	written.DeepCopyInto(stale)
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.fleet.Get("a").Writes.Version).To(BeEmpty(), "the write is shown")
}

func TestPausedPolicyWritesNothing(t *testing.T) {
	e := newEnv(t)
	e.spec.Paused = new(true)
	e.publish()
	version := e.node().ResourceVersion
	e.setPod("driver", crashes)
	_, err := e.reconcileAfter(0)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.node().ResourceVersion).To(Equal(version))
	e.Expect(e.fleet.Get("a").StatusAssessment().State).To(Equal(readiness.Failed), "it is still assessed")
	e.Expect(e.eventReasons()).To(BeEmpty())
}

// Without a policy everything that the operator has written is removed, and the assessment with it.
func TestNodeIsReleased(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.fleet.Publish(fleet.Basis{}, now)
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.reported()).To(BeEmpty())
	e.Expect(e.node().Labels).NotTo(HaveKey(labels.Pool))
	e.Expect(e.fleet.Get("a")).
		To(And(HaveField("BasisVersion", uint64(2)), HaveField("Latest", BeZero()), HaveField("Report", BeZero())))
	version := e.node().ResourceVersion
	e.Expect(e.reconcileAfter(time.Second)).To(BeZero())
	e.Expect(e.node().ResourceVersion).To(Equal(version))
}

func TestDeletedNodeIsForgotten(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.Expect(e.client.Delete(t.Context(), e.node())).To(Succeed())
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.Expect(e.fleet.Names()).To(BeEmpty())
}

// After a restart the fleet has the facts of all nodes before any of them is assessed.
func TestHydrate(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}})).To(Succeed())
	e.Expect(e.reconciler.Hydrate(t.Context())).To(Succeed())
	e.Expect(e.fleet.View()).
		To(And(HaveField("Hydrated", true), HaveField("Nodes", HaveExactElements(HaveField("Facts.Name", "a")))))
	e.Expect(e.reconciler.allNodes()).To(ConsistOf(requestFor("a"), requestFor("cpu")))
}

// The entry of a node without discovery labels has the state of its discovery pod.
func TestUndiscoveredNode(t *testing.T) {
	e := newEnv(t)
	node := e.node()
	node.Labels = nil
	e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
	e.publish()
	e.setPod("node-discovery", crashes)
	e.Expect(e.reconcileAfter(0)).To(BeZero())
	e.Expect(e.fleet.Get("a").Discovering).
		To(HaveKeyWithValue(operand.Name("node-discovery"), HaveField("State", readiness.Failed)))
	e.Expect(e.fleet.View().Undiscovered).To(HaveLen(1))
	e.Expect(e.node().Labels).To(BeEmpty())
}

// An entry does not keep the scope of its reconcile in memory, nor do later entries.
func TestEntryRetainsNoScope(t *testing.T) {
	e := newEnv(t)
	e.publish()
	var scopes []weak.Pointer[scope]
	for range 10 {
		s, err := e.reconciler.newScope(t.Context(), "a")
		e.Expect(err).NotTo(HaveOccurred())
		_, err = s.finish(s.reconcile(t.Context()))
		e.Expect(err).NotTo(HaveOccurred())
		scopes = append(scopes, weak.Make(s))
	}
	heap.Collect()
	alive := 0
	for _, s := range scopes[:9] {
		if s.Value() != nil {
			alive++
		}
	}
	e.Expect(alive).To(BeZero(), "of nine that have ended")
	runtime.KeepAlive(e)
}
