package metricsauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// api answers reviews: the owner of the token NAME is NAME; "wrong" has no owner; reader may get /metrics.
type api struct {
	mu     sync.Mutex
	calls  []string
	fails  error
	entry  chan struct{}
	leave  chan struct{}
	rights []authorizationv1.SubjectAccessReviewSpec
}

func (a *api) note(call string) error {
	a.mu.Lock()
	a.calls = append(a.calls, call)
	fails := a.fails
	a.mu.Unlock()
	if a.entry != nil {
		a.entry <- struct{}{}
		<-a.leave
	}
	return fails
}

type tokensOf struct{ *api }

func (a tokensOf) Create(
	_ context.Context,
	review *authenticationv1.TokenReview,
	_ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	name := review.Spec.Token
	review.Status.Authenticated = name != "wrong"
	review.Status.User = authenticationv1.UserInfo{
		Username: name, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	return review, a.note("token " + name)
}

type rightsOf struct{ *api }

func (a rightsOf) Create(
	_ context.Context,
	review *authorizationv1.SubjectAccessReview,
	_ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	a.mu.Lock()
	a.rights = append(a.rights, review.Spec)
	a.mu.Unlock()
	what := review.Spec.NonResourceAttributes
	review.Status.Allowed = review.Spec.User == "reader" &&
		*what == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	return review, a.note("rights " + review.Spec.User)
}

// fixture is a guarded endpoint.
type fixture struct {
	*api
	clock *clocktesting.FakePassiveClock
	guard *guard
	serve http.Handler
}

func newFixture() *fixture {
	b := &fixture{api: &api{}, clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	b.guard = newGuard(tokensOf{b.api}, rightsOf{b.api}, b.clock)
	b.serve = b.guard.before(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		logr.Discard())
	return b
}

func (b *fixture) request(method, path, authorization string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	b.serve.ServeHTTP(recorder, request)
	return recorder
}

func TestAccessToMetrics(t *testing.T) {
	const notValid, refused = "send a valid bearer token", "may not get"
	for name, test := range map[string]struct {
		method, path, token string
		code                int
		body                string
		calls               []string
	}{
		"no header":      {code: 401, body: notValid},
		"a password":     {token: "Basic cmVhZGVyOg==", code: 401, body: notValid},
		"an empty token": {token: "Bearer ", code: 401, body: notValid},
		"a wrong token":  {token: "Bearer wrong", code: 401, body: notValid, calls: []string{"token wrong"}},
		"without access": {
			token: "Bearer other", code: 403, body: "gpu-operator-metrics-reader",
			calls: []string{"token other", "rights other"},
		},
		"with access": {
			token: "Bearer reader", code: 200, body: "metrics",
			calls: []string{"token reader", "rights reader"},
		},
		"in lower case": {
			token: "bearer reader", code: 200, body: "metrics",
			calls: []string{"token reader", "rights reader"},
		},
		"another path": {
			path: "/debug", token: "Bearer reader", code: 403, body: "may not get /debug",
			calls: []string{"token reader", "rights reader"},
		},
		"another verb": {
			method: "POST", token: "Bearer reader", code: 403, body: refused,
			calls: []string{"token reader", "rights reader"},
		},
		"several tokens are no token": {
			token: "Bearer reader other", code: 403, body: refused,
			calls: []string{"token reader other", "rights reader other"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := NewWithT(t), newFixture()
			method, path := "GET", "/metrics"
			if test.method != "" {
				method = test.method
			}
			if test.path != "" {
				path = test.path
			}
			got := b.request(method, path, test.token)
			g.Expect(got.Code).To(Equal(test.code))
			g.Expect(got.Body.String()).To(ContainSubstring(test.body))
			challenge := map[int]string{401: "Bearer"}
			g.Expect(got.Header().Get("WWW-Authenticate")).To(Equal(challenge[test.code]))
			g.Expect(b.calls).To(Equal(test.calls))
		})
	}
}

func TestTheWholeOwnerIsReviewed(t *testing.T) {
	g, b := NewWithT(t), newFixture()
	b.request("GET", "/metrics", "Bearer reader")
	g.Expect(b.rights).To(ConsistOf(authorizationv1.SubjectAccessReviewSpec{
		User: "reader", UID: "u", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}))
}

func TestAnswersAreCached(t *testing.T) {
	g, b := NewWithT(t), newFixture()
	for range 3 {
		g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(200))
		g.Expect(b.request("GET", "/metrics", "Bearer wrong").Code).To(Equal(401))
	}
	g.Expect(b.calls).To(Equal([]string{"token reader", "rights reader", "token wrong"}))
	for _, later := range []struct {
		second int64
		calls  []string
	}{{9, nil}, {10, []string{"token wrong"}}, {60, []string{"token reader", "rights reader", "token wrong"}}} {
		b.clock.SetTime(time.Unix(later.second, 0))
		b.calls = nil
		g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(200))
		g.Expect(b.request("GET", "/metrics", "Bearer wrong").Code).To(Equal(401))
		g.Expect(b.calls).To(Equal(later.calls), "after %d s", later.second)
	}
}

func TestFailedReviewIsNotCached(t *testing.T) {
	g, b := NewWithT(t), newFixture()
	b.fails = errors.New("the API server is down")
	g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(503))
	b.fails = nil
	g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(200))
}

// Made-up tokens cost a bounded number of calls, and do not lock out tokens that were accepted.
func TestRefusalsAreLimited(t *testing.T) {
	g, b := NewWithT(t), newFixture()
	g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(200))
	b.calls = nil
	codes := map[int]int{}
	for i := range 10 * maxRefusals {
		codes[b.request("GET", "/metrics", fmt.Sprint("Bearer wrong", i)).Code]++
	}
	g.Expect(codes).To(Equal(map[int]int{403: maxRefusals, 429: 9 * maxRefusals}))
	g.Expect(b.calls).To(HaveLen(2 * maxRefusals))
	got := b.request("GET", "/metrics", "Bearer new")
	g.Expect(got.Code).To(Equal(429))
	g.Expect(got.Header().Get("Retry-After")).To(Equal("10"))
	g.Expect(got.Body.String()).To(ContainSubstring("try again later"))

	b.clock.SetTime(time.Unix(61, 0))
	for i := range 10 * maxRefusals {
		b.request("GET", "/metrics", fmt.Sprint("Bearer again", i))
	}
	b.calls = nil
	g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).
		To(Equal(200), "the answer has expired, but not that the token was accepted")
	g.Expect(b.calls).To(Equal([]string{"token reader", "rights reader"}))

	b.clock.SetTime(time.Unix(61+60, 0))
	g.Expect(b.request("GET", "/metrics", "Bearer new").Code).To(Equal(403), "after a minute others are reviewed again")

	const accepted = 61 * time.Second
	for _, later := range []struct {
		at   time.Duration
		code int
	}{{accepted + trustedFor - 1, 200}, {accepted + 2*trustedFor - 1, 429}} {
		b.clock.SetTime(time.Unix(0, 0).Add(later.at))
		for i := range 10 * maxRefusals {
			b.request("GET", "/metrics", fmt.Sprint("Bearer later", i))
		}
		g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(later.code), "after %s", later.at)
	}
}

func TestMadeUpTokensNeitherGrowTheFilterNorFloodTheAPI(t *testing.T) {
	g, b := NewWithT(t), newFixture()
	for i := range 3 * maxAnswers {
		b.request("GET", "/metrics", fmt.Sprint("Bearer ", i))
	}
	g.Expect(b.calls).To(HaveLen(2 * maxRefusals))
	for i := range 3 * maxAnswers {
		b.guard.remember(question{token: tokenHash{byte(i), byte(i >> 8)}}, 200)
		g.Expect(len(b.guard.answers)).To(BeNumerically("<=", maxAnswers))
		g.Expect(len(b.guard.accepted)).To(BeNumerically("<=", maxAnswers))
	}
}

func TestReviewsAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		token func(i int) string
		wait  time.Duration
		codes map[int]int
	}{
		"the others get the answer of the first": {
			token: func(int) string { return "wrong" }, wait: reviewTimeout - 1, codes: map[int]int{401: 3 * maxReviews},
		},
		"the others wait no longer than for a review": {
			token: func(i int) string { return fmt.Sprint("other", i) }, wait: reviewTimeout + 1,
			codes: map[int]int{403: maxReviews, 503: 2 * maxReviews},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := NewWithT(t), newFixture()
				b.entry, b.leave = make(chan struct{}, 3*maxReviews), make(chan struct{})
				answers := make(chan int, 3*maxReviews)
				for i := range 3 * maxReviews {
					go func() { answers <- b.request("GET", "/metrics", "Bearer "+test.token(i)).Code }()
				}
				synctest.Wait()
				g.Expect(b.entry).To(HaveLen(maxReviews), "no more reviews at a time")
				time.Sleep(test.wait)
				close(b.leave)
				codes := map[int]int{}
				for range 3 * maxReviews {
					codes[<-answers]++
				}
				g.Expect(codes).To(Equal(test.codes))
				g.Expect(b.calls).To(HaveLen(len(b.rights) + maxReviews))
			})
		})
	}
}

// The reviews are those of the API, as its own client sends them.
func TestFilterAsksTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	reviews := map[string]string{
		"/apis/authentication.k8s.io/v1/tokenreviews": `{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
			"status": {"authenticated": true, "user": {"username": "reader"}}}`,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": `{"kind": "SubjectAccessReview",
			"apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reviews[r.URL.Path])
		delete(reviews, r.URL.Path)
	}))
	defer server.Close()
	filter, err := Filter(&rest.Config{Host: server.URL}, server.Client())
	g.Expect(err).NotTo(HaveOccurred())
	b := newFixture()
	b.serve, err = filter(logr.Discard(), http.NotFoundHandler())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.request("GET", "/metrics", "Bearer reader").Code).To(Equal(404), "the handler behind it answers")
	g.Expect(reviews).To(BeEmpty())

	_, err = Filter(&rest.Config{Host: "http://%"}, server.Client())
	g.Expect(err).To(MatchError(HavePrefix("preparing the review of tokens: ")))
}
