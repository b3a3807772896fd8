package leadership

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// LeaseName is also that of NVIDIA's operator, so that only one of the two is active in a namespace.
const LeaseName = "53822513.nvidia.com"

// ErrNotLeader is the error of a write that was not sent.
var ErrNotLeader = errors.New("not sent, as another replica of the operator may be the leader")

// Guard refuses writes that begin later than a deadline after the lease was last renewed.
type Guard struct {
	// lease is the path of the Lease in the API, and leases that of the collection in its namespace.
	lease, leases string
	deadline      time.Duration
	clock         clock.PassiveClock
	log           logr.Logger

	mu sync.Mutex
	// renewed is when the last request that renewed the lease was started; zero for never.
	renewed time.Time
	// refuses is set if the last write was refused.
	refuses bool
}

// New returns a Guard for the Lease of this name. deadline is the renew deadline of the election, which is
// shorter than the lease duration.
func New(lease types.NamespacedName, deadline time.Duration, clk clock.PassiveClock, log logr.Logger) *Guard {
	leases := "/apis/coordination.k8s.io/v1/namespaces/" + lease.Namespace + "/leases"
	return &Guard{lease: leases + "/" + lease.Name, leases: leases, deadline: deadline, clock: clk, log: log}
}

// Wrap guards a transport. There may be several: the election and the controllers each have one.
func (g *Guard) Wrap(next http.RoundTripper) http.RoundTripper { return guarded{g, next} }

type guarded struct {
	guard *Guard
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A refused request fails with ErrNotLeader.
func (t guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	switch begin := t.guard.clock.Now(); {
	case !writes(request):
		return t.next.RoundTrip(request)
	case t.guard.isElection(request):
		response, err := t.next.RoundTrip(request)
		if err == nil && response.StatusCode < http.StatusMultipleChoices {
			t.guard.renew(begin)
		}
		return response, err
	default:
		if err := t.guard.enforce(begin); err != nil {
			if request.Body != nil {
				_ = request.Body.Close()
			}
			return nil, err
		}
		return t.next.RoundTrip(request)
	}
}

// writes reports whether the request changes something. Reviews of tokens and of access do not.
func writes(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !strings.HasPrefix(request.URL.Path, "/apis/authentication.k8s.io/") &&
		!strings.HasPrefix(request.URL.Path, "/apis/authorization.k8s.io/")
}

// isElection reports whether the request takes or renews the lease.
func (g *Guard) isElection(request *http.Request) bool {
	return request.URL.Path == g.lease || request.URL.Path == g.leases
}

func (g *Guard) renew(begin time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.renewed, g.refuses = begin, false
}

// enforce refuses a write with ErrNotLeader that begins now and may overwrite another leader's, and logs the first one.
func (g *Guard) enforce(begin time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.renewed.IsZero() && elapsed(g.renewed, begin) <= g.deadline {
		return nil
	}
	if !g.refuses {
		g.refuses = true
		g.log.Info("Refusing to write until the leader lease is renewed, because another replica may be the leader",
			"renewed", g.renewed)
	}
	if g.renewed.IsZero() {
		return fmt.Errorf("%w: this one has not acquired the leader lease yet", ErrNotLeader)
	}
	return fmt.Errorf("%w: this one last renewed the leader lease at %s",
		ErrNotLeader, g.renewed.UTC().Format(time.RFC3339))
}

// elapsed returns the longer of two measures: the monotonic clock stops while a machine is suspended, and the
// wall clock may be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
