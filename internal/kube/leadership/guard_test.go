package leadership_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/clusterpolicy/gpu-operator/internal/kube/leadership"
)

const (
	notSent = "not sent, as another replica of the operator may be the leader: "

	leases = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"
	lease  = leases + "/lease"
	node   = "/api/v1/nodes/a"
)

// server answers all requests with a status or an error, and records them.
type server struct {
	status int
	err    error
	seen   []string
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.seen = append(s.seen, request.Method+" "+request.URL.Path)
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Body: http.NoBody}, nil
}

// body records that it is closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

type fixture struct {
	*WithT
	clock     *clocktesting.FakePassiveClock
	server    *server
	transport http.RoundTripper
	logged    []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	r := &fixture{
		WithT:  NewWithT(t),
		clock:  clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		server: &server{status: http.StatusOK},
	}
	log := funcr.New(func(_, args string) { r.logged = append(r.logged, args) }, funcr.Options{})
	guard := leadership.New(types.NamespacedName{Namespace: "gpu-operator", Name: "lease"}, 10*time.Second, r.clock, log)
	r.transport = guard.Wrap(r.server)
	return r
}

func (r *fixture) send(method, path string) error {
	request, err := http.NewRequest(method, "https://api.example.com"+path, strings.NewReader("{}"))
	r.Expect(err).NotTo(HaveOccurred())
	sent := &body{Reader: request.Body}
	request.Body = sent
	before := len(r.server.seen)
	response, err := r.transport.RoundTrip(request)
	if response != nil {
		r.Expect(response.Body.Close()).To(Succeed())
	}
	r.Expect(response != nil).To(Equal(err == nil))
	if len(r.server.seen) == before {
		r.Expect(sent.closed).To(BeTrue(), "a transport closes what it does not send")
	}
	return err
}

func (r *fixture) after(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func TestAWriteFollowsARenewal(t *testing.T) {
	r := newFixture(t)
	r.Expect(r.send(http.MethodPatch, node)).To(MatchError(notSent + "this one has not acquired the leader lease yet"))
	r.Expect(r.send(http.MethodPost, leases)).To(Succeed())
	r.after(10 * time.Second)
	for _, method := range []string{http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodDelete} {
		r.Expect(r.send(method, node)).To(Succeed(), method)
	}
	r.after(time.Millisecond)
	r.server.seen, r.logged = nil, nil
	for _, method := range []string{http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodDelete} {
		r.Expect(r.send(method, node)).To(MatchError(leadership.ErrNotLeader), method)
	}
	r.Expect(r.server.seen).To(BeEmpty())
	r.Expect(r.logged).To(HaveLen(1), "it is logged once")

	r.Expect(r.send(http.MethodPut, lease)).To(Succeed())
	r.Expect(r.send(http.MethodPatch, node)).To(Succeed())
	r.after(11 * time.Second)
	r.Expect(r.send(http.MethodPatch, node)).To(
		MatchError(notSent + "this one last renewed the leader lease at 2026-01-02T03:04:15Z"))
	r.Expect(r.logged).To(HaveLen(2), "and again after it was the leader in between")
}

func TestReadsAndReviewsNeedNoLease(t *testing.T) {
	r := newFixture(t)
	r.Expect(r.send(http.MethodGet, node)).To(Succeed())
	r.Expect(r.send(http.MethodGet, lease)).To(Succeed())
	r.Expect(r.send(http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews")).To(Succeed())
	r.Expect(r.send(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews")).To(Succeed())
	r.Expect(r.send(http.MethodPatch, node)).NotTo(Succeed(), "none of them renews it")
}

func TestOnlyARenewalThatSucceedsCounts(t *testing.T) {
	r := newFixture(t)
	for _, status := range []int{http.StatusMultipleChoices, http.StatusConflict} {
		r.server.status = status
		r.Expect(r.send(http.MethodPut, lease)).To(Succeed())
		r.Expect(r.send(http.MethodPatch, node)).To(MatchError(leadership.ErrNotLeader), "another one has the lease")
	}
	r.server.err = errors.New("no route to host")
	r.Expect(r.send(http.MethodPut, lease)).NotTo(Succeed())
	r.Expect(r.send(http.MethodPatch, node)).To(MatchError(leadership.ErrNotLeader))
	r.server.status, r.server.err = http.StatusOK, nil
	r.Expect(r.send(http.MethodPut, leases+"/another")).
		To(MatchError(leadership.ErrNotLeader), "another lease is an object like any other")
}

func TestErrorsOfTheServerAreReturned(t *testing.T) {
	r := newFixture(t)
	r.Expect(r.send(http.MethodPut, lease)).To(Succeed())
	r.server.err = errors.New("no route to host")
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		r.Expect(r.send(method, node)).To(MatchError("no route to host"), method)
	}
}

// A renewal counts from its start: the API server may have processed it at any time until its answer.
func TestRenewalCountsFromItsStart(t *testing.T) {
	r := newFixture(t)
	slow := leadership.New(types.NamespacedName{Namespace: "gpu-operator", Name: "lease"}, 10*time.Second, r.clock,
		funcr.New(func(string, string) {}, funcr.Options{}))
	r.transport = slow.Wrap(roundTrip(func(request *http.Request) (*http.Response, error) {
		if request.URL.Path == lease {
			r.after(8 * time.Second)
		}
		return r.server.RoundTrip(request)
	}))
	r.Expect(r.send(http.MethodPut, lease)).To(Succeed())
	r.after(2 * time.Second)
	r.Expect(r.send(http.MethodPatch, node)).To(Succeed())
	r.after(time.Millisecond)
	r.Expect(r.send(http.MethodPatch, node)).NotTo(Succeed())
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
