package optional_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/optional"
)

// The package itself does not link the manager: kubectl-gpu, which has none, reads the same observations.
var _ manager.LeaderElectionRunnable = (*optional.Watch)(nil)

var (
	errDown = errors.New("the aggregated API is down")
	monitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
)

// mapper is a RESTMapper whose answer a test sets.
type mapper struct {
	meta.RESTMapper
	mutex sync.Mutex
	err   error
	calls int
	// blocked delays every answer until it is closed.
	blocked chan struct{}
}

func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mutex.Lock()
	m.calls++
	blocked := m.blocked
	m.mutex.Unlock()
	if blocked != nil {
		<-blocked
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(versions[0])}, m.err
}

func (m *mapper) setError(err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.err = err
}

// callCount returns the number of calls.
func (m *mapper) callCount() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.calls
}

func (m *mapper) block() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.blocked = make(chan struct{})
}

func (m *mapper) unblock() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.blocked != nil {
		close(m.blocked)
		m.blocked = nil
	}
}

func absent() error {
	return &meta.NoKindMatchError{GroupKind: monitor.GroupKind(), SearchedVersions: []string{"v1"}}
}

// informers counts the watches that were started and stopped.
type informers struct {
	informertest.FakeInformers
	started, stopped int
	// err is what a start or stop returns.
	err      error
	informer syncedInformer
}

type syncedInformer struct {
	*controllertest.FakeInformer
	// behind: the informer has not synced.
	behind *atomic.Bool
}

func (i syncedInformer) HasSynced() bool { return !i.behind.Load() }

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	i.started++
	return i.informer, i.err
}

func (i *informers) RemoveInformer(context.Context, client.Object) error {
	i.stopped++
	return i.err
}

// env is a Watch that runs in a bubble of synctest.
type env struct {
	*WithT
	*optional.Watch
	mapper    *mapper
	informers *informers
	signal    notify.Signal
	logged    func() []string
	ctx       context.Context //nolint:containedctx // that of one test
}

func inBubble(t *testing.T, test func(e env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var (
			mutex  sync.Mutex
			logged []string
		)
		logger := funcr.New(func(_, args string) {
			mutex.Lock()
			defer mutex.Unlock()
			logged = append(logged, args)
		}, funcr.Options{})
		lines := func() []string {
			mutex.Lock()
			defer mutex.Unlock()
			return slices.Clone(logged)
		}
		e := env{
			WithT: NewWithT(t), mapper: &mapper{err: absent()}, signal: notify.New(), logged: lines,
			informers: &informers{informer: syncedInformer{&controllertest.FakeInformer{}, &atomic.Bool{}}},
			ctx:       log.IntoContext(t.Context(), logger),
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(monitor)
		e.Watch = optional.New(optional.Options{
			Object: object, Cache: e.informers, Mapper: e.mapper, Clock: clock.RealClock{}, Changed: e.signal,
			Differs: func(before, after any) bool {
				one, isOne := before.(*corev1.Pod)
				other, isOther := after.(*corev1.Pod)
				return isOne && isOther && one.Name < other.Name
			},
		})
		running, stop := context.WithCancel(e.ctx)
		ended := make(chan error, 1)
		go func() { ended <- e.Start(running) }()
		test(e)
		e.mapper.unblock()
		stop()
		e.Expect(<-ended).To(Succeed())
	})
}

func (e env) ensureWatch() optional.State {
	state, err := e.EnsureWatch(e.ctx)
	e.Expect(err).NotTo(HaveOccurred())
	return state
}

func TestAKindIsWatchedWhileItIsNeeded(t *testing.T) {
	inBubble(t, func(e env) {
		time.Sleep(time.Minute)
		e.Expect(e.mapper.callCount()).To(BeZero(), "nothing is discovered before EnsureWatch")
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		e.mapper.setError(nil)
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		e.Expect(e.signal.Events()).NotTo(Receive())
		time.Sleep(10 * time.Second)
		e.Expect(e.signal.Events()).To(Receive(), "the kind is served now")
		e.Expect(e.informers.started).To(BeZero())
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
		e.Expect(e.Watching()).To(BeTrue())
		e.Expect(e.Synced(e.ctx)).To(BeTrue())
		time.Sleep(time.Second)
		e.Expect(e.signal.Events()).To(Receive(), "the cache has synced")

		e.mapper.setError(errDown)
		time.Sleep(time.Minute)
		e.Expect(e.ensureWatch()).To(Equal(optional.Served), "it is not discovered again")
		e.Expect(e.signal.Events()).NotTo(Receive())
		e.Expect(e.informers.started).To(Equal(1))

		e.Expect(e.StopWatch(e.ctx)).To(Succeed())
		e.Expect(e.StopWatch(e.ctx)).To(Succeed(), "a second time changes nothing")
		e.Expect(e.Watching()).To(BeFalse())
		e.Expect(e.Synced(e.ctx)).To(BeFalse())
		e.Expect(e.informers.stopped).To(Equal(1))
		e.mapper.setError(nil)
		e.Expect(e.ensureWatch()).To(Equal(optional.Served), "the next request is answered immediately")
	})
}

func TestDiscoveryBacksOff(t *testing.T) {
	inBubble(t, func(e env) {
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		time.Sleep(time.Second)
		e.Expect(e.mapper.callCount()).To(Equal(4), "after 0, 0.1, 0.3 and 0.7 s")
		time.Sleep(10 * time.Minute)
		e.Expect(e.mapper.callCount()).To(BeNumerically("~", 67, 3), "every 10 s at last")
		before := e.mapper.callCount()
		e.Expect(e.StopWatch(e.ctx)).To(Succeed())
		time.Sleep(time.Hour)
		e.Expect(e.mapper.callCount()).To(Equal(before))
	})
}

// A failure is logged once, and the signal is notified when it is over.
func TestDiscoveryThatFails(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.setError(errDown)
		e.Expect(e.ensureWatch()).To(Equal(optional.Unknown))
		time.Sleep(time.Minute)
		e.Expect(e.ensureWatch()).To(Equal(optional.Unknown))
		e.Expect(e.logged()).To(ConsistOf(And(ContainSubstring(errDown.Error()), ContainSubstring("ServiceMonitor"))))
		e.Expect(e.signal.Events()).NotTo(Receive())
		e.mapper.setError(absent())
		time.Sleep(10 * time.Second)
		e.Expect(e.signal.Events()).To(Receive(), "the kind is not served")
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		e.mapper.setError(errDown)
		time.Sleep(10 * time.Second)
		e.Expect(e.logged()).To(HaveLen(2), "a failure after a success is logged")
	})
}

// An API server that does not answer delays the first calls for 2 s, and gets no second request.
func TestDiscoveryThatHangs(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.block()
		e.mapper.setError(nil)
		begin := time.Now()
		e.StartDiscovery()
		e.Expect(time.Since(begin)).To(BeZero())
		synctest.Wait()
		e.Expect(e.mapper.callCount()).To(Equal(1))
		e.Expect(e.ensureWatch()).To(Equal(optional.Unknown))
		e.Expect(time.Since(begin)).To(Equal(2 * time.Second))
		e.Expect(e.ensureWatch()).To(Equal(optional.Unknown))
		e.Expect(time.Since(begin)).To(Equal(2*time.Second), "only the first calls wait")
		time.Sleep(time.Hour)
		e.Expect(e.mapper.callCount()).To(Equal(1))
		e.Expect(e.logged()).To(ConsistOf(ContainSubstring("has not answered yet")))
		e.mapper.unblock()
		time.Sleep(10 * time.Second)
		e.Expect(e.signal.Events()).To(Receive())
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
	})
}

func TestALateAnswerIsNotified(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.block()
		e.mapper.setError(nil)
		e.Expect(e.ensureWatch()).To(Equal(optional.Unknown))
		e.mapper.unblock()
		time.Sleep(time.Second)
		e.Expect(e.signal.Events()).To(Receive())
		e.Expect(e.mapper.callCount()).To(Equal(1))
		e.Expect(e.StopWatch(e.ctx)).To(Succeed())
		e.mapper.setError(absent())
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		e.Expect(e.signal.Events()).NotTo(Receive(), "the next answer is not late")
	})
}

// A retry of an earlier request is none of the next one.
func TestAKindThatIsServedIsNotDiscoveredAgain(t *testing.T) {
	inBubble(t, func(e env) {
		e.Expect(e.NeedLeaderElection()).To(BeTrue())
		e.Expect(e.ensureWatch()).To(Equal(optional.Absent))
		e.Expect(e.StopWatch(e.ctx)).To(Succeed())
		e.mapper.setError(nil)
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
		time.Sleep(time.Minute)
		e.Expect(e.mapper.callCount()).To(Equal(2))
	})
}

func TestFailuresOfTheCacheAreReturned(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.setError(nil)
		e.informers.err = errDown
		_, err := e.EnsureWatch(e.ctx)
		e.Expect(err).To(MatchError(errDown))
		e.Expect(e.Watching()).To(BeFalse())
		e.informers.err = nil
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
		e.informers.err = errDown
		e.Expect(e.StopWatch(e.ctx)).To(MatchError(errDown))
		e.Expect(e.Watching()).To(BeTrue())
	})
}

// A cache that syncs after its watch was stopped changes nothing.
func TestAStoppedWatchIsNotNotified(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.setError(nil)
		e.informers.informer.behind.Store(true)
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
		e.Expect(e.StopWatch(e.ctx)).To(Succeed())
		time.Sleep(time.Second)
		e.informers.informer.behind.Store(false)
		time.Sleep(time.Second)
		e.Expect(e.signal.Events()).NotTo(Receive())
	})
}

func TestChangesOfObjectsAreNotified(t *testing.T) {
	inBubble(t, func(e env) {
		e.mapper.setError(nil)
		e.Expect(e.ensureWatch()).To(Equal(optional.Served))
		time.Sleep(time.Second)
		e.Expect(e.signal.Events()).To(Receive(), "the cache has synced")
		one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		for name, change := range map[string]func(){
			"an object is added":   func() { e.informers.informer.Add(one) },
			"an object is changed": func() { e.informers.informer.Update(one, other) },
			"an object is deleted": func() { e.informers.informer.Delete(one) },
		} {
			change()
			e.Expect(e.signal.Events()).To(Receive(), name)
		}
		e.informers.informer.Update(one, one)
		e.Expect(e.signal.Events()).NotTo(Receive(), "an update that changes nothing")
	})
}

// Synced waits for the sync for 2 s from the start of the watch on, and a later sync is notified.
func TestSyncIsAwaited(t *testing.T) {
	for name, test := range map[string]struct {
		after, waited time.Duration
		synced        bool
	}{
		"soon": {after: time.Second, waited: time.Second, synced: true},
		"late": {after: 5 * time.Second, waited: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e env) {
				e.mapper.setError(nil)
				e.informers.informer.behind.Store(true)
				e.Expect(e.ensureWatch()).To(Equal(optional.Served))
				time.AfterFunc(test.after, func() { e.informers.informer.behind.Store(false) })
				begin := time.Now()
				e.Expect(e.Synced(e.ctx)).To(Equal(test.synced))
				e.Expect(e.Synced(e.ctx)).To(Equal(test.synced))
				e.Expect(time.Since(begin)).To(BeNumerically("~", test.waited, 200*time.Millisecond), "only once")
				if !test.synced {
					e.Expect(e.signal.Events()).NotTo(Receive())
				}
				time.Sleep(5 * time.Second)
				e.Expect(e.signal.Events()).To(Receive(), "the cache has synced")
				e.Expect(e.Synced(e.ctx)).To(BeTrue())
			})
		})
	}
}
