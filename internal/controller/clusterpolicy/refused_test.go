package clusterpolicy

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// What the API server refuses of a DaemonSet is reported with the fields of the spec.
func TestRefusedDaemonSetsNameFieldsOfTheSpec(t *testing.T) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	spec := v1.ClusterPolicySpec{
		DCGMExporter: &v1.DCGMExporterSpec{ContainerSpec: v1.ContainerSpec{HostNetwork: new(true)}},
		DaemonSets: &v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{
			Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}},
		}},
		NodePools: []v1.NodePoolSpec{{
			Name: "a", NodeSelector: v1.NodePoolSelector{"a": "b"},
			Driver: &v1.NodePoolDriverSpec{HostNetwork: new(true), PriorityClassName: "b"},
		}},
	}
	p := plan.Compute(plan.Decide(catalogue, operand.Input{Spec: effective.Of(spec)}), nil, nil)
	refused := fmt.Errorf("applying DaemonSet a: %w", apierrors.NewInvalid(
		appsv1.SchemeGroupVersion.WithKind("DaemonSet").GroupKind(), "a", field.ErrorList{
			field.Invalid(field.NewPath("spec", "template", "spec", "securityContext", "sysctls").Index(0), "x", "no"),
			field.Invalid(field.NewPath("spec", "template", "spec", "priorityClassName"), "x", "no"),
		}))
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}
	vague := apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("DaemonSet").GroupKind(), "a", nil)
	const all = "spec.daemonsets.podSecurityContext, spec.daemonsets.priorityClassName: "
	own := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.NodePool: "a"}}}
	for name, test := range map[string]struct {
		operand operand.Name
		object  client.Object
		err     error
		want    string
	}{
		"DaemonSet": {"dcgm-exporter", &appsv1.DaemonSet{}, refused, all + refused.Error()},
		"DaemonSet of a node pool": {"driver", own, refused, "node pool a: spec.daemonsets.podSecurityContext, " +
			"spec.nodePools[].driver.priorityClassName: " + refused.Error()},
		"another object": {"dcgm-exporter", &corev1.Service{}, refused, refused.Error()},
		"another error":  {"dcgm-exporter", &appsv1.DaemonSet{}, errInjected, errInjected.Error()},
		"no details":     {"dcgm-exporter", &appsv1.DaemonSet{}, bare, bare.Error()},
		"no causes":      {"dcgm-exporter", &appsv1.DaemonSet{}, vague, vague.Error()},
	} {
		for i := range p.Steps {
			if o := &p.Steps[i].Operand; o.Name == test.operand {
				got := withFields(p, o, test.object, test.err)
				if got.Error() != test.want || !errors.Is(got, test.err) {
					t.Errorf("%s: got  %v\nwant %s", name, got, test.want)
				}
			}
		}
	}
}

// The fields of an input belong to the policy, to a node pool or to an NVIDIADriver object.
func TestWhatHasTheFields(t *testing.T) {
	drivers := []operand.NVIDIADriver{{Name: "one", Pool: "pool-one"}, {Name: "two", Pool: "pool-two"}}
	for want, in := range map[string]operand.Input{
		"":                   {},
		"node pool a: ":      {NodePool: &v1.NodePoolSpec{Name: "a"}, NVIDIADrivers: drivers},
		"NVIDIADriver two: ": {NodePool: &v1.NodePoolSpec{Name: "pool-two"}, OfNVIDIADriver: true, NVIDIADrivers: drivers},
		"node pool b: ":      {NodePool: &v1.NodePoolSpec{Name: "b"}, OfNVIDIADriver: true, NVIDIADrivers: drivers},
	} {
		if got := ownerOf(in); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
