package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// servedKinds are the kinds of the API server by group and version, and whether they are namespaced.
var servedKinds = map[schema.GroupVersion]map[string]bool{
	{Version: "v1"}: {
		"Node": false, "Namespace": false, "Pod": true, "Service": true, "ConfigMap": true, "Secret": true, "Event": true,
	},
	{Group: "resource.k8s.io", Version: "v1"}:              {"ResourceClaim": true, "DeviceClass": false},
	{Group: "monitoring.coreos.com", Version: "v1"}:        {"ServiceMonitor": true, "PrometheusRule": true},
	{Group: "config.openshift.io", Version: "v1"}:          {"Proxy": false, "ClusterVersion": false},
	{Group: "image.openshift.io", Version: "v1"}:           {"ImageStream": true},
	{Group: "apps", Version: "v1"}:                         {"DaemonSet": true, "Deployment": true},
	{Group: "policy", Version: "v1"}:                       {"PodDisruptionBudget": true},
	{Group: "node.k8s.io", Version: "v1"}:                  {"RuntimeClass": false},
	{Group: "scheduling.k8s.io", Version: "v1"}:            {"PriorityClass": false},
	{Group: "apiextensions.k8s.io", Version: "v1"}:         {"CustomResourceDefinition": false},
	{Group: "admissionregistration.k8s.io", Version: "v1"}: {"ValidatingAdmissionPolicyBinding": false},
	{Group: "nvidia.com", Version: "v1"}:                   {"ClusterPolicy": false},
	{Group: "nvidia.com", Version: "v1alpha1"}:             {"NVIDIADriver": false},
}

// apiServer serves the discovery of servedKinds, and objects for reading.
type apiServer struct {
	url     string
	objects []unstructured.Unstructured
	// refused: each request for objects is forbidden.
	refused bool
	// refuses decides which other requests are forbidden; nil for none.
	refuses func(*http.Request) bool
	// absent is a group of which it serves nothing; empty for none.
	absent string
	// version is that of the server; empty for v1.34.2.
	version string
	// logs are those of containers, by pod and query.
	logs map[string]string

	mu    sync.Mutex
	asked []string
	query []string
}

// newAPIServer returns one that has the objects of these documents, which may be lists.
func newAPIServer(t *testing.T, all ...[]byte) *apiServer {
	t.Helper()
	g, s := NewWithT(t), &apiServer{}
	for _, document := range all {
		object := unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal(document, &object.Object)).To(Succeed())
		if !object.IsList() {
			s.objects = append(s.objects, object)
			continue
		}
		list, err := object.ToList()
		g.Expect(err).NotTo(HaveOccurred())
		s.objects = append(s.objects, list.Items...)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// kubeconfig writes a kubeconfig with this server as the context c of a user with a token.
func (s *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: s, cluster: {server: %q}}],
		users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: s, user: u, namespace: team-a}}]}`,
		s.url)
	NewWithT(t).Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return file
}

// session returns a session with the server.
func (s *apiServer) session(t *testing.T) *session {
	t.Helper()
	asked, err := newSession(&rest.Config{Host: s.url}, "")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return asked
}

// requests returns the methods and paths that were asked for.
func (s *apiServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// queries returns the queries of all requests.
func (s *apiServer) queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.query)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked, s.query = append(s.asked, r.Method+" "+r.URL.Path), append(s.query, r.URL.RawQuery)
	s.mu.Unlock()
	if s.refuses != nil && s.refuses(r) {
		answer, code := refusal(metav1.StatusReasonForbidden, http.StatusForbidden)
		writeAnswer(w, answer, code)
		return
	}
	if pod, isLog := strings.CutSuffix(r.URL.Path, "/log"); isLog && !s.refused {
		_, _ = io.WriteString(w, s.logs[path.Base(pod)+"?"+r.URL.RawQuery])
		return
	}
	answer, code := s.answer(r.URL.Path)
	if list, isList := answer.(*unstructured.UnstructuredList); isList {
		selectNode(list, r.URL.Query().Get("fieldSelector"))
	}
	writeAnswer(w, answer, code)
}

// selectNode keeps the pods on the node that a field selector names, the only one that is applied.
func selectNode(list *unstructured.UnstructuredList, selector string) {
	node, only := strings.CutPrefix(selector, "spec.nodeName=")
	list.Items = slices.DeleteFunc(list.Items, func(object unstructured.Unstructured) bool {
		on, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
		return only && on != node
	})
}

func writeAnswer(w http.ResponseWriter, answer any, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// served are the kinds without those of the absent group.
func (s *apiServer) served() map[schema.GroupVersion]map[string]bool {
	kinds := maps.Clone(servedKinds)
	maps.DeleteFunc(kinds, func(version schema.GroupVersion, _ map[string]bool) bool {
		return s.absent != "" && version.Group == s.absent
	})
	return kinds
}

func (s *apiServer) answer(path string) (any, int) {
	switch path {
	case "/api":
		return metav1.APIVersions{Versions: []string{"v1"}}, http.StatusOK
	case "/apis":
		return groups(s.served()), http.StatusOK
	case "/version":
		return version.Info{GitVersion: cmp.Or(s.version, "v1.34.2")}, http.StatusOK
	}
	for version, kinds := range s.served() {
		prefix := "/apis/" + version.String()
		if version.Group == "" {
			prefix = "/api/v1"
		}
		rest, found := strings.CutPrefix(path, prefix)
		if !found || rest != "" && rest[0] != '/' {
			continue
		}
		if rest == "" {
			return resources(version, kinds), http.StatusOK
		}
		if s.refused {
			return refusal(metav1.StatusReasonForbidden, http.StatusForbidden)
		}
		if answer := s.read(version, kinds, strings.Split(rest[1:], "/")); answer != nil {
			return answer, http.StatusOK
		}
	}
	return refusal(metav1.StatusReasonNotFound, http.StatusNotFound)
}

// read returns the list or the object of a path below its version; nil if there is none.
func (s *apiServer) read(version schema.GroupVersion, kinds map[string]bool, parts []string) any {
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	list := &unstructured.UnstructuredList{}
	for kind := range kinds {
		if plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind)); plural.Resource != parts[0] {
			continue
		}
		list.SetGroupVersionKind(version.WithKind(kind + "List"))
		for _, object := range s.objects {
			switch {
			case object.GroupVersionKind() != version.WithKind(kind), namespace != "" && object.GetNamespace() != namespace:
			case len(parts) == 1:
				list.Items = append(list.Items, object)
			case parts[1] == object.GetName():
				return &object
			}
		}
		if len(parts) == 1 {
			return list
		}
	}
	return nil
}

func refusal(reason metav1.StatusReason, code int) (any, int) {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason,
		Code: int32(code), Message: "refused", //nolint:gosec // A code of HTTP.
	}, code
}

func groups(served map[schema.GroupVersion]map[string]bool) metav1.APIGroupList {
	all := map[string]*metav1.APIGroup{}
	for version := range served {
		if version.Group == "" {
			continue
		}
		if all[version.Group] == nil {
			all[version.Group] = &metav1.APIGroup{Name: version.Group}
		}
		one := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
		all[version.Group].Versions = append(all[version.Group].Versions, one)
	}
	list := metav1.APIGroupList{}
	for _, group := range all {
		list.Groups = append(list.Groups, *group)
	}
	return list
}

func resources(version schema.GroupVersion, kinds map[string]bool) metav1.APIResourceList {
	list := metav1.APIResourceList{GroupVersion: version.String()}
	for kind, namespaced := range kinds {
		plural, singular := meta.UnsafeGuessKindToResource(version.WithKind(kind))
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: plural.Resource, SingularName: singular.Resource, Namespaced: namespaced, Kind: kind,
		})
	}
	return list
}
