package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of ClusterPolicy.
	GroupVersion = schema.GroupVersion{Group: "nvidia.com", Version: "v1"}
	// ClusterPolicyKind is the kind that owns every object of the stack.
	ClusterPolicyKind = GroupVersion.WithKind("ClusterPolicy")
)

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterPolicy{}, &ClusterPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
