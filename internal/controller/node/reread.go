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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
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
	// wasDown: the node does not count, as in a readRecord.
	wasDown bool
	// readySince is when all new pods were seen ready for the first time since one of them was not; zero while one is not.
	readySince time.Time
}

// rereadTurn is what decides whether a node may replace its pods, beside the nodes that are at it.
type rereadTurn struct {
	// nodes use the same configuration, and limit of them may be without working pods.
	nodes, limit int
	// down are the others of them that are, without those that were before they read it.
	down []string
	// anyway: this node is, so that it makes nothing worse.
	anyway bool
	// read is how many of the others have read which digest.
	read map[string]int
}

// haveRead reports whether all other nodes have read one of the digests: the earlier one, with which this node is down,
// so that it has kept none from reading it, or the next one. There is at least one other node.
func (t rereadTurn) haveRead(earlier, next string) bool {
	others := t.nodes - 1
	return others > 0 && t.read[earlier]+t.read[next] == others
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
	if len(pods) > 0 && !begun && !turn.anyway && len(r.atIt(next.config.Source, turn.down)) >= turn.limit {
		return nil, false
	}
	next.replaced = map[operand.Name]types.UID{}
	for name, pod := range pods {
		next.replaced[name] = pod.UID
	}
	r.nodes[node] = next
	return pods, true
}

// atIt returns the nodes with a configuration of this source that replace pods, or are down. Those that were down
// before do not count.
func (r *rereads) atIt(source string, down []string) []string {
	nodes := slices.Clone(down)
	for node, of := range r.nodes {
		if of.config.Source == source && !of.wasDown && !slices.Contains(down, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// others returns the first few nodes for which one with a configuration of this source waits, in order.
func (r *rereads) others(source string, down []string) []string {
	const most = 3
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := r.atIt(source, down)
	slices.Sort(nodes)
	return nodes[:min(len(nodes), most)]
}

// end lets another node begin once each replaced pod of this one has had a ready successor for the time of proof: a
// container without a readiness probe is ready from its start until it crashes. It returns how long that still takes;
// 0 if it has ended, or if a pod is not ready, which the change of the pod ends.
func (r *rereads) end(node string, pods assess.Pods, now time.Time, proof time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, begun := r.nodes[node]
	if !begun {
		return 0
	}
	for name, replaced := range of.replaced {
		if pod := pods[name]; pod == nil || pod.UID == replaced || readiness.Pod(pod, "", now).State != readiness.Ready {
			of.readySince = time.Time{}
			r.nodes[node] = of
			return 0
		}
	}
	if of.readySince.IsZero() {
		of.readySince = now
		r.nodes[node] = of
	}
	left := of.readySince.Add(proof).Sub(now)
	if left <= 0 || len(of.replaced) == 0 {
		delete(r.nodes, node)
		return 0
	}
	return left
}

// readRecord is the annotation of a node whose pods have read a configuration.
type readRecord struct {
	source, digest string
	// wasDown: the pods had not worked before they read it, for a reason of the node's own. That they still do not work is
	// no reason to keep the configuration from other nodes.
	wasDown bool
}

// wordWasDown is the last word of the annotation for wasDown.
const wordWasDown = "was-down"

func (s *scope) readRecord() readRecord {
	words := append(strings.Fields(s.node.Annotations[labels.PluginConfigRead]), "", "", "")
	return readRecord{source: words[0], digest: words[1], wasDown: words[2] == wordWasDown}
}

func (r readRecord) annotation() *string {
	words := []string{r.source, r.digest}
	if r.wasDown {
		words = append(words, wordWasDown)
	}
	return new(strings.Join(words, " "))
}

// recordPluginConfig adds the annotation with the configuration that the pods of the node read when they start, or when
// gpu-node configure notices that the label of the node selects another one.
func (s *scope) recordPluginConfig(annotationChanges map[string]*string) {
	planned := s.nodePlan().PluginConfigRead
	switch _, exists := s.node.Annotations[labels.PluginConfigRead]; {
	case planned.Source == "" && exists:
		annotationChanges[labels.PluginConfigRead] = nil
	case planned.Digest != "" && s.readRecord().source != planned.Source:
		next := readRecord{source: planned.Source, digest: planned.Digest}
		annotationChanges[labels.PluginConfigRead] = next.annotation()
	}
}

// replaceReaders replaces the pods of the node that read a configuration whose content has changed since, which
// gpu-node configure does not notice, and no pods of other nodes. A configuration with which the device plugin would
// not start replaces none that works.
//
// The annotation is written last: if the operator ends before, it replaces the pods again.
func (s *scope) replaceReaders(ctx context.Context, pods assess.Pods) error {
	planned, readers, recorded := s.nodePlan().PluginConfigRead, s.readers(pods), s.readRecord()
	areDown := s.areDown(readers)
	s.entry.ReadersDown, s.entry.ReadDigest = areDown && !recorded.wasDown, recorded.digest
	if !s.mustReread(planned, recorded) {
		if left := s.rereads.end(s.node.Name, pods, s.now, s.Timing.RereadProof); left > 0 {
			s.requeueWithin(left)
		}
		return nil
	}
	if !s.beginWrite() {
		return nil
	}
	maps.DeleteFunc(readers, func(_ operand.Name, pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	turn, may := s.rereadTurn(planned.Source)
	turn.anyway = areDown
	next := reread{config: planned, until: s.now.Add(s.Timing.RereadPatience)}
	next.wasDown = areDown && (recorded.wasDown || turn.haveRead(recorded.digest, planned.Digest))
	if may {
		readers, may = s.rereads.begin(s.node.Name, next, readers, turn, s.now)
	}
	if !may {
		log.FromContext(ctx).V(1).Info("Waiting for other nodes that read a changed configuration of the device plugin",
			"configuration", planned.Source, "nodes", s.rereads.others(planned.Source, turn.down))
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
	return s.recordReread(ctx, readRecord{source: planned.Source, digest: planned.Digest, wasDown: next.wasDown}, areDown)
}

// recordReread writes the annotation of a node that has replaced its pods, which were down or not.
func (s *scope) recordReread(ctx context.Context, record readRecord, areDown bool) error {
	changes := map[string]*string{labels.PluginConfigRead: record.annotation()}
	if err := s.patchMetadata(ctx, nil, changes); err != nil {
		return err
	}
	s.entry.ReadersDown, s.entry.ReadDigest = areDown && !record.wasDown, record.digest
	return nil
}

// mustReread reports whether the pods of the node have read another content of the configuration, and may be replaced.
func (s *scope) mustReread(planned operand.NodePluginConfig, recorded readRecord) bool {
	daemonSets := s.nodePlan().Spec.DaemonSets
	changed := planned.Digest != "" && recorded.source == planned.Source && recorded.digest != planned.Digest
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
	turn.nodes, turn.down, turn.read = 1+beside.Nodes, beside.Down, beside.Read
	if !known {
		return turn, false
	}
	maxUnavailable := s.nodePlan().Spec.MaxUnavailable(false)
	// The effective spec has numbers and percentages only.
	limit, _ := intstr.GetScaledValueFromIntOrPercent(&maxUnavailable, turn.nodes, true)
	turn.limit = max(limit, 1)
	return turn, true
}

// heldConfig returns the source of the configuration that other nodes do not read because a pod does not work that has
// read it on this node; empty if none waits. After a start of the operator, until all nodes are assessed, that is what
// the condition of the node shows, and recheck is after how long to look again.
func (s *scope) heldConfig() (source string, recheck time.Duration) {
	planned := s.nodePlan().PluginConfigRead
	isFirst := s.entry.Latest.Stage == ""
	if planned.Source == "" || !isFirst && !s.entry.ReadersDown {
		return "", 0 // As for nearly all nodes, without a look at the others.
	}
	if s.readRecord() != (readRecord{source: planned.Source, digest: planned.Digest}) {
		return "", 0
	}
	turn, known := s.rereadTurn(planned.Source)
	if !known || isFirst {
		if assess.RecordOf(s.node).HeldConfig != planned.Source {
			return "", 0
		}
		return planned.Source, s.Timing.RetryReread
	}
	waiting := turn.nodes - 1 - turn.read[planned.Digest]
	if waiting == 0 || 1+len(turn.down) < turn.limit {
		return "", 0
	}
	return planned.Source, 0
}

// fails reports whether one of the pods has failed, rather than not started yet.
func (s *scope) fails(pods assess.Pods) bool {
	for _, pod := range pods {
		if readiness.Pod(pod, "", s.now).State == readiness.Failed {
			return true
		}
	}
	return false
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
