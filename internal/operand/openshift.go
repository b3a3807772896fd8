package operand

import (
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// OpenShiftCluster is what the configuration of OpenShift has for drivers. It is empty on other clusters.
type OpenShiftCluster struct {
	// Version is the newest release that was completely installed, as major and minor: 4.18.
	Version string
	// Proxy is that of the cluster, with what OpenShift itself excludes from it.
	Proxy v1.ProxySpec
	// ProxyHasCA: connections through the proxy need certificates of an authority that the images do not have.
	ProxyHasCA bool
}

// TrustedCA returns the use of the ConfigMap that OpenShift fills with the certificates that the cluster trusts: by
// drivers, if the cluster's proxy needs certificates and the spec has none. Its name is empty otherwise.
func (in Input) TrustedCA() Use {
	if !in.OpenShiftCluster.ProxyHasCA || in.Spec.Global.CABundle.ConfigMapName != "" {
		return Use{}
	}
	use := ConfigMapUse(caBundleField, labels.TrustedCA, labels.CABundleFile)
	use.Optional = true
	return use
}

// TrustsCluster reports whether drivers trust the certificates that the cluster trusts: they use the ConfigMap, and
// OpenShift has filled it.
func (in Input) TrustsCluster() bool {
	use := in.TrustedCA()
	return use.Name != "" && slices.Contains(in.KeysOf(use.Name), labels.CABundleFile)
}

// DriverProxy returns the proxy of the driver's containers, if the spec names none: that of the operator's environment,
// or else that of the cluster.
func (in Input) DriverProxy() v1.ProxySpec {
	switch {
	case *in.Spec.Global.Proxy != (v1.ProxySpec{}):
		return v1.ProxySpec{}
	case in.Proxy != (v1.ProxySpec{}):
		return in.Proxy
	}
	return in.OpenShiftCluster.Proxy
}
