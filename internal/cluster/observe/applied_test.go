package observe_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// LastAppliedSpec finds what is recorded, and ignores other values of the annotation.
func TestLastApplied(t *testing.T) {
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Generation: 7},
		Spec:       v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(true)}},
	}
	applied, err := observe.SpecIDOf(policy)
	if err != nil {
		t.Fatal(err)
	}
	service := func(name, owner, text string) *corev1.Service {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: name}}
		if text != "" {
			service.Annotations = map[string]string{labels.AppliedSpec: text}
		}
		if owner != "" {
			service.OwnerReferences = []metav1.OwnerReference{
				{Kind: "ClusterPolicy", Name: "policy", UID: types.UID("u-" + owner), Controller: new(true)},
			}
		}
		return service
	}
	other := service("exporter", "1", "")
	tests := map[string]struct {
		objects []client.Object
		want    observe.SpecID
	}{
		"none":              {objects: []client.Object{other}},
		"of the policy":     {objects: []client.Object{other, service("operator", "1", applied.String())}, want: applied},
		"of another policy": {objects: []client.Object{service("operator", "2", applied.String())}},
		"of a policy that orphaned it": {
			objects: []client.Object{service("operator", "", applied.String())}, want: observe.SpecID{Digest: applied.Digest},
		},
		"no digest":      {objects: []client.Object{service("operator", "1", "7-")}},
		"no generation":  {objects: []client.Object{service("operator", "1", "x-"+applied.Digest)}},
		"something else": {objects: []client.Object{service("operator", "1", applied.Digest)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.objects...).Build()
			if got, err := observe.LastAppliedSpec(t.Context(), reader, "gpus", "u-1"); err != nil || got != test.want {
				t.Errorf("%v, %v; want %v", got, err, test.want)
			}
		})
	}
	if text := (observe.SpecID{}).String(); text != "" {
		t.Errorf("none is recorded as %q", text)
	}
	policy.Spec.Driver.Enabled = new(false)
	if changed, err := observe.SpecIDOf(policy); err != nil || changed.Digest == applied.Digest {
		t.Errorf("another spec has the digest %s, %v", changed.Digest, err)
	}
}
