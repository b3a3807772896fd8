package events

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

const (
	// component is who tells.
	component = "gpu-operator"
	// maxMessage is the longest message that the API server takes.
	maxMessage = 1024
	// maxPrefix leaves room in the name of an Event for what tells it from others.
	maxPrefix = 230
)

// limits bound the Events about one kind of object: so many at once, and so many a second after that.
var limits = map[string]struct {
	burst  int
	second float32
}{
	"Node": {100, 0.1},
	// Of each operand that fails beside the ladder there is one.
	"ClusterPolicy": {50, 0.1},
}

// Event tells of one transition of an object that is in no namespace.
type Event struct {
	// Regarding is the object, by kind, API version, name and UID.
	Regarding corev1.ObjectReference
	// Type is Normal or Warning.
	Type string
	// Reason in one word, and Message in a sentence.
	Reason, Message string
	// Transition tells this one from others of the object. The same again makes no second Event, also not after
	// a restart, for as long as the API server keeps the first: an hour.
	Transition string
}

// Recorder writes Events.
type Recorder struct {
	writer  client.Writer
	clock   clock.PassiveClock
	limits  map[string]flowcontrol.PassiveRateLimiter
	dropped func(kind string)
}

// NewRecorder returns a Recorder. dropped is called for each Event that is one too many, with the kind of its
// object.
func NewRecorder(writer client.Writer, clk clock.PassiveClock, dropped func(kind string)) *Recorder {
	r := &Recorder{writer: writer, clock: clk, limits: map[string]flowcontrol.PassiveRateLimiter{}, dropped: dropped}
	for kind, limit := range limits {
		r.limits[kind] = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(limit.second, limit.burst, clk)
	}
	return r
}

// Record writes the Event, unless there is one of that transition, or there have been too many. It is to be
// called before the transition is written itself: who is interrupted between the two does both again, and the
// name of the Event is the same.
func (r *Recorder) Record(ctx context.Context, e Event) {
	if limit, known := r.limits[e.Regarding.Kind]; !known || !limit.TryAccept() {
		r.dropped(e.Regarding.Kind)
		return
	}
	err := r.writer.Create(ctx, r.object(e))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).Error(err, "Writing an Event", "reason", e.Reason, "message", e.Message)
	}
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
