package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// rereads are the nodes that replace pods so that they read a changed configuration. It may be lost, and a node is
// dropped if its new pods are not created for long: nodes whose new pods do not work are known by their entries.
type rereads struct {
	mu    sync.Mutex
	nodes map[string]reread
}

// reread is a node whose pods are being replaced for a configuration: the UIDs of the old ones, and when it is dropped.
type reread struct {
	config   operand.NodePluginConfig
	replaced map[operand.Name]types.UID
	until    time.Time
}

// rereadTurn is what decides whether a node may replace its pods, beside the nodes that are at it.
type rereadTurn struct {
	// nodes use the same configuration, and limit of them may be without working pods.
	nodes, limit int
	// down are the others of them that are.
	down []string
	// anyway: this node is, so that it makes nothing worse.
	anyway bool
}

func newRereads() *rereads { return &rereads{nodes: map[string]reread{}} }

// begin returns the pods of the node that are to be replaced: all of these or, if an earlier reconcile has begun, those
// that are left. It returns false if too many other nodes are at it.
func (r *rereads) begin(
	node string, next reread, pods assess.Pods, turn rereadTurn, now time.Time,
) (assess.Pods, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.nodes, func(_ string, of reread) bool { return !now.Before(of.until) })
	before, begun := r.nodes[node]
	if begun && before.config == next.config {
		left := maps.Clone(pods)
		maps.DeleteFunc(left, func(name operand.Name, pod *corev1.Pod) bool { return before.replaced[name] != pod.UID })
		return left, true
	}
	if len(pods) > 0 && !begun && !turn.anyway && r.count(next.config.Source, turn.down) >= turn.limit {
		return nil, false
	}
	next.replaced = map[operand.Name]types.UID{}
	for name, pod := range pods {
		next.replaced[name] = pod.UID
	}
	r.nodes[node] = next
	return pods, true
}

// count returns how many nodes with a configuration of this source replace pods, or are down.
func (r *rereads) count(source string, down []string) int {
	count := len(down)
	for node, of := range r.nodes {
		if of.config.Source == source && !slices.Contains(down, node) {
			count++
		}
	}
	return count
}

// end lets another node begin once each replaced pod of this one has a ready successor.
func (r *rereads) end(node string, pods assess.Pods, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, replaced := range r.nodes[node].replaced {
		if pod := pods[name]; pod == nil || pod.UID == replaced || readiness.Pod(pod, "", now).State != readiness.Ready {
			return
		}
	}
	delete(r.nodes, node)
}

// readConfig is the annotation of a node whose pods have read the configuration.
func readConfig(config operand.NodePluginConfig) string { return config.Source + " " + config.Digest }

// isOfSource reports whether the annotation is about a configuration of this source.
func isOfSource(recorded, source string) bool {
	of, _, _ := strings.Cut(recorded, " ")
	return of == source
}

// recordPluginConfig adds the annotation with the configuration that the pods of the node read when they start, or when
// config-manager notices that the label of the node selects another one.
func (s *scope) recordPluginConfig(annotationChanges map[string]*string) {
	planned := s.nodePlan().PluginConfigRead
	switch recorded, exists := s.node.Annotations[labels.PluginConfigRead]; {
	case planned.Source == "" && exists:
		annotationChanges[labels.PluginConfigRead] = nil
	case planned.Digest != "" && !isOfSource(recorded, planned.Source):
		annotationChanges[labels.PluginConfigRead] = new(readConfig(planned))
	}
}

// replaceReaders replaces the pods of the node that read a configuration whose content has changed since, which
// config-manager does not notice, and no pods of other nodes. A configuration with which the device plugin would not
// start replaces none that works.
//
// The annotation is written last: if the operator ends before, it replaces the pods again.
func (s *scope) replaceReaders(ctx context.Context, pods assess.Pods) error {
	planned, readers := s.nodePlan().PluginConfigRead, s.readers(pods)
	s.entry.ReadersDown = s.areDown(readers)
	if !s.mustReread(planned) {
		s.rereads.end(s.node.Name, pods, s.now)
		return nil
	}
	if !s.mayWrite() {
		return nil
	}
	maps.DeleteFunc(readers, func(_ operand.Name, pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	next := reread{config: planned, until: s.now.Add(s.Timing.RereadPatience)}
	turn, may := s.rereadTurn(planned.Source)
	if may {
		readers, may = s.rereads.begin(s.node.Name, next, readers, turn, s.now)
	}
	if !may {
		s.requeueWithin(s.Timing.RetryReread + time.Duration(turn.nodes)*s.Timing.RetryRereadPerNode)
		return nil
	}
	log.FromContext(ctx).Info("Replacing the pods that read a changed configuration of the device plugin",
		"configuration", planned.Source)
	for _, pod := range readers {
		if err := s.deletePod(ctx, pod); err != nil {
			return err
		}
	}
	return s.patchMetadata(ctx, nil, map[string]*string{labels.PluginConfigRead: new(readConfig(planned))})
}

// mustReread reports whether the pods of the node have read another content of the configuration, and may be replaced.
func (s *scope) mustReread(planned operand.NodePluginConfig) bool {
	recorded, daemonSets := s.node.Annotations[labels.PluginConfigRead], s.nodePlan().Spec.DaemonSets
	changed := planned.Digest != "" && isOfSource(recorded, planned.Source) && recorded != readConfig(planned)
	return changed && !planned.Broken && daemonSets.UpdateStrategy != string(appsv1.OnDeleteDaemonSetStrategyType)
}

// readers returns those of the node's pods that read a configuration of the device plugin.
func (s *scope) readers(pods assess.Pods) assess.Pods {
	readers := assess.Pods{}
	for i := range s.Catalogue {
		o := &s.Catalogue[i]
		if pod := pods[o.Name]; pod != nil && o.ReadsPluginConfig(s.basis.Decisions.Input) {
			readers[o.Name] = pod
		}
	}
	return readers
}

// areDown reports whether one of the node's pods that read the configuration does not work although the stages before
// the device plugin are reached, so that the configuration may be why. The pods of a node whose kubelet does not report
// are unknown.
func (s *scope) areDown(readers assess.Pods) bool {
	if s.entry.Latest.Stage.Before(v1.StageDevicePlugin) || readiness.Kubelet(s.node).Reason != "" {
		return false
	}
	for _, pod := range readers {
		if readiness.Pod(pod, "", s.now).State != readiness.Ready {
			return true
		}
	}
	return false
}

// rereadTurn looks at the other nodes that use the configuration: as many may be without working pods as a DaemonSet
// would allow. It returns false while a node is not assessed, as after a restart of the operator.
func (s *scope) rereadTurn(source string) (turn rereadTurn, known bool) {
	beside, known := s.Fleet.ReadersBeside(s.node.Name, source)
	turn.nodes, turn.down, turn.anyway = 1+beside.Nodes, beside.Down, s.entry.ReadersDown
	if !known {
		return turn, false
	}
	maxUnavailable := s.nodePlan().Spec.MaxUnavailable(false)
	// What is no number or percentage is refused when DaemonSets are rendered.
	limit, _ := intstr.GetScaledValueFromIntOrPercent(&maxUnavailable, turn.nodes, true)
	turn.limit = max(limit, 1)
	return turn, true
}

// deletePod deletes a pod of the operator. One that is gone, or was replaced by another with its name, is done.
func (s *scope) deletePod(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := s.Client.Delete(ctx, object, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}
