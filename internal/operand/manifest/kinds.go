package manifest

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Object is a typed object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kinds are the kinds of assets that every cluster serves. They are decoded, applied, watched and pruned.
func Kinds() []Object {
	return []Object{
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}},
		&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}},
		&nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}},
		&appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}},
	}
}

// OptionalKind is a kind of assets that only some clusters serve.
type OptionalKind struct {
	// Kind is the key in operand.Input.Optional.
	Kind operand.OptionalKind
	// CRD is the name of the CustomResourceDefinition that defines it.
	CRD    string
	Object Object
}

// OptionalKinds are those of the Prometheus operator.
func OptionalKinds() []OptionalKind {
	group := monitoringv1.SchemeGroupVersion.String()
	return []OptionalKind{
		{operand.ServiceMonitor, "servicemonitors.monitoring.coreos.com",
			&monitoringv1.ServiceMonitor{TypeMeta: metav1.TypeMeta{APIVersion: group, Kind: string(operand.ServiceMonitor)}}},
		{operand.PrometheusRule, "prometheusrules.monitoring.coreos.com",
			&monitoringv1.PrometheusRule{TypeMeta: metav1.TypeMeta{APIVersion: group, Kind: string(operand.PrometheusRule)}}},
	}
}

func allKinds() []Object {
	kinds := Kinds()
	for _, optional := range OptionalKinds() {
		kinds = append(kinds, optional.Object)
	}
	return kinds
}
