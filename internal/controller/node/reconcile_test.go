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

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

func TestANodeThatWorksHasOneWriteOfItsCondition(t *testing.T) {
	r := newRig(t)
	r.Expect(r.after(0)).To(BeZero())
	r.Expect(r.fleet.Get("a")).To(HaveField("Basis", BeZero()), "there is nothing to assess it by")
	r.Expect(r.node().Labels).NotTo(HaveKey(labels.Pool))
	r.publish()
	r.Expect(r.after(time.Second)).To(BeZero())
	r.Expect(r.reported()).To(Equal("True GPUReady"))
	r.Expect(r.node().Labels).To(HaveKeyWithValue(labels.Pool, "ubuntu24.04-amd64"))
	entry := r.fleet.Get("a")
	r.Expect(entry.Basis).To(Equal(uint64(1)))
	r.Expect(entry.Facts.Pool).To(Equal("ubuntu24.04-amd64"), "as the labels have left it")
	r.Expect(entry.StatusAssessment().Ready()).To(BeTrue())
	r.Expect(entry.Latest.Since).To(Equal(now.Add(time.Second)))
	version := r.node().ResourceVersion
	for range 3 {
		r.Expect(r.after(time.Minute)).To(BeZero())
	}
	r.Expect(r.node().ResourceVersion).To(Equal(version))
	r.Expect(r.conditions).To(Equal(1))
	r.Expect(r.fleet.Get("a").Latest.Since).To(Equal(now.Add(time.Second)))
	r.Expect(r.eventReasons()).To(BeEmpty())
}

// The stages of a node that is starting are written once they have lasted, also the first one.
func TestStagesAreWrittenOnceTheyHaveLasted(t *testing.T) {
	const s = time.Second
	t.Run("ready before", func(t *testing.T) {
		r := newRig(t)
		r.publish()
		r.pod("driver", starts)
		r.Expect(r.after(0)).To(Equal(10 * s))
		r.works("driver")
		r.pod("container-toolkit", starts)
		r.Expect(r.after(9 * s)).To(Equal(10 * s))
		r.Expect(r.reported()).To(BeEmpty())
		r.works("container-toolkit")
		r.Expect(r.after(9 * s)).To(BeZero())
		r.Expect(r.reported()).To(Equal("True GPUReady"))
		r.Expect(r.conditions).To(Equal(1))
		r.Expect(r.fleet.Get("a").Writes.Stage).To(BeEmpty())
	})
	t.Run("failed before", func(t *testing.T) {
		r := newRig(t)
		r.publish()
		r.pod("driver", starts)
		r.Expect(r.after(0)).To(Equal(10 * s))
		r.pod("driver", crashes)
		_, err := r.after(s)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.reported()).To(Equal("False CrashLoopBackOff"))
		r.Expect(r.eventReasons()).To(ConsistOf("CrashLoopBackOff"))
	})
	t.Run("lasting", func(t *testing.T) {
		r := newRig(t)
		r.publish()
		r.pod("driver", starts)
		r.Expect(r.after(0)).To(Equal(10 * s))
		r.Expect(r.after(9 * s)).To(Equal(s))
		r.Expect(r.reported()).To(BeEmpty())
		_, err := r.after(s)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.reported()).To(Equal("False Starting"))
		r.Expect(assess.GPUReadyCondition(r.node()).LastTransitionTime.Time).To(BeTemporally("==", now))
		r.works("driver")
		r.pod("container-toolkit", starts)
		r.Expect(r.after(s)).To(Equal(10 * s))
		_, err = r.after(10 * s)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(assess.GPUReadyCondition(r.node()).Message).To(ContainSubstring("stage Toolkit"))
		r.works("container-toolkit")
		r.pod("device-plugin", starts)
		r.Expect(r.after(s)).To(Equal(40*s), "a longer way, fewer writes")
		r.Expect(r.conditions).To(Equal(2))
	})
	t.Run("over before it was written", func(t *testing.T) {
		r := newRig(t)
		r.publish()
		r.pod("driver", starts)
		_, err := r.after(0)
		r.Expect(err).NotTo(HaveOccurred())
		_, err = r.after(10 * s)
		r.Expect(err).NotTo(HaveOccurred())
		r.works("driver")
		r.pod("container-toolkit", starts)
		r.Expect(r.after(s)).To(Equal(10 * s))
		r.Expect(r.reconciler.hasWritten("a", assess.GPUReadyCondition(r.node()))).To(BeFalse(), "another one is due")
		r.pod("driver", starts)
		r.works("container-toolkit")
		_, err = r.after(s)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.reconciler.hasWritten("a", assess.GPUReadyCondition(r.node()))).To(BeTrue())
		r.works("driver")
		r.pod("container-toolkit", starts)
		r.Expect(r.after(time.Minute)).To(Equal(10*s), "it begins anew")
		r.Expect(r.conditions).To(Equal(1))
	})
}

// A pod that is replaced within four seconds changes neither the condition nor what the policy reports.
func TestAReplacedPodIsReportedOnceThatHasLasted(t *testing.T) {
	r := newRig(t)
	r.publish()
	r.Expect(r.after(0)).To(BeZero())
	r.pod("driver", starts)
	r.Expect(r.after(time.Minute)).To(Equal(4 * time.Second))
	r.Expect(r.reported()).To(Equal("True GPUReady"))
	r.Expect(r.fleet.Get("a").StatusAssessment().Ready()).To(BeTrue())
	r.Expect(r.fleet.Get("a").Latest.Ready()).To(BeFalse())
	_, err := r.after(4 * time.Second)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.reported()).To(Equal("False Starting"))
	r.Expect(assess.GPUReadyCondition(r.node()).LastTransitionTime.Time).To(BeTemporally("==", now.Add(time.Minute)), "since the pod went")
	r.Expect(r.fleet.Get("a").StatusAssessment().Since).To(Equal(now.Add(time.Minute)))
	r.works("driver")
	r.Expect(r.after(time.Second)).To(BeZero())
	r.Expect(r.reported()).To(Equal("True GPUReady"))
	r.Expect(r.eventReasons()).To(BeEmpty(), "it had not failed")
}

// A node that was overdue has one Event when it is ready, whatever stages it passes by then.
func TestANodeThatWasOverdueIsReportedWhenItIsReady(t *testing.T) {
	for name, between := range map[string]func(*rig){
		"at once":         func(*rig) {},
		"after a restart": func(*rig) {},
		"after a stage that is not written": func(r *rig) {
			r.pod("container-toolkit", starts)
			_, err := r.after(time.Second)
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(assess.GPUReadyCondition(r.node()).Message).To(ContainSubstring("not ready after 30m"))
			r.works("container-toolkit")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.publish()
			r.pod("driver", starts)
			for range 2 {
				_, err := r.after(31 * time.Minute)
				r.Expect(err).NotTo(HaveOccurred())
			}
			r.Expect(assess.GPUReadyCondition(r.node()).Message).To(ContainSubstring("not ready after 30m"))
			r.Expect(r.eventReasons()).To(ConsistOf("Starting"))
			if name == "after a restart" {
				r.fleet.Delete("a")
				_, err := r.after(time.Second)
				r.Expect(err).NotTo(HaveOccurred())
			}
			r.works("driver")
			between(r)
			_, err := r.after(time.Second)
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(r.reported()).To(Equal("True GPUReady"))
			r.Expect(r.eventReasons()).To(ConsistOf("Starting", "GPUReady"))
		})
	}
}

// A write that fails is entered, and neither repeated at once nor forgotten by what happens meanwhile.
func TestAWriteThatFails(t *testing.T) {
	r := newRig(t)
	r.publish()
	r.refuses = errors.New("etcd is full")
	_, err := r.after(0)
	r.Expect(err).To(MatchError("patching labels of node a: etcd is full"))
	entry := r.fleet.Get("a")
	r.Expect(entry.WriteError).To(Equal("patching labels of node a: etcd is full"))
	r.Expect(entry.Basis).To(Equal(uint64(1)), "it is assessed all the same")
	r.Expect(r.after(400*time.Millisecond)).To(Equal(600*time.Millisecond), "an event comes meanwhile")
	r.Expect(r.fleet.Get("a").WriteError).NotTo(BeEmpty())
	r.refuses = nil
	r.Expect(r.after(600 * time.Millisecond)).To(BeZero())
	r.Expect(r.fleet.Get("a").WriteError).To(BeEmpty())
	r.Expect(r.reported()).To(Equal("True GPUReady"))
}

func TestAConflictIsNoError(t *testing.T) {
	r := newRig(t)
	r.publish()
	r.refuses = apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("it has changed"))
	r.Expect(r.after(0)).To(Equal(time.Second))
	r.Expect(r.fleet.Get("a").WriteError).To(BeEmpty())
	r.refuses = nil
	r.Expect(r.after(500 * time.Millisecond)).To(Equal(500 * time.Millisecond))
	r.Expect(r.reported()).To(BeEmpty())
	r.Expect(r.after(500 * time.Millisecond)).To(BeZero())
	r.Expect(r.reported()).To(Equal("True GPUReady"))
}

// The cache may be older than the last write: nothing is decided by it then.
func TestAStaleNodeIsReadAgainLater(t *testing.T) {
	r := newRig(t)
	r.publish()
	stale := r.node()
	r.Expect(r.after(0)).To(BeZero())
	written := r.node()
	entry := r.fleet.Get("a")
	inner, is := r.client.(client.WithWatch)
	r.Expect(is).To(BeTrue(), "a fake client watches")
	r.reconciler.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if node, isNode := object.(*corev1.Node); isNode {
				stale.DeepCopyInto(node)
			}
			return nil
		},
	})
	r.Expect(r.after(time.Second)).To(Equal(time.Second))
	r.Expect(r.fleet.Get("a")).To(BeIdenticalTo(entry))
	written.DeepCopyInto(stale)
	r.Expect(r.after(time.Second)).To(BeZero())
	r.Expect(r.fleet.Get("a").Writes.Version).To(BeEmpty(), "the write is shown")
}

func TestAPausedPolicyWritesNothing(t *testing.T) {
	r := newRig(t)
	r.spec.Paused = new(true)
	r.publish()
	version := r.node().ResourceVersion
	r.pod("driver", crashes)
	_, err := r.after(0)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.node().ResourceVersion).To(Equal(version))
	r.Expect(r.fleet.Get("a").StatusAssessment().State).To(Equal(readiness.Failed), "it is assessed all the same")
	r.Expect(r.eventReasons()).To(BeEmpty())
}

// Without a policy all goes that the operator has written, and the verdict with it.
func TestANodeIsReleased(t *testing.T) {
	r := newRig(t)
	r.publish()
	r.Expect(r.after(0)).To(BeZero())
	r.fleet.Publish(fleet.Basis{}, now)
	r.Expect(r.after(time.Second)).To(BeZero())
	r.Expect(r.reported()).To(BeEmpty())
	r.Expect(r.node().Labels).NotTo(HaveKey(labels.Pool))
	r.Expect(r.fleet.Get("a")).To(And(HaveField("Basis", uint64(2)), HaveField("Latest", BeZero()), HaveField("Report", BeZero())))
	version := r.node().ResourceVersion
	r.Expect(r.after(time.Second)).To(BeZero())
	r.Expect(r.node().ResourceVersion).To(Equal(version))
}

func TestANodeThatIsGoneIsForgotten(t *testing.T) {
	r := newRig(t)
	r.publish()
	r.Expect(r.after(0)).To(BeZero())
	r.Expect(r.client.Delete(t.Context(), r.node())).To(Succeed())
	r.Expect(r.after(0)).To(BeZero())
	r.Expect(r.fleet.Names()).To(BeEmpty())
}

// After a restart all nodes are known by their facts before any of them is assessed.
func TestHydrate(t *testing.T) {
	r := newRig(t)
	r.Expect(r.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}})).To(Succeed())
	r.Expect(r.reconciler.Hydrate(t.Context())).To(Succeed())
	r.Expect(r.fleet.View()).To(And(HaveField("Hydrated", true), HaveField("Nodes", HaveExactElements(HaveField("Facts.Name", "a")))))
	r.Expect(r.reconciler.everyNode()).To(ConsistOf(named("a"), named("cpu")))
}

// A node without discovery labels is entered with how its discovery fares.
func TestANodeThatIsNotDiscovered(t *testing.T) {
	r := newRig(t)
	node := r.node()
	node.Labels = nil
	r.Expect(r.client.Update(t.Context(), node)).To(Succeed())
	r.publish()
	r.pod("node-discovery", crashes)
	r.Expect(r.after(0)).To(BeZero())
	r.Expect(r.fleet.Get("a").Discovering).To(HaveKeyWithValue(operand.Name("node-discovery"), HaveField("State", readiness.Failed)))
	r.Expect(r.fleet.View().Undiscovered).To(HaveLen(1))
	r.Expect(r.node().Labels).To(BeEmpty())
}

// What a reconcile needed is not kept by the entry that it leaves, nor by those after it.
func TestAnEntryKeepsNoReconcileAlive(t *testing.T) {
	r := newRig(t)
	r.publish()
	var scopes []weak.Pointer[scope]
	for range 10 {
		s, err := r.reconciler.newScope(t.Context(), "a")
		r.Expect(err).NotTo(HaveOccurred())
		_, err = s.close(s.reconcile(t.Context()))
		r.Expect(err).NotTo(HaveOccurred())
		scopes = append(scopes, weak.Make(s))
	}
	runtime.GC()
	runtime.GC()
	alive := 0
	for _, s := range scopes[:9] {
		if s.Value() != nil {
			alive++
		}
	}
	r.Expect(alive).To(BeZero(), "of nine that are over")
	runtime.KeepAlive(r)
}
