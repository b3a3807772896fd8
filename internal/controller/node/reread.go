package node

import (
	"context"
	"fmt"
	"maps"
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

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// rereads limits how many nodes replace pods at a time so that they read a changed configuration. It may be lost: the
// nodes that are at it are then not counted.
type rereads struct {
	mu    sync.Mutex
	nodes map[string]reread
}

// reread is a node whose pods are being replaced for a configuration: the UIDs of the old ones, and when others may
// begin anyway.
type reread struct {
	config   operand.NodePluginConfig
	replaced map[operand.Name]types.UID
	until    time.Time
}

func newRereads() *rereads { return &rereads{nodes: map[string]reread{}} }

// begin returns the pods of the node that are to be replaced: all of these or, if an earlier reconcile has begun, those
// that are left. It returns false if too many other nodes are at it.
func (r *rereads) begin(node string, next reread, pods assess.Pods, limit int, now time.Time) (assess.Pods, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.nodes, func(_ string, of reread) bool { return !now.Before(of.until) })
	before, begun := r.nodes[node]
	if begun && before.config == next.config {
		left := maps.Clone(pods)
		maps.DeleteFunc(left, func(name operand.Name, pod *corev1.Pod) bool { return before.replaced[name] != pod.UID })
		return left, true
	}
	if len(pods) > 0 && !begun && len(r.nodes) >= limit {
		return nil, false
	}
	next.replaced = map[operand.Name]types.UID{}
	for name, pod := range pods {
		next.replaced[name] = pod.UID
	}
	r.nodes[node] = next
	return pods, true
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
	planned := s.nodePlan().PluginConfigRead
	if !s.mustReread(planned) {
		s.rereads.end(s.node.Name, pods, s.now)
		return nil
	}
	if !s.mayWrite() {
		return nil
	}
	nodes := len(s.Fleet.Names())
	next := reread{config: planned, until: s.now.Add(s.Timing.RereadPatience)}
	readers, may := s.rereads.begin(s.node.Name, next, s.readers(pods), s.rereadLimit(nodes), s.now)
	if !may {
		s.requeueWithin(s.Timing.RetryReread + time.Duration(nodes)*s.Timing.RetryRereadPerNode)
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

// readers returns those of the node's pods that read a configuration of the device plugin, and are not being deleted.
func (s *scope) readers(pods assess.Pods) assess.Pods {
	readers := assess.Pods{}
	for i := range s.Catalogue {
		o := &s.Catalogue[i]
		if pod := pods[o.Name]; pod != nil && pod.DeletionTimestamp == nil && o.ReadsPluginConfig(s.basis.Decisions.Input) {
			readers[o.Name] = pod
		}
	}
	return readers
}

// rereadLimit is how many of the nodes may replace pods at a time: as many as a DaemonSet would.
func (s *scope) rereadLimit(nodes int) int {
	maxUnavailable := s.nodePlan().Spec.MaxUnavailable(false)
	// What is no number or percentage is refused when DaemonSets are rendered.
	limit, _ := intstr.GetScaledValueFromIntOrPercent(&maxUnavailable, nodes, true)
	return max(limit, 1)
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
