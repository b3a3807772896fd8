package metrics

import (
	"net/http"
	"strings"
)

// verbs are the verbs of the API by HTTP method, of those that write.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// CountWrites returns a transport that counts the requests that write, by resource and verb.
func (m *Meter) CountWrites(transport http.RoundTripper) http.RoundTripper {
	return countingTransport{m, transport}
}

type countingTransport struct {
	meter *Meter
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if verb, writes := verbs[request.Method]; writes {
		c.meter.writes.WithLabelValues(resource(request.URL.Path), verb).Inc()
	}
	return c.next.RoundTrip(request)
}

// resource returns the resource and subresource in the path of a request, such as nodes/status for
// /api/v1/nodes/a/status, or "other" if the path has none.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "other"
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
