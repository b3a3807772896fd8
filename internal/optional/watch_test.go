package optional_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/notify"
	"github.com/clusterpolicy/gpu-operator/internal/optional"
)

var (
	errDown = errors.New("the aggregated API is down")
	monitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
)

// mapper answers as a test says.
type mapper struct {
	meta.RESTMapper
	mutex sync.Mutex
	err   error
	calls int
	// silent holds back every answer until it is closed.
	silent chan struct{}
}

func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mutex.Lock()
	m.calls++
	silent := m.silent
	m.mutex.Unlock()
	if silent != nil {
		<-silent
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(versions[0])}, m.err
}

func (m *mapper) answers(err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.err = err
}

// made is how many calls there were.
func (m *mapper) made() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.calls
}

func (m *mapper) hang() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.silent = make(chan struct{})
}

func (m *mapper) goOn() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.silent != nil {
		close(m.silent)
		m.silent = nil
	}
}

func absent() error {
	return &meta.NoKindMatchError{GroupKind: monitor.GroupKind(), SearchedVersions: []string{"v1"}}
}

// informers counts the watches that have begun and ended.
type informers struct {
	informertest.FakeInformers
	begun, ended int
	informer     syncedInformer
}

type syncedInformer struct{ *controllertest.FakeInformer }

func (syncedInformer) HasSynced() bool { return true }

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	i.begun++
	return i.informer, nil
}

func (i *informers) RemoveInformer(context.Context, client.Object) error {
	i.ended++
	return nil
}

// bed is a Watch that runs in a bubble of synctest.
type bed struct {
	*WithT
	*optional.Watch
	mapper    *mapper
	informers *informers
	signal    notify.Signal
	logged    func() []string
	ctx       context.Context //nolint:containedctx // that of one test
}

func inBubble(t *testing.T, test func(b bed)) {
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
		b := bed{
			WithT: NewWithT(t), mapper: &mapper{err: absent()}, signal: notify.New(), logged: lines,
			informers: &informers{informer: syncedInformer{&controllertest.FakeInformer{}}},
			ctx:       log.IntoContext(t.Context(), logger),
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(monitor)
		b.Watch = optional.New(optional.Options{
			Object: object, Cache: b.informers, Mapper: b.mapper, Clock: clock.RealClock{}, Changed: b.signal,
			Differs: func(before, after any) bool { return before != after },
		})
		running, stop := context.WithCancel(b.ctx)
		ended := make(chan error, 1)
		go func() { ended <- b.Start(running) }()
		test(b)
		b.mapper.goOn()
		stop()
		b.Expect(<-ended).To(Succeed())
	})
}

func (b bed) follow() optional.State {
	state, err := b.Follow(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	return state
}

func TestAKindIsWatchedWhileItIsNeeded(t *testing.T) {
	inBubble(t, func(b bed) {
		time.Sleep(time.Minute)
		b.Expect(b.mapper.made()).To(BeZero(), "nothing is discovered before Follow")
		b.Expect(b.follow()).To(Equal(optional.Absent))
		b.mapper.answers(nil)
		b.Expect(b.follow()).To(Equal(optional.Absent))
		b.Expect(b.signal.Events()).NotTo(Receive())
		time.Sleep(10 * time.Second)
		b.Expect(b.signal.Events()).To(Receive(), "the kind is served now")
		b.Expect(b.informers.begun).To(BeZero())
		b.Expect(b.follow()).To(Equal(optional.Served))
		b.Expect(b.Watching()).To(BeTrue())
		b.Expect(b.Synced(b.ctx)).To(BeTrue())
		time.Sleep(time.Second)
		b.Expect(b.signal.Events()).To(Receive(), "the cache has synced")

		b.mapper.answers(errDown)
		time.Sleep(time.Minute)
		b.Expect(b.follow()).To(Equal(optional.Served), "it is not discovered again")
		b.Expect(b.signal.Events()).NotTo(Receive())
		b.Expect(b.informers.begun).To(Equal(1))

		b.Expect(b.Forget(b.ctx)).To(Succeed())
		b.Expect(b.Forget(b.ctx)).To(Succeed(), "a second time changes nothing")
		b.Expect(b.Watching()).To(BeFalse())
		b.Expect(b.Synced(b.ctx)).To(BeFalse())
		b.Expect(b.informers.ended).To(Equal(1))
		b.mapper.answers(nil)
		b.Expect(b.follow()).To(Equal(optional.Served), "the next request is answered immediately")
	})
}

func TestDiscoveryBacksOff(t *testing.T) {
	inBubble(t, func(b bed) {
		b.Expect(b.follow()).To(Equal(optional.Absent))
		time.Sleep(time.Second)
		b.Expect(b.mapper.made()).To(Equal(4), "after 0, 0.1, 0.3 and 0.7 s")
		time.Sleep(10 * time.Minute)
		b.Expect(b.mapper.made()).To(BeNumerically("~", 67, 3), "every 10 s at last")
		before := b.mapper.made()
		b.Expect(b.Forget(b.ctx)).To(Succeed())
		time.Sleep(time.Hour)
		b.Expect(b.mapper.made()).To(Equal(before))
	})
}

// A failure is logged once, and a pass is due when it is over.
func TestDiscoveryThatFails(t *testing.T) {
	inBubble(t, func(b bed) {
		b.mapper.answers(errDown)
		b.Expect(b.follow()).To(Equal(optional.Unknown))
		time.Sleep(time.Minute)
		b.Expect(b.follow()).To(Equal(optional.Unknown))
		b.Expect(b.logged()).To(ConsistOf(And(ContainSubstring(errDown.Error()), ContainSubstring("ServiceMonitor"))))
		b.Expect(b.signal.Events()).NotTo(Receive())
		b.mapper.answers(absent())
		time.Sleep(10 * time.Second)
		b.Expect(b.signal.Events()).To(Receive(), "it is known now that there is no such kind")
		b.Expect(b.follow()).To(Equal(optional.Absent))
		b.mapper.answers(errDown)
		time.Sleep(10 * time.Second)
		b.Expect(b.logged()).To(HaveLen(2), "it has failed anew")
	})
}

// An API server that does not answer holds up the first calls for a moment, and gets no second request.
func TestDiscoveryThatHangs(t *testing.T) {
	inBubble(t, func(b bed) {
		b.mapper.hang()
		b.mapper.answers(nil)
		begin := time.Now()
		b.Look()
		b.Expect(time.Since(begin)).To(BeZero())
		b.Expect(b.follow()).To(Equal(optional.Unknown))
		b.Expect(time.Since(begin)).To(Equal(2 * time.Second))
		b.Expect(b.follow()).To(Equal(optional.Unknown))
		b.Expect(time.Since(begin)).To(Equal(2*time.Second), "only the first calls wait")
		time.Sleep(time.Hour)
		b.Expect(b.mapper.made()).To(Equal(1))
		b.Expect(b.logged()).To(ConsistOf(ContainSubstring("has not answered yet")))
		b.mapper.goOn()
		time.Sleep(10 * time.Second)
		b.Expect(b.signal.Events()).To(Receive())
		b.Expect(b.follow()).To(Equal(optional.Served))
	})
}

func TestAnAnswerThatComesLateIsNotified(t *testing.T) {
	inBubble(t, func(b bed) {
		b.mapper.hang()
		b.mapper.answers(nil)
		b.Expect(b.follow()).To(Equal(optional.Unknown))
		b.mapper.goOn()
		time.Sleep(time.Second)
		b.Expect(b.signal.Events()).To(Receive())
		b.Expect(b.mapper.made()).To(Equal(1))
	})
}

func TestChangesOfObjectsAreNotified(t *testing.T) {
	inBubble(t, func(b bed) {
		b.mapper.answers(nil)
		b.Expect(b.follow()).To(Equal(optional.Served))
		time.Sleep(time.Second)
		b.Expect(b.signal.Events()).To(Receive(), "the cache has synced")
		one, other := &corev1.Pod{}, &corev1.Pod{}
		for name, change := range map[string]func(){
			"an object is added":   func() { b.informers.informer.Add(one) },
			"an object is changed": func() { b.informers.informer.Update(one, other) },
			"an object is deleted": func() { b.informers.informer.Delete(one) },
		} {
			change()
			b.Expect(b.signal.Events()).To(Receive(), name)
		}
		b.informers.informer.Update(one, one)
		b.Expect(b.signal.Events()).NotTo(Receive(), "an update that changes nothing")
	})
}
