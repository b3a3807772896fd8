package app

import (
	"net/http"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// The API server of the own cluster is called directly, whatever proxy the variables name: it need not be in NO_PROXY.
func TestTheProxyOfTheVariables(t *testing.T) {
	own := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	named := http.ProxyURL(&url.URL{Scheme: "http", Host: "named:3128"})
	for name, test := range map[string]struct {
		host     string
		variable string
		proxy    func(*http.Request) (*url.URL, error)
		// want is the proxy; "default" for that of the variables.
		want string
	}{
		"own cluster, a proxy":               {host: "https://[fd00::1]:443", variable: "HTTPS_PROXY"},
		"own cluster, a proxy in lower case": {host: "https://[fd00::1]:443", variable: "https_proxy"},
		"own cluster, none":                  {host: "https://[fd00::1]:443", want: "default"},
		"own cluster, one for HTTP":          {host: "https://[fd00::1]:443", variable: "HTTP_PROXY", want: "default"},
		"own cluster, of a kubeconfig": {
			host: "https://[fd00::1]:443", variable: "HTTPS_PROXY", proxy: named, want: "http://named:3128",
		},
		"another cluster, a proxy": {host: "https://example.com", variable: "HTTPS_PROXY", want: "default"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := &rest.Config{Host: test.host, Proxy: test.proxy}
			bypassProxy(config, func(name string) string {
				if name == test.variable {
					return "http://proxy:3128"
				}
				return own[name]
			})
			if test.want == "default" {
				g.Expect(config.Proxy).To(BeNil())
				return
			}
			g.Expect(config.Proxy).NotTo(BeNil())
			found, err := config.Proxy(&http.Request{})
			g.Expect(err).NotTo(HaveOccurred())
			if test.want == "" {
				g.Expect(found).To(BeNil())
				return
			}
			g.Expect(found.String()).To(Equal(test.want))
		})
	}
}
