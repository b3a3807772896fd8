package campaign

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// nextDriver is a version of the driver that the workload U installs in place of the default one.
const nextDriver = "580.105.08"

// upgradeDrivers replaces the driver of each node. The one that a user has cordoned counts as unavailable.
var upgradeDrivers = &workload{
	id: "U", what: "upgrade the drivers, one node at a time", nodes: fewNodes, maxParallel: 1,
	policy: func(p *v1.ClusterPolicy) {
		p.Spec.Driver = &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
			AutoUpgrade: new(true), MaxParallelUpgrades: new(int32(1)), MaxUnavailable: new(intstr.FromString("100%")),
			PullImages: new(false),
		}}
	},
	change: func(ctx context.Context, r *run) error {
		return respec(ctx, r, func(spec *v1.ClusterPolicySpec) { spec.Driver.Version = nextDriver })
	},
	ended: func(ctx context.Context, r *run) error {
		for number := range fewNodes {
			if err := r.isUpgraded(ctx, nodeName(number)); err != nil {
				return err
			}
		}
		return r.isReady(ctx, fewNodes)
	},
	mayGo: func(string, string) bool { return true },
}

// isUpgraded returns why the upgrade of the node has not ended: its state, its cordon, or its driver.
func (r *run) isUpgraded(ctx context.Context, name string) error {
	node, pods := &corev1.Node{}, &corev1.PodList{}
	if err := r.quiet.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	state := node.Labels[labels.UpgradeState]
	if state != "upgrade-done" || node.Spec.Unschedulable != (name == cordoned) {
		return fmt.Errorf("L4 %s has state %q, cordoned: %t", name, state, node.Spec.Unschedulable)
	}
	drivers := client.MatchingLabels{labels.Operand: "driver"}
	if err := r.quiet.List(ctx, pods, client.InNamespace(namespace), drivers); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == name && runsVersion(pod, nextDriver) {
			return nil
		}
	}
	return fmt.Errorf("L4 no pod of driver %s is on %s", nextDriver, name)
}

func runsVersion(pod *corev1.Pod, version string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image, version)
	})
}

// duringUpgrade returns the points of row U4: a crash after each kind of write of an upgrade, and others.
func duringUpgrade(ctx context.Context, c *campaign) ([]point, error) {
	writes, err := c.writesOf(ctx, upgradeDrivers, Ready)
	if err != nil {
		return nil, err
	}
	// How often a pod is replaced, by its upgrade or since it has validated an earlier driver, depends on the times.
	during := func(name string, o options, f Fault) point {
		o.counts = true
		return point{name: "U/" + name, workload: upgradeDrivers, faults: []Fault{f}, options: o}
	}
	const last = 8 * time.Second
	refused := API{{
		Match: fault.Match{Verbs: []string{"patch"}, Resources: []string{"nodes"}}, Action: fault.Action{
			Status: http.StatusInternalServerError,
		},
	}}
	changed := When{Moment: Changed, After: 2 * time.Second}
	points := []point{
		during("refused", options{}, Fault{When: changed, What: refused, For: last}),
		during("frozen", options{}, Fault{When: changed, What: Freeze, For: last}),
		during("killed", options{}, Fault{When: When{Moment: Changed}, What: Again(2 * time.Second), For: 10 * time.Second}),
		during("twice", options{operators: 2}, Fault{When: changed, What: Kill}),
	}
	for _, request := range ordered(writes) {
		isUpgrade := request.Resource == "nodes" && request.Subresource == "" ||
			request.Resource == "pods" || request.Name == labels.UpgradeSlots
		if !isUpgrade {
			continue
		}
		if request.Resource == "pods" {
			request.Name = ""
		}
		points = append(points, during("after_"+nameOf(request), options{}, Fault{What: Kill, When: When{
			Moment: Ready, Write: &AtWrite{
				Match: fault.Match{
					Verbs: []string{request.Verb}, Resources: []string{request.Resource}, Subresource: request.Subresource,
					Name: request.Name,
				}, Nth: 1, Phase: fault.After,
			},
		}}))
	}
	return distinct(points), nil
}

// distinct drops points of the same name: those of pods, whose names differ in each run.
func distinct(points []point) []point {
	var found []point
	seen := map[string]bool{}
	for _, p := range points {
		if !seen[p.name] {
			seen[p.name] = true
			found = append(found, p)
		}
	}
	return found
}
