package metricsauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// allowedTTL is how long the answer to a token is cached: revoking access takes effect after it. A scrape
	// each 15 s costs two calls a minute.
	allowedTTL = time.Minute
	// deniedTTL is the same for a token that is refused: granting access takes effect after it.
	deniedTTL = 10 * time.Second
	// maxAnswers limits the cache, so that made-up tokens evict answers rather than use memory.
	maxAnswers = 256
	// maxReviews is how many requests are reviewed at a time.
	maxReviews = 4
	// reviewTimeout is how long a request waits for its review.
	reviewTimeout = 10 * time.Second
	// maxRefusals is how many reviews per minute may end with a refusal; also the burst. Beyond that only
	// tokens that were accepted before are reviewed, so that made-up tokens cost the API server no more calls.
	maxRefusals = 20
	// trustedFor is how long a token that was accepted counts as one that was accepted before.
	trustedFor = time.Hour
)

// Filter is the FilterProvider of the metrics server. It answers 401 to a request without a valid bearer
// token, 403 to one whose owner may not get the path (a nonResourceURL of RBAC), 429 to an unknown token
// after too many refusals, and 503 while the API server cannot be reached. The server must use TLS, as
// bearer tokens are secrets.
func Filter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the review of tokens: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the review of access: %w", err)
	}
	g := newGuard(authentication.TokenReviews(), authorization.SubjectAccessReviews(), clock.RealClock{})
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) { return g.before(handler, log), nil }, nil
}

// tokens and rights are the parts of the API that the guard needs.
type tokens interface {
	Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

type rights interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (
		*authorizationv1.SubjectAccessReview, error)
}

// guard reviews requests and caches the answers.
type guard struct {
	tokens tokens
	rights rights
	clock  clock.PassiveClock
	slots  chan struct{}

	mu      sync.Mutex
	answers map[question]answer
	// accepted is when each token was accepted last; left are the refusals that are still allowed.
	accepted map[tokenHash]time.Time
	left     *rate.Limiter
}

// tokenHash stands for a token, which is not stored itself.
type tokenHash [sha256.Size]byte

// question is the part of a request that the answer depends on.
type question struct {
	token      tokenHash
	verb, path string
}

// answer is a status code, 200 for a request that passes.
type answer struct {
	code  int
	until time.Time
}

func newGuard(t tokens, r rights, c clock.PassiveClock) *guard {
	return &guard{
		tokens: t, rights: r, clock: c, slots: make(chan struct{}, maxReviews),
		answers: map[question]answer{}, accepted: map[tokenHash]time.Time{},
		left: rate.NewLimiter(rate.Every(time.Minute/maxRefusals), maxRefusals),
	}
}

func (g *guard) before(next http.Handler, log logr.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := g.judge(r)
		switch {
		case err != nil:
			log.Error(err, "A request for metrics could not be authorized")
			http.Error(w, "the token could not be reviewed by the API server; try again later", http.StatusServiceUnavailable)
		case code == http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send a valid bearer token of the cluster: Authorization: Bearer TOKEN", code)
		case code == http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many tokens were refused recently; try again later", code)
		case code == http.StatusForbidden:
			http.Error(w, "the owner of the token may not get "+r.URL.Path+
				"; bind it to the ClusterRole gpu-operator-metrics-reader", code)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// judge returns the status code for a request.
func (g *guard) judge(r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized, nil
	}
	q := question{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}
	if code, known := g.cached(q); known {
		return code, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for other requests: %w", ctx.Err())
	}
	if code, known := g.cached(q); known {
		return code, nil
	}
	if !g.mayReview(q.token) {
		return http.StatusTooManyRequests, nil
	}
	code, err := g.review(ctx, token, q)
	if err != nil {
		return 0, err
	}
	g.remember(q, code)
	return code, nil
}

// review requests the owner of the token from the API server, and whether the owner may get the path.
func (g *guard) review(ctx context.Context, token string, q question) (int, error) {
	owner, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing a token: %w", err)
	}
	if !owner.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user, extra := owner.Status.User, map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err := g.rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (g *guard) cached(q question) (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, found := g.answers[q]
	if !found || !g.clock.Now().Before(have.until) {
		return 0, false
	}
	return have.code, true
}

// mayReview reports whether the token may be sent to the API server for review.
func (g *guard) mayReview(token tokenHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if last, known := g.accepted[token]; known && now.Sub(last) < trustedFor {
		return true
	}
	return g.left.TokensAt(now) >= 1
}

func (g *guard) remember(q question, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answers) >= maxAnswers {
		clear(g.answers)
	}
	if len(g.accepted) >= maxAnswers {
		clear(g.accepted)
	}
	now, ttl := g.clock.Now(), allowedTTL
	if code == http.StatusOK {
		g.accepted[q.token] = now
	} else {
		g.left.AllowN(now, 1)
		ttl = deniedTTL
	}
	g.answers[q] = answer{code: code, until: now.Add(ttl)}
}
