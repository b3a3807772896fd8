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
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// Events are listed only while pods are missing. Unlike a watch, that costs nothing at rest and needs one permission
// less.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=events,verbs=list

const (
	// firstCheck is how long pods of a DaemonSet must be missing before Events are listed: the DaemonSet controller needs
	// some seconds when many nodes join together.
	firstCheck = 5 * time.Second
	// firstCheckPer100 is added for each hundred nodes, up to maxFirstCheck in total: with more nodes the controller takes
	// longer, and listing Events costs more.
	firstCheckPer100, maxFirstCheck = 2 * time.Second, 30 * time.Second
	// maxInterval limits the interval between two checks, which doubles each time.
	maxInterval = time.Hour
	// staleAfter is the age from which Events are ignored. The DaemonSet controller retries after 17 minutes at most.
	staleAfter = 20 * time.Minute
	// maxEvents is the limit of one list.
	maxEvents = 200
)

// failedCreate is the reason of Events about pods that could not be created.
const failedCreate = "FailedCreate"

// CreateFailures finds out from Events why pods of DaemonSets are missing. Its state may be lost: it is read again
// then.
type CreateFailures struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	// mutex guards what follows.
	mutex     sync.Mutex
	shortages map[types.UID]*shortage
	found     map[string]assess.PodFailure
}

// shortage is a DaemonSet with fewer pods than desired.
type shortage struct {
	// pods is the number of missing pods.
	pods int32
	// next is when to check, and interval how long after that to check again.
	next     time.Time
	interval time.Duration
}

// NewCreateFailures returns a CreateFailures. live must read from the API server, not from a cache.
func NewCreateFailures(live client.Reader, namespace string, clk clock.PassiveClock) *CreateFailures {
	return &CreateFailures{
		live: live, namespace: namespace, clock: clk,
		shortages: map[types.UID]*shortage{}, found: map[string]assess.PodFailure{},
	}
}

// Found returns the failures of the last Refresh, by the name of the DaemonSet.
func (c *CreateFailures) Found() map[string]assess.PodFailure {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.found
}

// Refresh lists the Events of DaemonSets whose pods have been missing for some seconds, in one call for all of them. It
// returns after how long to call it again; zero if no pods are missing.
func (c *CreateFailures) Refresh(ctx context.Context, daemonSets map[string]*appsv1.DaemonSet) (time.Duration, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.clock.Now()
	short, due := c.trackShortages(daemonSets, now)
	found := maps.Clone(c.found)
	maps.DeleteFunc(found, func(name string, _ assess.PodFailure) bool { return short[name] == nil })
	var err error
	if due {
		err = c.read(ctx, short, found, now)
	}
	c.found = found
	var wait time.Duration
	for _, s := range c.shortages {
		if left := s.next.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait, err
}

// trackShortages records since when pods of DaemonSets are missing. It returns these DaemonSets by name, and whether a
// check of one of them is due.
func (c *CreateFailures) trackShortages(
	daemonSets map[string]*appsv1.DaemonSet, now time.Time,
) (short map[string]*appsv1.DaemonSet, due bool) {
	short, shortages := map[string]*appsv1.DaemonSet{}, map[types.UID]*shortage{}
	for name, ds := range daemonSets {
		missing := ds.Status.DesiredNumberScheduled - ds.Status.CurrentNumberScheduled
		if missing <= 0 || ds.Status.ObservedGeneration < ds.Generation || ds.DeletionTimestamp != nil {
			continue
		}
		s := c.shortages[ds.UID]
		if s == nil || s.pods != missing {
			first := min(firstCheck+time.Duration(ds.Status.DesiredNumberScheduled/100)*firstCheckPer100, maxFirstCheck)
			s = &shortage{pods: missing, next: now.Add(first), interval: first}
		}
		short[name], shortages[ds.UID] = ds, s
		due = due || !now.Before(s.next)
	}
	c.shortages = shortages
	return short, due
}

// read lists Events and updates found for the DaemonSets whose check is due.
func (c *CreateFailures) read(
	ctx context.Context, short map[string]*appsv1.DaemonSet, found map[string]assess.PodFailure, now time.Time,
) error {
	newest, err := c.newestEvents(ctx, now)
	for name, ds := range short {
		s := c.shortages[ds.UID]
		if now.Before(s.next) {
			continue
		}
		s.interval = min(2*s.interval, maxInterval)
		s.next = now.Add(s.interval)
		if err != nil {
			continue
		}
		delete(found, name)
		if event, exists := newest[ds.UID]; exists {
			found[name] = createFailure(event.Message)
		}
	}
	return err
}

// newestEvents returns the newest Event of each DaemonSet about a pod that could not be created, unless it is stale.
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
		uid, last := event.InvolvedObject.UID, assess.LastSeen(event)
		if now.Sub(last) > staleAfter || (newest[uid] != nil && last.Before(assess.LastSeen(newest[uid]))) {
			continue
		}
		newest[uid] = event
	}
	return newest, nil
}

// eventPrefix is removed from the messages of the DaemonSet controller: it has the name of the pod, which changes with
// each attempt.
var eventPrefix = regexp.MustCompile(
	`^(\(combined from similar events\): )?Error creating: (pods "[^"]*" is forbidden: )?`)

// denials map parts of the API server's messages to reasons.
var denials = []struct{ substring, reason string }{
	{"exceeded quota", v1.ReasonQuotaExceeded},
	{"failed quota", v1.ReasonQuotaExceeded},
	{"insufficient quota", v1.ReasonQuotaExceeded}, // None covers the pod, and the cluster requires one.
	{"violates PodSecurity", v1.ReasonPodSecurityDenied},
	{"ValidatingAdmissionPolicy", v1.ReasonAdmissionDenied},
	{"admission webhook", v1.ReasonAdmissionDenied},
	{"failed calling webhook", v1.ReasonAdmissionDenied},
}

func createFailure(message string) assess.PodFailure {
	failure := assess.PodFailure{Reason: v1.ReasonFailedCreate, Message: eventPrefix.ReplaceAllString(message, "")}
	for _, denial := range denials {
		if strings.Contains(message, denial.substring) {
			failure.Reason = denial.reason
			break
		}
	}
	if failure.Reason == v1.ReasonPodSecurityDenied {
		failure.Message = text.Truncate(failure.Message, maxViolations)
	}
	return failure
}

// maxViolations bounds the message about Pod Security, in bytes. It begins with the level and the first violation,
// before all others. Of longer details the end is kept.
const maxViolations = 150
