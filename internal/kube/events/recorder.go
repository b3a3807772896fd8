package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

const (
	// component is the source of the Events.
	component = "gpu-operator"
	// maxMessage is the longest message that the API server accepts, in bytes.
	maxMessage = 1024
	// keptFor is how long the API server keeps an Event by default.
	keptFor = time.Hour
	// maxWritten bounds the names in memory. To lose them costs calls, and no second Event.
	maxWritten = 512
	// maxPrefix is how much of an object's name fits in the name of an Event, before the digest.
	maxPrefix = 230
)

// limits are the token buckets for the Events about one kind of object.
var limits = map[string]struct {
	burst     int
	perSecond float32
}{
	"Node": {100, 0.1},
	// Each failing auxiliary operand has an Event.
	"ClusterPolicy": {50, 0.1},
	"NVIDIADriver":  {50, 0.1},
}

// Event reports a transition of a cluster-scoped object.
type Event struct {
	// Regarding has the kind, API version, name and UID of the object.
	Regarding corev1.ObjectReference
	// Type is Normal or Warning.
	Type            string
	Reason, Message string
	// Transition identifies the transition of the object. A second Event with the same type, reason and transition is not
	// written while the API server keeps the first one (an hour by default), even after a restart of the operator.
	Transition string
}

// Recorder writes Events.
type Recorder struct {
	writer  client.Writer
	clock   clock.PassiveClock
	limits  map[string]flowcontrol.PassiveRateLimiter
	dropped func(kind string)

	mu sync.Mutex
	// written is when each Event was written, by its name.
	written map[string]time.Time
}

// NewRecorder returns a Recorder. It calls dropped with the kind of the object for each Event that exceeds the limit.
func NewRecorder(writer client.Writer, clk clock.PassiveClock, dropped func(kind string)) *Recorder {
	r := &Recorder{
		writer: writer, clock: clk, limits: map[string]flowcontrol.PassiveRateLimiter{}, dropped: dropped,
		written: map[string]time.Time{},
	}
	for kind, limit := range limits {
		r.limits[kind] = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(limit.perSecond, limit.burst, clk)
	}
	return r
}

// Record writes the Event, unless the transition has one already or the limit is exceeded. Call it before writing the
// transition itself: if the operator restarts in between, it repeats both, and the Event has the same name. Repetitions
// do not count towards the limit.
func (r *Recorder) Record(ctx context.Context, e Event) {
	if r.isWritten(name(e)) {
		return
	}
	if limit, ok := r.limits[e.Regarding.Kind]; !ok || !limit.TryAccept() {
		r.dropped(e.Regarding.Kind)
		return
	}
	err := r.writer.Create(ctx, r.object(e))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).Error(err, "Failed to create an Event", "reason", e.Reason, "message", e.Message)
		return
	}
	r.remember(name(e))
}

// isWritten reports whether the API server has the Event, as far as the Recorder remembers.
func (r *Recorder) isWritten(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, written := r.written[name]
	return written && r.clock.Since(at) < keptFor
}

func (r *Recorder) remember(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.written) >= maxWritten {
		clear(r.written)
	}
	r.written[name] = r.clock.Now()
}

func (r *Recorder) object(e Event) *corev1.Event {
	now := metav1.NewTime(r.clock.Now())
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name(e)},
		InvolvedObject:      e.Regarding,
		Type:                e.Type,
		Reason:              e.Reason,
		Message:             text.Clip(e.Message, maxMessage),
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
}

func name(e Event) string {
	content := fmt.Sprintf("%q %q %q %q %q", e.Regarding.UID, e.Regarding.Name, e.Type, e.Reason, e.Transition)
	prefix := e.Regarding.Name[:min(len(e.Regarding.Name), maxPrefix)]
	return strings.TrimRight(prefix, "-.") + "." + digest.Of(content)
}
