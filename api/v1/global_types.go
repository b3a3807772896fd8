package v1

// GlobalSpec holds for every container of the stack, init containers included.
type GlobalSpec struct {
	// Registry is a mirror: it stands in the place of the registry of every image, such as
	// mirror.local:5000 or mirror.local/proxy. Path, tag and digest stay: with the latter,
	// nvcr.io/nvidia/driver:1 is mirror.local/proxy/nvidia/driver:1, and ubuntu:24.04, of Docker Hub, is
	// mirror.local/proxy/library/ubuntu:24.04. An image that begins with it is left as it is. Default
	// none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^(localhost|[a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]{1,5}|[[][0-9a-fA-F:]+[]](:[0-9]{1,5})?)(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?$')",message="must be the host of a registry with a dot or a port, with a path if it has one, such as mirror.local:5000/proxy, and without https://"
	Registry string `json:"registry,omitempty"`
	// ImagePullSecrets are names of Secrets in the operator's namespace, which every pod may pull with,
	// beside those of its operand.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ImagePullSecrets []ObjectName `json:"imagePullSecrets,omitempty"`
	// Proxy is what containers reach other networks by.
	// +optional
	Proxy *ProxySpec `json:"proxy,omitempty"`
	// CABundle names the certificates that containers trust.
	// +optional
	CABundle *CABundleSpec `json:"caBundle,omitempty"`
}

// ProxySpec is set in the environment of every container, in capital and in small letters. What the env of an
// operand says of a variable, in either, wins there; what driver.secretEnv says does not.
type ProxySpec struct {
	// HTTPProxy is HTTP_PROXY. Whoever reads the policy reads it: name a proxy without a password.
	// +optional
	HTTPProxy ProxyAddress `json:"httpProxy,omitempty"`
	// HTTPSProxy is HTTPS_PROXY.
	// +optional
	HTTPSProxy ProxyAddress `json:"httpsProxy,omitempty"`
	// NoProxy is NO_PROXY, a list with commas. The address of the API server is added, for the operands
	// call it.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	NoProxy string `json:"noProxy,omitempty"`
}

// CABundleSpec names certificates in the operator's namespace. They are mounted in every container, and the
// variable SSL_CERT_FILE leads to them.
type CABundleSpec struct {
	// ConfigMapName is the name of a ConfigMap with the certificates of all authorities that containers are
	// to trust: SSL_CERT_FILE replaces the roots of the image, so those of public authorities must be among
	// them where they are needed. Default none.
	// +optional
	ConfigMapName ObjectName `json:"configMapName,omitempty"`
	// Key of the ConfigMap, in PEM. Default ca-bundle.crt.
	// +optional
	Key DataKey `json:"key,omitempty"`
}

// ProxyAddress is where a proxy listens, or empty.
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="must be the address of a proxy, such as http://proxy.local:3128, without spaces"
type ProxyAddress = string
