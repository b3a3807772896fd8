package labels

// OpenShift's configuration: one object of each kind.
const (
	OpenShiftConfigGroup = "config.openshift.io"
	// ProxyDefinition and ClusterVersionDefinition are the names of the definitions of the kinds Proxy and ClusterVersion.
	ProxyDefinition          = "proxies." + OpenShiftConfigGroup
	ClusterVersionDefinition = "clusterversions." + OpenShiftConfigGroup
	// ProxyName and ClusterVersionName are the names of the objects.
	ProxyName          = "cluster"
	ClusterVersionName = "version"
	// TrustedCA is a ConfigMap of the installation, which OpenShift fills with the certificates that the cluster trusts
	// under the key CABundleFile.
	TrustedCA = "gpu-operator-trusted-ca"
)
