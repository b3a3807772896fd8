package upgrade

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// readWorkloads reads the pods of users on the nodes whose next step depends on them, from the API server: they are in
// no cache. It schedules the next read, since they cause no events here.
func (s *scope) readWorkloads(ctx context.Context) {
	var reads errgroup.Group
	reads.SetLimit(workers)
	for i := range s.cluster.Nodes {
		node := &s.cluster.Nodes[i]
		if !s.needsWorkload(node) {
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
		s.requeueAfter(s.memory.nextPoll(waited, &s.Timing))
	}
	s.forget(pods)
}

// needsWorkload reports whether the next step of the node depends on the pods of users, and may be carried out.
func (s *scope) needsWorkload(node *upgrade.Node) bool {
	switch {
	case s.observed[node.Name].hold || s.basis.Decisions == nil:
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
			pods[i].Blocked = s.memory.rejection(pods[i].UID).reason
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
	rules, err := observe.UpgradePodPolicy(s.Namespace, entry.Planned.NodePlan.Spec.Driver.UpgradePolicy)
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
