//go:build linux

package node_test

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/node"
)

// answer is what a registry answers to a request about a repository.
type answer struct {
	status  int
	media   string
	content string
}

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// refusal is the answer of a registry that refuses, in the form of the distribution specification.
func refusal(status int, code, message string) answer {
	return answer{status, "application/json", fmt.Sprintf(`{"errors":[{"code":%q,"message":%q}]}`, code, message)}
}

// manifestOf is a manifest whose configuration and layer the registry does not have.
func manifestOf() string {
	part := func(media string) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":"sha256:%x","size":2}`, media, sha256.Sum256([]byte(media)))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, manifestType, part(configType),
		part(layerType))
}

// manifests are the answers to requests for a manifest, by repository.
func manifests() map[string]answer {
	ofOther := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":"sha256:%x",`+
		`"size":2,"platform":{"os":"linux","architecture":"s390x"}}]}`, indexType, manifestType, sha256.Sum256(nil))
	return map[string]answer{
		"missing":      refusal(http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown"),
		"unauthorized": refusal(http.StatusUnauthorized, "UNAUTHORIZED", "authentication required"),
		"forbidden":    refusal(http.StatusForbidden, "DENIED", "requested access to the resource is denied"),
		"limited":      refusal(http.StatusTooManyRequests, "TOOMANYREQUESTS", "You have reached your pull rate limit"),
		"broken":       refusal(http.StatusInternalServerError, "UNKNOWN", "unknown error"),
		"platform":     {http.StatusOK, indexType, ofOther},
		"layers":       {http.StatusOK, manifestType, manifestOf()},
	}
}

// serveRegistry serves a registry that has no image, at this address, and returns its name.
func (b *env) serveRegistry(address netip.Addr, start func(*httptest.Server)) string {
	answers := manifests()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		of, known := answers[repository]
		switch {
		case r.URL.Path == "/v2/":
			return
		case !known || strings.Contains(r.URL.Path, "/blobs/"):
			of = refusal(http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown to registry")
		}
		w.Header().Set("Content-Type", of.media)
		if of.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		}
		w.WriteHeader(of.status)
		_, _ = w.Write([]byte(of.content)) // A HEAD request takes none.
	}))
	b.Expect(server.Listener.Close()).To(Succeed())
	var err error
	server.Listener, err = (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", netip.AddrPortFrom(address, 0).String())
	b.Expect(err).NotTo(HaveOccurred())
	start(server)
	b.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// registries are the names of registries.
type registries struct {
	// local answers by HTTP, and containerd asks it so; plain answers by HTTP, too, and is asked by HTTPS.
	local, plain string
	// otherName has a certificate for another address, and nothing listens at closed.
	otherName, closed string
}

func (b *env) serveRegistries() registries {
	return registries{
		local:     b.serveRegistry(netip.AddrFrom4([4]byte{127, 0, 0, 1}), (*httptest.Server).Start),
		plain:     b.serveRegistry(node.Address, (*httptest.Server).Start),
		otherName: b.serveRegistry(node.Address, (*httptest.Server).StartTLS),
		closed:    "127.0.0.1:1",
	}
}
