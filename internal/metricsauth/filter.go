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
	// remembered is for how long the answer to a token counts: a right that is taken away ends after it. A
	// scrape each 15 s costs two calls a minute.
	remembered = time.Minute
	// refused is the same for a token that is refused: a right that is given counts after it.
	refused = 10 * time.Second
	// most is how many answers are kept. Whoever makes up tokens makes the filter forget, not grow.
	most = 256
	// atOnce is how many requests are reviewed at a time, whoever floods the endpoint.
	atOnce = 4
	// patience is how long a request waits for its review.
	patience = 10 * time.Second
	// refusals is how many reviews a minute may end with a refusal, and as many at once. Beyond that only tokens that
	// were accepted before are reviewed: whoever makes up tokens costs the API server no more calls.
	refusals = 20
	// trusted is for how long a token that was accepted counts as one.
	trusted = time.Hour
)

// Filter is the FilterProvider of the metrics server. It answers 401 to a request without a valid bearer
// token, 403 to one whose owner may not get the path (a nonResourceURL of RBAC), 429 to an unknown token while many are
// refused, and 503 while the API server cannot be asked. It is for a server with TLS: a token in the clear is given away.
func Filter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the review of tokens: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the review of rights: %w", err)
	}
	g := newGuard(authentication.TokenReviews(), authorization.SubjectAccessReviews(), clock.RealClock{})
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) { return g.before(handler, log), nil }, nil
}

// tokens and rights are what the guard needs of the API.
type tokens interface {
	Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

type rights interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview,
		metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// guard reviews requests and remembers the answers.
type guard struct {
	tokens tokens
	rights rights
	clock  clock.PassiveClock
	slots  chan struct{}

	mu      sync.Mutex
	answers map[question]answer
	// accepted is when each token was accepted last; left has the refusals that are left.
	accepted map[tokenHash]time.Time
	left     *rate.Limiter
}

// tokenHash stands for a token, which is not kept itself.
type tokenHash [sha256.Size]byte

// question is a request as far as the answer depends on it.
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
		tokens: t, rights: r, clock: c, slots: make(chan struct{}, atOnce),
		answers: map[question]answer{}, accepted: map[tokenHash]time.Time{},
		left: rate.NewLimiter(rate.Every(time.Minute/refusals), refusals),
	}
}

func (g *guard) before(next http.Handler, log logr.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := g.judge(r)
		switch {
		case err != nil:
			log.Error(err, "A request for metrics could not be reviewed")
			http.Error(w, "the API server could not be asked about the token; try again later", http.StatusServiceUnavailable)
		case code == http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send a valid token of the cluster: Authorization: Bearer TOKEN", code)
		case code == http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many tokens were refused lately: try again later", code)
		case code == http.StatusForbidden:
			http.Error(w, "the token's owner may not get "+r.URL.Path+": bind it to the ClusterRole gpu-operator-metrics-reader",
				code)
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
	if code, known := g.recall(q); known {
		return code, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for other requests: %w", ctx.Err())
	}
	if code, known := g.recall(q); known {
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

// review asks the API server who owns the token, and what the owner may do.
func (g *guard) review(ctx context.Context, token string, q question) (int, error) {
	who, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user, extra := who.Status.User, map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err := g.rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing the rights of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (g *guard) recall(q question) (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, there := g.answers[q]
	if !there || !g.clock.Now().Before(have.until) {
		return 0, false
	}
	return have.code, true
}

// mayReview reports whether the API server may be asked about a token.
func (g *guard) mayReview(token tokenHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if last, known := g.accepted[token]; known && now.Sub(last) < trusted {
		return true
	}
	return g.left.TokensAt(now) >= 1
}

func (g *guard) remember(q question, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answers) >= most {
		clear(g.answers)
	}
	if len(g.accepted) >= most {
		clear(g.accepted)
	}
	now, last := g.clock.Now(), remembered
	if code == http.StatusOK {
		g.accepted[q.token] = now
	} else {
		g.left.AllowN(now, 1)
		last = refused
	}
	g.answers[q] = answer{code: code, until: now.Add(last)}
}
