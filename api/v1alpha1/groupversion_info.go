package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of NVIDIADriver.
	GroupVersion = schema.GroupVersion{Group: "nvidia.com", Version: "v1alpha1"}
	// NVIDIADriverKind is the kind of the objects that describe drivers.
	NVIDIADriverKind = GroupVersion.WithKind("NVIDIADriver")
)

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NVIDIADriver{}, &NVIDIADriverList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
