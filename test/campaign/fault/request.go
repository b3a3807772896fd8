package fault

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// Verbs of the API for rules, in addition to those of the HTTP methods.
const (
	Get    = "get"
	List   = "list"
	Watch  = "watch"
	Create = "create"
	Update = "update"
	Patch  = "patch"
	Delete = "delete"
	// DeleteCollection deletes all objects of a selection.
	DeleteCollection = "deletecollection"
)

// Writes returns the verbs that change objects.
func Writes() []string { return []string{Create, Update, Patch, Delete, DeleteCollection} }

// Reads returns the other verbs.
func Reads() []string { return []string{Get, List, Watch} }

// Request is the verb and object of an API request.
type Request struct {
	Verb, Resource, Subresource, Namespace, Name string
}

// String returns the form "patch nodes/status gpu-0".
func (r Request) String() string {
	resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
	return strings.TrimSpace(strings.Join([]string{r.Verb, resource, r.Name}, " "))
}

// IsWrite reports whether the request changes an object. Leases are heartbeats, Events are counted separately, and
// reviews store nothing.
func (r Request) IsWrite() bool {
	switch r.Resource {
	case "leases", "events", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews":
		return false
	}
	return slices.Contains(Writes(), r.Verb)
}

// parse parses the path /api/v1/... or /apis/GROUP/VERSION/... of a request. Other paths, such as those of discovery,
// have no resource.
func parse(r *http.Request) Request {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(segments) > 2 && segments[0] == "api":
		segments = segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		segments = segments[3:]
	default:
		return Request{Verb: Get}
	}
	var request Request
	if segments[0] == "namespaces" && len(segments) > 2 {
		request.Namespace, segments = segments[1], segments[2:]
	}
	for i, field := range []*string{&request.Resource, &request.Name, &request.Subresource} {
		if i < len(segments) {
			*field = segments[i]
		}
	}
	request.Verb = verb(r, request.Name != "")
	return request
}

func verb(r *http.Request, named bool) string {
	switch r.Method {
	case http.MethodPost:
		return Create
	case http.MethodPut:
		return Update
	case http.MethodPatch:
		return Patch
	case http.MethodDelete:
		if named {
			return Delete
		}
		return DeleteCollection
	}
	switch {
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return Watch
	case named:
		return Get
	default:
		return List
	}
}

// Match selects the requests of a rule. An empty field matches all, except that leases, events and reviews are only
// matched if the resource is named.
type Match struct {
	Verbs       []string
	Resources   []string
	Subresource string
	Name        string
}

// Matches reports whether the rule applies to this request.
func (m Match) Matches(r Request) bool {
	switch {
	case len(m.Verbs) > 0 && !slices.Contains(m.Verbs, r.Verb), m.Name != "" && m.Name != r.Name:
		return false
	case len(m.Resources) == 0:
		if slices.Contains(Writes(), r.Verb) && !r.IsWrite() {
			return false
		}
	case !slices.Contains(m.Resources, r.Resource):
		return false
	}
	return m.Subresource == "" || m.Subresource == cmp.Or(r.Subresource, NoSubresource)
}

// NoSubresource matches requests for objects themselves.
const NoSubresource = "-"

// Exactly matches requests identical to this one.
func Exactly(r Request) Match {
	m := Match{Verbs: []string{r.Verb}, Resources: []string{r.Resource}, Subresource: r.Subresource, Name: r.Name}
	if m.Subresource == "" {
		m.Subresource = NoSubresource
	}
	return m
}
