package observe

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
)

// Why pods could not be created. A list now and then, where pods are missing, in the place of a watch: at rest
// it costs nothing, and it needs one right less.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=events,verbs=list

const (
	// firstCheck is how long a DaemonSet must lack pods before somebody asks why: its controller takes some
	// seconds where many nodes come together.
	firstCheck = 5 * time.Second
	// firstCheckPer100 comes on top for each hundred nodes, up to maxFirstCheck in all: with the nodes it takes longer
	// until the controller has made some more, and to list Events costs the API server more.
	firstCheckPer100, maxFirstCheck = 2 * time.Second, 30 * time.Second
	// maxInterval bounds the pauses between two looks, which double.
	maxInterval = time.Hour
	// staleAfter is how old the last attempt of the DaemonSet controller may be. It tries again after 17
	// minutes at most.
	staleAfter = 20 * time.Minute
	// maxEvents is how many Events are read at once.
	maxEvents = 200
)

// failedCreate is the reason of the Events that tell of a pod that could not be created.
const failedCreate = "FailedCreate"

// CreateFailures finds out why DaemonSets lack pods, from the Events of the DaemonSet controller. What it
// remembers may be lost at any time, and is read anew then.
type CreateFailures struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	// mutex guards what follows.
	mutex     sync.Mutex
	shortages map[types.UID]*shortage
	found     map[string]assess.CreateFailure
}

// shortage is of a DaemonSet that has fewer pods than it should have.
type shortage struct {
	pods int32
	// next is when to look, and pause how long after that again.
	next  time.Time
	pause time.Duration
}

// NewCreateFailures makes one that reads Events from the API server, not from a cache.
func NewCreateFailures(live client.Reader, namespace string, clk clock.PassiveClock) *CreateFailures {
	return &CreateFailures{live: live, namespace: namespace, clock: clk, shortages: map[types.UID]*shortage{}, found: map[string]assess.CreateFailure{}}
}

// Found are the failures known so far, by the name of the DaemonSet.
func (c *CreateFailures) Found() map[string]assess.CreateFailure {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.found
}

// Refresh asks for the Events of DaemonSets that have lacked pods for some seconds, in one call for all of them,
// and tells after how long to look again; zero where none shortages any.
func (c *CreateFailures) Refresh(ctx context.Context, daemonSets map[string]*appsv1.DaemonSet) (time.Duration, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.clock.Now()
	short, due := c.short(daemonSets, now)
	found := maps.Clone(c.found)
	maps.DeleteFunc(found, func(name string, _ assess.CreateFailure) bool { return short[name] == nil })
	var err error
	if due {
		err = c.read(ctx, short, found, now)
	}
	c.found = found
	var wait time.Duration
	for _, l := range c.shortages {
		if left := l.next.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait, err
}

// short are the DaemonSets that lack pods, by name, and whether it is time to look at one of them.
func (c *CreateFailures) short(daemonSets map[string]*appsv1.DaemonSet, now time.Time) (short map[string]*appsv1.DaemonSet, due bool) {
	short, shortages := map[string]*appsv1.DaemonSet{}, map[types.UID]*shortage{}
	for name, ds := range daemonSets {
		missing := ds.Status.DesiredNumberScheduled - ds.Status.CurrentNumberScheduled
		if missing <= 0 || ds.Status.ObservedGeneration < ds.Generation || ds.DeletionTimestamp != nil {
			continue
		}
		known := c.shortages[ds.UID]
		if known == nil || known.pods != missing {
			first := min(firstCheck+time.Duration(ds.Status.DesiredNumberScheduled/100)*firstCheckPer100, maxFirstCheck)
			known = &shortage{pods: missing, next: now.Add(first), pause: first}
		}
		short[name], shortages[ds.UID] = ds, known
		due = due || !now.Before(known.next)
	}
	c.shortages = shortages
	return short, due
}

// read asks the API server and notes what it says of the DaemonSets that are due.
func (c *CreateFailures) read(ctx context.Context, short map[string]*appsv1.DaemonSet, found map[string]assess.CreateFailure, now time.Time) error {
	newest, err := c.newestEvents(ctx, now)
	for name, ds := range short {
		l := c.shortages[ds.UID]
		if now.Before(l.next) {
			continue
		}
		l.pause = min(2*l.pause, maxInterval)
		l.next = now.Add(l.pause)
		if err != nil {
			continue
		}
		delete(found, name)
		if event, has := newest[ds.UID]; has {
			found[name] = createFailure(event.Message)
		}
	}
	return err
}

// newestEvents is the last Event of each DaemonSet that tells of a pod that could not be created of late.
func (c *CreateFailures) newestEvents(ctx context.Context, now time.Time) (map[types.UID]*corev1.Event, error) {
	events := &corev1.EventList{}
	err := c.live.List(ctx, events, client.InNamespace(c.namespace), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.kind": "DaemonSet", "reason": failedCreate})
	if err != nil {
		return nil, fmt.Errorf("listing Events of DaemonSets: %w", err)
	}
	newest := map[types.UID]*corev1.Event{}
	for i := range events.Items {
		event := &events.Items[i]
		uid, last := event.InvolvedObject.UID, lastSeen(event)
		if now.Sub(last) > staleAfter || (newest[uid] != nil && last.Before(lastSeen(newest[uid]))) {
			continue
		}
		newest[uid] = event
	}
	return newest, nil
}

func lastSeen(event *corev1.Event) time.Time {
	last := event.LastTimestamp.Time
	if last.Before(event.EventTime.Time) {
		last = event.EventTime.Time
	}
	if event.Series != nil && last.Before(event.Series.LastObservedTime.Time) {
		last = event.Series.LastObservedTime.Time
	}
	return last
}

// eventPrefix begins what the DaemonSet controller says: the name of the pod is another one each time.
var eventPrefix = regexp.MustCompile(`^(\(combined from similar events\): )?Error creating: (pods "[^"]*" is forbidden: )?`)

// denials tell by the API server's words who refuses a pod.
var denials = []struct{ substring, reason string }{
	{"exceeded quota", v1.ReasonQuotaExceeded},
	{"failed quota", v1.ReasonQuotaExceeded},
	{"violates PodSecurity", v1.ReasonPodSecurityDenied},
	{"ValidatingAdmissionPolicy", v1.ReasonAdmissionDenied},
	{"admission webhook", v1.ReasonAdmissionDenied},
	{"failed calling webhook", v1.ReasonAdmissionDenied},
}

func createFailure(message string) assess.CreateFailure {
	failure := assess.CreateFailure{Reason: v1.ReasonFailedCreate, Message: eventPrefix.ReplaceAllString(message, "")}
	for _, denial := range denials {
		if strings.Contains(message, denial.substring) {
			failure.Reason = denial.reason
			break
		}
	}
	return failure
}
