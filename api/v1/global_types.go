package v1

// GlobalSpec configures every container of the stack, including init containers.
type GlobalSpec struct {
	// Registry is a mirror that replaces the registry of every image, such as mirror.local:5000 or mirror.local/proxy.
	// Default none.
	//
	// Path, tag and digest of an image stay: with mirror.local/proxy, nvcr.io/nvidia/driver:1 becomes
	// mirror.local/proxy/nvidia/driver:1, and ubuntu:24.04 of Docker Hub becomes mirror.local/proxy/library/ubuntu:24.04.
	// An image that already starts with the mirror is not changed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^(localhost|[a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]{1,5}|[[][0-9a-fA-F:]+[]](:[0-9]{1,5})?)(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?$')",message="must be a registry host with a dot or a port, and optionally a path, without https://, such as mirror.local:5000/proxy"
	Registry string `json:"registry,omitempty"`
	// ImagePullSecrets names Secrets in the operator's namespace for every pod, in addition to those of its operand.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ImagePullSecrets []ObjectName `json:"imagePullSecrets,omitempty"`
	// Proxy configures the HTTP proxy of the containers.
	//
	// Without it, the containers of the driver that download packages get the proxy of the operator's own environment,
	// which the Operator Lifecycle Manager sets to that of the cluster, or else that of OpenShift's object Proxy.
	// +optional
	Proxy *ProxySpec `json:"proxy,omitempty"`
	// CABundle names the CA certificates that the containers trust.
	// +optional
	CABundle *CABundleSpec `json:"caBundle,omitempty"`
}

// ProxySpec is set in the environment of every container, in upper and lower case. A variable in the env of an operand
// overrides it, in either case; one in driver.secretEnv does not.
type ProxySpec struct {
	// HTTPProxy is HTTP_PROXY. Do not include a password: it would be readable in the policy.
	// +optional
	HTTPProxy ProxyAddress `json:"httpProxy,omitempty"`
	// HTTPSProxy is HTTPS_PROXY.
	// +optional
	HTTPSProxy ProxyAddress `json:"httpsProxy,omitempty"`
	// NoProxy is NO_PROXY, separated by commas. The address of the API server is added, because operands call it.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	NoProxy string `json:"noProxy,omitempty"`
}

// CABundleSpec names certificates in the operator's namespace. They are mounted into every container, and the variable
// SSL_CERT_FILE points to them.
type CABundleSpec struct {
	// ConfigMapName is a ConfigMap with all CA certificates to trust. Default none.
	//
	// SSL_CERT_FILE replaces the certificates of the image. Include those of public authorities if they are needed.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
	// Key of the ConfigMap with the certificates, in PEM. Default ca-bundle.crt.
	// +optional
	Key DataKey `json:"key,omitempty"`
}

// ProxyAddress is the address of a proxy, or empty.
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="must be a proxy address without spaces, such as http://proxy.local:3128"
type ProxyAddress = string
