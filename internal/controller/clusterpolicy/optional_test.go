package clusterpolicy

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// Definitions of the kinds that a pass may use are events, and no others: a cluster has hundreds.
func TestWhichDefinitionsAreEvents(t *testing.T) {
	g := NewWithT(t)
	passes := func(name string) bool {
		definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return relevantCRDs().Create(event.CreateEvent{Object: definition})
	}
	for _, name := range []string{
		crd.Name, "nvidiadrivers.nvidia.com", "servicemonitors.monitoring.coreos.com", "proxies.config.openshift.io",
		"clusterversions.config.openshift.io",
	} {
		g.Expect(passes(name)).To(BeTrue(), name)
	}
	g.Expect(passes("certificates.cert-manager.io")).To(BeFalse())
}

// Exactly the kinds that are defined and served are used, and none while one of them is unknown.
func TestWhichKindsAreFollowed(t *testing.T) {
	const monitors, rules = "servicemonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com"
	for name, test := range map[string]struct {
		crds    []string
		fails   string
		want    map[operand.OptionalKind]bool
		watched map[operand.OptionalKind]bool
	}{
		"none": {},
		"one":  {crds: []string{monitors}, want: map[operand.OptionalKind]bool{operand.ServiceMonitor: true}},
		"both": {crds: []string{monitors, rules}, want: map[operand.OptionalKind]bool{
			operand.ServiceMonitor: true, operand.PrometheusRule: true,
		}},
		"one is unknown": {
			crds: []string{monitors, rules}, fails: "map ServiceMonitor",
			watched: map[operand.OptionalKind]bool{operand.PrometheusRule: true},
		},
		"the other is unknown": {
			crds: []string{monitors, rules}, fails: "map PrometheusRule",
			watched: map[operand.OptionalKind]bool{operand.ServiceMonitor: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			u, crds := newUnit(t), map[string]bool{}
			for _, name := range test.crds {
				crds[name] = true
			}
			u.onCall(func(_ context.Context, c call) error {
				if c.op == test.fails {
					return errInjected
				}
				return nil
			})
			found, err := u.OptionalKinds.Follow(u.context(), crds)
			u.Expect(err).NotTo(HaveOccurred())
			u.Expect(found).To(HaveLen(len(test.want)))
			watched := test.watched
			if watched == nil {
				watched = test.want
			}
			for _, kind := range u.OptionalKinds.watches {
				u.Expect(found[kind.Kind]).To(Equal(test.want[kind.Kind]))
				u.Expect(kind.Watching()).To(Equal(watched[kind.Kind]), "%s", kind.Kind)
			}
			u.Expect(managedKinds(found)).To(HaveLen(len(manifest.Kinds()) + len(test.want)))
			u.onCall(nil)
			u.Expect(u.OptionalKinds.Follow(u.context(), nil)).To(BeEmpty())
			for _, kind := range u.OptionalKinds.watches {
				u.Expect(kind.Watching()).To(BeFalse())
			}
		})
	}
	u := newUnit(t)
	u.Expect(u.OptionalKinds.NeedLeaderElection()).To(BeTrue())
	u.failOnce("watch ServiceMonitor", 1)
	_, err := u.OptionalKinds.Follow(u.context(), map[string]bool{monitors: true})
	u.Expect(err).To(MatchError("watching ServiceMonitor objects: " + errInjected.Error()))
	u.Expect(u.OptionalKinds.Follow(u.context(), map[string]bool{monitors: true})).To(HaveLen(1))
	u.failOnce("unwatch ServiceMonitor", 1)
	_, err = u.OptionalKinds.Follow(u.context(), nil)
	u.Expect(err).To(MatchError("watching ServiceMonitor objects: " + errInjected.Error()))
}
