package upgrade

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// refreshWorkloads reads the pods of users on the nodes whose next step depends on them, from the API server: they are
// in no cache. It remembers them and schedules the next read, since they cause no events here. Passes follow each other
// with the events of all nodes, so pods that a node waits for are not read again in each.
func (s *scope) refreshWorkloads(ctx context.Context) {
	var reads errgroup.Group
	reads.SetLimit(workers)
	kept := map[string]keptWorkload{}
	for i := range s.cluster.Nodes {
		node := &s.cluster.Nodes[i]
		if !s.needsWorkload(node) {
			continue
		}
		if known, left := s.keptWorkload(node.Name); left > 0 {
			kept[node.Name], node.Workload = known, known.copy()
			s.lockAndRequeueAfter(left)
			continue
		}
		reads.Go(func() error {
			s.call(ctx, node.Name, readsPods, func(ctx context.Context) (err error) {
				node.Workload, err = s.workloadOf(ctx, node)
				return err
			})
			return nil
		})
	}
	_ = reads.Wait()
	s.keepWorkloads(kept)
	waited, pods := 0, map[types.UID]bool{}
	for i := range s.cluster.Nodes {
		node := &s.cluster.Nodes[i]
		if node.Workload == nil {
			continue
		}
		waited += countPods(node.Workload)
		for _, found := range [][]upgrade.WorkloadPod{node.Workload.Users, node.Workload.Others} {
			s.addRejections(found, pods)
		}
	}
	if waited > 0 {
		s.RequeueAfter(s.memory.slowPoll(waited, &s.Timing))
	}
	s.forget(pods)
}

// workloadBasis is what a workload was read for: another version of the Node has another state, cordon or drain, and
// another Basis or plan other rules.
type workloadBasis struct {
	version, planned string
	basis            uint64
}

// keptWorkload are the pods of users on a node that waits for them, as they were read.
type keptWorkload struct {
	of       workloadBasis
	at       time.Time
	workload upgrade.Workload
}

// copy returns the workload to add rejections to.
func (k *keptWorkload) copy() *upgrade.Workload {
	return &upgrade.Workload{
		Users: slices.Clone(k.workload.Users), Jobs: slices.Clone(k.workload.Jobs), Others: slices.Clone(k.workload.Others),
	}
}

func (s *scope) workloadBasis(node string) workloadBasis {
	of := workloadBasis{version: s.observed[node].node.ResourceVersion, basis: s.Basis.Version}
	if entry := s.Fleet.Get(node); entry != nil && entry.Planned != nil {
		of.planned = entry.Planned.Inputs.Version
	}
	return of
}

// keptWorkload returns the workload that was read for the same, and after how long it is to be read again; 0 or less if
// that is due.
func (s *scope) keptWorkload(node string) (known keptWorkload, left time.Duration) {
	known = s.memory.workloads[node]
	if known.at.After(s.Now) || known.of != s.workloadBasis(node) {
		return keptWorkload{}, 0
	}
	return known, s.Timing.FirstPoll - s.Now.Sub(known.at)
}

// keepWorkloads adds to kept the workloads that were just read, and lets the next pass have them. Only those that make
// their node wait are kept: a node must not begin or go on because of pods that were not there some time ago.
func (s *scope) keepWorkloads(kept map[string]keptWorkload) {
	for i := range s.cluster.Nodes {
		node := &s.cluster.Nodes[i]
		if _, known := kept[node.Name]; known || !node.AwaitsPods() {
			continue
		}
		read := keptWorkload{of: s.workloadBasis(node.Name), at: s.Now, workload: *node.Workload}
		kept[node.Name], node.Workload = read, read.copy()
	}
	s.memory.workloads = kept
}

// needsWorkload reports whether the next step of the node depends on the pods of users, and may be carried out.
func (s *scope) needsWorkload(node *upgrade.Node) bool {
	switch {
	case s.observed[node.Name].hold || s.Basis.Decisions == nil:
		return false
	case node.NeedsWorkload() && (node.Record.State != upgrade.StateRequired || s.cluster.Slots.Valid(node)):
		return true
	default:
		return s.cluster.NeedsDrained(node)
	}
}

// addRejections adds to pods why the API server has rejected their last eviction, and adds them to those that exist.
func (s *scope) addRejections(pods []upgrade.WorkloadPod, exist map[types.UID]bool) {
	for i := range pods {
		exist[pods[i].UID] = true
		if pods[i].Blocked == "" {
			pods[i].Blocked = s.memory.rejection(pods[i].UID).answer.text
		}
	}
}

// workloadOf reads the pods of users on a node. It fails if a claim cannot be read that may be for a GPU or not: pods
// with GPUs are evicted, so that none may count as one by a guess.
func (s *scope) workloadOf(ctx context.Context, node *upgrade.Node) (*upgrade.Workload, error) {
	entry := s.Fleet.Get(node.Name)
	if entry == nil || entry.Planned == nil {
		return nil, nil
	}
	planned := &entry.Planned.NodePlan
	field := observe.UpgradePolicyField(s.Basis.Decisions.Input.Spec, planned)
	rules, err := observe.UpgradePodPolicy(s.Namespace, field, planned.Spec.Driver.UpgradePolicy)
	if err != nil {
		return nil, err
	}
	rules.Draining = node.IsDrained()
	pods := &corev1.PodList{}
	if err := s.Live.List(ctx, pods, client.MatchingFields{observe.PodNodeField: node.Name}); err != nil {
		return nil, err
	}
	claims, failed := s.claims.Certain(ctx)
	workload := upgrade.ClassifyPods(pods.Items, rules, claims)
	if err := failed(); err != nil {
		return nil, err
	}
	return &workload, nil
}
