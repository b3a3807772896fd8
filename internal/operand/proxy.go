package operand

import v1 "github.com/clusterpolicy/gpu-operator/api/v1"

// The variables of the operator's environment that name its proxy.
const (
	httpProxyVariable  = "HTTP_PROXY"
	httpsProxyVariable = "HTTPS_PROXY"
	noProxyVariable    = "NO_PROXY"
)

// ProxyVariables returns the names of the variables that ProxyFromVariables reads.
func ProxyVariables() []string {
	return []string{httpProxyVariable, httpsProxyVariable, noProxyVariable}
}

// ProxyFromVariables returns Input.Proxy from the variables of the operator's environment, whose values variable
// returns. Without an address there is no proxy, whatever NO_PROXY excludes.
func ProxyFromVariables(variable func(name string) string) v1.ProxySpec {
	proxy := v1.ProxySpec{
		HTTPProxy: variable(httpProxyVariable), HTTPSProxy: variable(httpsProxyVariable), NoProxy: variable(noProxyVariable),
	}
	if proxy.HTTPProxy == "" && proxy.HTTPSProxy == "" {
		return v1.ProxySpec{}
	}
	return proxy
}
