package undecodable

import (
	"fmt"
	"reflect"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

var durationType = reflect.TypeFor[metav1.Duration]()

// Kinds are the kinds whose objects are checked, with the Go types that they are decoded into.
type Kinds map[schema.GroupVersionKind]reflect.Type

// CustomKinds returns the kinds of custom resources that programs of this project decode: the API server stores them by
// the schema of a definition, without decoding them as Go does. It fails if two types are registered for one kind.
func CustomKinds() (Kinds, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, v1alpha1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering the kinds: %w", err)
		}
	}
	return KindsOf(scheme, v1.GroupVersion.Group, monitoring.GroupName), nil
}
