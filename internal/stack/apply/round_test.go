package apply

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hangingWebhook blocks writes of the named object until it is released, with this error, or the caller's context ends.
type hangingWebhook struct {
	name     string
	released chan error
}

func newHangingWebhook(name string) *hangingWebhook {
	return &hangingWebhook{name: name, released: make(chan error, 1)}
}

func (h *hangingWebhook) call(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetName() != h.name {
		return nil
	}
	select {
	case err := <-h.released:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func configMaps(names ...string) []client.Object {
	var objects []client.Object
	for _, name := range names {
		objects = append(objects, configMap(name))
	}
	return objects
}

// waiting ends the error of a call without an answer.
const waiting = "; still waiting: if this lasts, check the API server and its admission webhooks"

// elapsed returns how long the function takes, by the clock of the synctest bubble.
func elapsed(do func()) time.Duration {
	before := time.Now()
	do()
	return time.Since(before)
}

func TestHangingCallDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, webhook := newCluster(t), newHangingWebhook("b")
		c.admit(webhook.call)
		applier := c.applier()
		intents := configMaps("a", "b", "c")
		round := func() (results []Result) {
			results = applier.ApplyAll(t.Context(), policy, intents)
			return results
		}
		var results []Result
		g.Expect(elapsed(func() { results = round() })).To(Equal(1500 * time.Millisecond))
		g.Expect(results[0]).To(Equal(Result{Wrote: true}))
		g.Expect(results[1].Err).To(MatchError(ErrInFlight))
		g.Expect(results[1].Err).To(MatchError("applying ConfigMap b: no answer from the API server for 2s" + waiting))
		g.Expect(results[2]).To(Equal(Result{Wrote: true}))

		time.Sleep(4 * time.Second)
		g.Expect(elapsed(func() { results = round() })).To(BeZero(), "a call in flight is not waited for again")
		g.Expect(results[0]).To(Equal(Result{}))
		g.Expect(results[1].Err).To(MatchError("applying ConfigMap b: no answer from the API server for 6s" + waiting))
		g.Expect(c.writes()).To(ConsistOf("a", "b", "c"), "no second call")
		g.Expect(applier.RetryAfter()).To(BeZero(), "its answer causes an event")
		g.Expect(applier.Events()).NotTo(Receive())

		webhook.released <- nil
		synctest.Wait()
		g.Expect(applier.Events()).To(Receive())
		g.Expect(round()).To(HaveEach(Result{}))
		g.Expect(c.writes()).To(HaveLen(3))
		g.Expect(applier.Events()).NotTo(Receive())
	})
}

func TestLateFailureIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, webhook := newCluster(t), newHangingWebhook("a")
		c.admit(webhook.call)
		applier := c.applier()
		_, err := applyOne(applier, configMap("a"))
		g.Expect(err).To(MatchError(ErrInFlight))
		webhook.released <- errors.New("the webhook timed out")
		synctest.Wait()
		g.Expect(applier.Events()).To(Receive())

		// The back-off starts when the failure is returned, however late that is.
		time.Sleep(time.Minute)
		for range 50 {
			_, err = applyOne(applier, configMap("a"))
			g.Expect(err).To(MatchError("applying ConfigMap a: the webhook timed out"))
		}
		g.Expect(c.writes()).To(HaveLen(1))
		g.Expect(applier.RetryAfter()).To(Equal(time.Second))

		// During the retry the failure is still reported.
		time.Sleep(time.Second)
		for range 3 {
			_, err = applyOne(applier, configMap("a"))
			g.Expect(err).To(MatchError("applying ConfigMap a: the webhook timed out"))
		}
		g.Expect(c.writes()).To(HaveLen(2))
		webhook.released <- nil
		synctest.Wait()
		g.Expect(applier.Events()).To(Receive())
		g.Expect(applyOne(applier, configMap("a"))).To(BeFalse())
		g.Expect(c.writes()).To(HaveLen(2))
	})
}

// A late answer to an older intent does not hold the new one back.
func TestLateFailureOfAnOlderIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, webhook := newCluster(t), newHangingWebhook("a")
		c.admit(webhook.call)
		applier := c.applier()
		changed := configMap("a", func(c *corev1.ConfigMap) { c.Data["key"] = "new" })
		_, err := applyOne(applier, configMap("a"))
		g.Expect(err).To(MatchError(ErrInFlight))
		_, err = applyOne(applier, changed)
		g.Expect(err).To(MatchError(ErrInFlight), "one call at a time")
		webhook.released <- errors.New("refused")
		synctest.Wait()
		c.admit(nil)
		g.Expect(applyOne(applier, changed)).To(BeTrue())
		g.Expect(c.get(t, "a").Data).To(HaveKeyWithValue("key", "new"))
	})
}

func TestCallEndsAtItsDeadline(t *testing.T) {
	for name, ctx := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"while the manager runs": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"in a shutdown":          context.WithCancel,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c := newCluster(t)
				c.admit(newHangingWebhook("a").call)
				applier := c.applier()
				ctx, cancel := ctx(t.Context())
				var results []Result
				elapsed := elapsed(func() {
					time.AfterFunc(time.Second, cancel)
					results = applier.ApplyAll(ctx, policy, configMaps("a"))
				})
				g.Expect(results[0].Err).To(MatchError(ErrInFlight))
				if ctx.Err() != nil {
					g.Expect(elapsed).To(Equal(time.Second), "the round ends with its context")
				}
				time.Sleep(30*time.Second - elapsed - time.Millisecond)
				synctest.Wait()
				g.Expect(applier.Events()).NotTo(Receive())
				time.Sleep(time.Millisecond)
				synctest.Wait()
				g.Expect(applier.Events()).To(Receive())
				_, err := applyOne(applier, configMap("a"))
				g.Expect(err).To(MatchError(context.DeadlineExceeded))
			})
		})
	}
}

// After a shutdown no call starts, neither one that waits for a slot nor the first of a round.
func TestNoCallStartsAfterAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, webhook := newCluster(t), newHangingWebhook("a")
		c.admit(webhook.call)
		timing := DefaultTiming()
		timing.MaxCalls = 1
		applier := New(c, c, clock.RealClock{}, timing)
		ctx, cancel := context.WithCancel(t.Context())
		first := applier.ApplyAll(ctx, policy, configMaps("a"))
		g.Expect(first[0].Err).To(MatchError(ErrInFlight))
		cancel()
		results := applier.ApplyAll(ctx, policy, configMaps("b", "c"))
		for i, name := range []string{"b", "c"} {
			g.Expect(results[i].Err).To(MatchError(ContainSubstring("ConfigMap " + name + ": ")))
		}
		synctest.Wait()
		g.Expect(c.writes()).To(Equal([]string{"a"}))
		// Calls that were not started have no back-off.
		g.Expect(applier.ApplyAll(t.Context(), policy, configMaps("b", "c"))).To(HaveEach(Result{Wrote: true}))
		webhook.released <- nil
	})
}

func TestErrorsOfWhatWasNotSent(t *testing.T) {
	g := NewWithT(t)
	applier := New(newCluster(t), nil, clock.RealClock{}, Timing{Deadline: time.Minute, RoundTimeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Without a slot, nothing can start.
	c := applier.enqueue(ctx, configMap("a"), "applying ConfigMap a", nil)
	<-c.done
	g.Expect(c.result.Err).To(MatchError(
		"applying ConfigMap a: cancelled before the request was sent: context canceled"))
	g.Expect(applier.request(ctx, "reading Pod a", nil)).To(MatchError(
		"reading Pod a: cancelled before the request was sent: context canceled"))
}

// slowReader answers after a while, or when the caller's context ends.
type slowReader struct {
	client.Reader
	wait  time.Duration
	reads atomic.Int32
}

func (s *slowReader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption,
) error {
	s.reads.Add(1)
	select {
	case <-time.After(s.wait):
		return s.Reader.Get(ctx, key, o, options...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestHangingReadDelaysNoOther(t *testing.T) {
	tests := map[string]struct {
		wait time.Duration
		live *corev1.ConfigMap
		want types.GomegaMatcher
	}{
		"it finds a conflict": {
			10 * time.Second,
			configMap("a", func(c *corev1.ConfigMap) { c.OwnerReferences, c.Labels = nil, nil }),
			MatchError(ErrConflict),
		},
		"it finds the object in sync": {10 * time.Second, applied(t, configMap("a")), Succeed()},
		"it is not answered": {
			time.Hour,
			configMap("a"),
			MatchError("reading ConfigMap a: context deadline exceeded"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				cache := newCluster(t, applied(t, configMap("b")))
				live := &slowReader{Reader: newCluster(t, test.live), wait: test.wait}
				applier := New(cache, live, clock.RealClock{}, DefaultTiming())
				var results []Result
				round := func() { results = applier.ApplyAll(t.Context(), policy, configMaps("a", "b")) }
				g.Expect(elapsed(round)).To(Equal(1500 * time.Millisecond))
				g.Expect(results[0].Err).To(MatchError(ErrInFlight))
				g.Expect(results[1]).To(Equal(Result{}))
				time.Sleep(30 * time.Second)
				g.Expect(applier.Events()).To(Receive())
				g.Expect(elapsed(round)).To(BeZero())
				g.Expect(results[0].Err).To(test.want)
				g.Expect(live.reads.Load()).
					To(BeEquivalentTo(1), "or each slow answer would cause a pass that reads again")
				g.Expect(applier.Events()).NotTo(Receive())
				g.Expect(elapsed(func() {
					_, err := applier.Differs(t.Context(), policy, configMap("a"))
					g.Expect(err).To(MatchError(context.DeadlineExceeded))
				})).To(Equal(1500 * time.Millisecond))
			})
		})
	}
}

func TestConcurrentCallsAreBounded(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("object-%d", i)
	}
	timing := DefaultTiming()
	timing.MaxCalls = 4
	t.Run("calls that are answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			var out, most atomic.Int32
			c.before = func(context.Context, *unstructured.Unstructured) error {
				most.Store(max(most.Load(), out.Add(1)))
				time.Sleep(100 * time.Millisecond)
				out.Add(-1)
				return nil
			}
			applier := New(c, c, clock.RealClock{}, timing)
			g.Expect(elapsed(func() {
				g.Expect(applier.ApplyAll(t.Context(), policy, configMaps(names...))).To(HaveEach(Result{Wrote: true}))
			})).To(Equal(time.Second))
			g.Expect(most.Load()).To(BeEquivalentTo(4))
		})
	})
	t.Run("calls that hang give their slots back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			c.before = func(ctx context.Context, _ *unstructured.Unstructured) error {
				<-ctx.Done()
				return ctx.Err()
			}
			applier := New(c, c, clock.RealClock{}, timing)
			results := applier.ApplyAll(t.Context(), policy, configMaps(names[:10]...))
			for _, result := range results {
				g.Expect(result.Err).To(MatchError(ErrInFlight))
			}
			g.Expect(results).To(ContainElement(HaveField("Err", MatchError(HaveSuffix(
				": not sent yet, as earlier calls have had no answer from the API server"+waiting)))))
			time.Sleep(time.Second)
			synctest.Wait()
			g.Expect(c.writes()).To(HaveLen(8))
			time.Sleep(1500 * time.Millisecond)
			g.Expect(c.writes()).To(HaveLen(10))
			c.admit(nil)
			g.Expect(applier.ApplyAll(t.Context(), policy, configMaps("other"))).To(HaveEach(Result{Wrote: true}))
			time.Sleep(30 * time.Second)
		})
	})
}

func TestFailedWritesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		cache, live := newCluster(t), &slowReader{Reader: newCluster(t)}
		cache.failWith = errors.New("refused")
		applier := New(cache, live, clock.RealClock{}, DefaultTiming())
		intent := configMap("a")
		for i, wait := range []time.Duration{1, 2, 4, 8, 15, 15} {
			for range 50 {
				_, err := applyOne(applier, configMap("a"))
				g.Expect(err).To(MatchError("applying ConfigMap a: refused"))
			}
			g.Expect(cache.writes()).To(HaveLen(i + 1))
			g.Expect(live.reads.Load()).To(BeEquivalentTo(i+1), "it is not read either")
			g.Expect(applier.RetryAfter()).To(Equal(wait * time.Second))
			time.Sleep(wait*time.Second - time.Millisecond)
			_, err := applyOne(applier, intent)
			g.Expect(err).To(HaveOccurred())
			g.Expect(cache.writes()).To(HaveLen(i + 1))
			time.Sleep(time.Millisecond)
		}
		// Another intent is tried immediately, with its own back-off.
		intent.Data["key"] = "new"
		_, err := applyOne(applier, intent)
		g.Expect(err).To(HaveOccurred())
		g.Expect(cache.writes()).To(HaveLen(7))
		g.Expect(applier.RetryAfter()).To(Equal(time.Second))
		_, err = applier.Differs(t.Context(), policy, intent)
		g.Expect(err).NotTo(HaveOccurred(), "the back-off applies to writes only")
		// So is the same intent of another policy.
		result := applier.ApplyAll(t.Context(), "another", []client.Object{intent})
		g.Expect(result[0].Err).To(HaveOccurred())
		g.Expect(cache.writes()).To(HaveLen(8))

		// A successful write ends it.
		cache.failWith = nil
		time.Sleep(time.Second)
		g.Expect(applyOne(applier, intent)).To(BeTrue())
		g.Expect(applier.RetryAfter()).To(BeZero())
		cache.failWith = errors.New("refused")
		intent = configMap("a")
		_, err = applyOne(applier, intent)
		g.Expect(err).To(HaveOccurred())
		g.Expect(applier.RetryAfter()).To(Equal(time.Second))
	})
}

// An object that another writer has repaired needs no further write.
func TestBackoffEndsWhenTheObjectIsInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		live := applied(t, configMap("a"))
		live.Data["key"] = "drift"
		c := newCluster(t, live)
		c.failWith = errors.New("refused")
		applier := c.applier()
		_, err := applyOne(applier, configMap("a"))
		g.Expect(err).To(HaveOccurred())
		repaired := c.get(t, "a")
		repaired.Data["key"] = "value"
		g.Expect(c.WithWatch.Update(t.Context(), repaired)).To(Succeed())
		g.Expect(applyOne(applier, configMap("a"))).To(BeFalse())
		g.Expect(applier.RetryAfter()).To(BeZero())
		g.Expect(c.writes()).To(HaveLen(1))
	})
}

// An altered write that the cache does not show yet is reported, and does not count as successful.
func TestAnAlteredWriteIsReportedBeforeTheCacheShowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		old := applied(t, configMap("a"))
		old.Data["key"] = "drift"
		cache, server := newCluster(t, old), newCluster(t, old)
		server.admit(mutateKey("altered"))
		applier := New(laggingClient{Client: server, cache: cache}, server, clock.RealClock{}, DefaultTiming())
		for range 3 {
			wrote, err := applyOne(applier, configMap("a"))
			g.Expect(err).To(MatchError(ContainSubstring("whenever the operator applies it")))
			g.Expect(wrote).To(BeFalse())
		}
		time.Sleep(5 * time.Second)
		_, err := applyOne(applier, configMap("a"))
		g.Expect(err).To(MatchError(ContainSubstring("whenever the operator applies it")))
		g.Expect(server.writes()).To(HaveLen(1), "a stale copy causes no second write")
	})
}

// laggingClient reads from a cache that does not follow its writes.
type laggingClient struct {
	client.Client
	cache client.Reader
}

func (b laggingClient) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption,
) error {
	return b.cache.Get(ctx, key, o, options...)
}

func TestHangingDeletionDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c, webhook := newCluster(t, configMap("a"), configMap("b"), configMap("c")), newHangingWebhook("b")
		c.admit(webhook.call)
		applier := c.applier()
		prune := func() error {
			return applier.Prune(t.Context(), policy, []client.Object{configMap("kind")}, Rendered{})
		}
		g.Expect(elapsed(func() {
			g.Expect(prune()).
				To(And(MatchError(ErrInFlight), MatchError(ContainSubstring("deleting ConfigMap b: no answer"))))
		})).To(Equal(1500 * time.Millisecond))
		g.Expect(c.deletions()).To(HaveLen(3))
		g.Expect(elapsed(func() { g.Expect(prune()).To(MatchError(ErrInFlight)) })).To(BeZero())
		// It is rendered again, and has to wait for the call in flight.
		g.Expect(applier.ApplyAll(t.Context(), policy, configMaps("b"))[0].Err).To(MatchError(ErrInFlight))
		webhook.released <- errors.New("refused")
		synctest.Wait()
		g.Expect(applier.Events()).To(Receive())
		for range 50 {
			g.Expect(prune()).To(MatchError("deleting ConfigMap b: refused"))
		}
		g.Expect(c.deletions()).To(HaveLen(3))
		time.Sleep(applier.RetryAfter())
		webhook.released <- nil
		g.Expect(prune()).To(Succeed())
		g.Expect(c.deletions()).To(HaveLen(4))
		g.Expect(applier.table.records).To(BeEmpty())
	})
}
