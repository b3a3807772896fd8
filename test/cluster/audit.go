package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is a completed request to the API server.
type Call struct {
	User string
	// Credential is the id of the user's token, empty if it has none: it distinguishes processes of one account.
	Credential  string
	Verb        string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	Code        int32
	Time        time.Time
	// Took is the time from the request to the end of its response.
	Took time.Duration
	// Limit is how long a watch may take by the request of its client; 0 if it has not set it.
	Limit time.Duration
}

// credentialKey is the key under which the API server logs the id of a token.
const credentialKey = "authentication.kubernetes.io/credential-id"

// Calls is a list of requests, in the order in which they completed.
type Calls []Call

// Mark is a position in the audit log.
type Mark int64

// auditLine is the part of an audit event that is read.
type auditLine struct {
	Verb string `json:"verb"`
	User struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	RequestURI               string    `json:"requestURI"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time `json:"stageTimestamp"`
}

// watchLimit returns the Limit of a request.
func (l auditLine) watchLimit() time.Duration {
	uri, err := url.ParseRequestURI(l.RequestURI)
	if err != nil || l.Verb != "watch" {
		return 0
	}
	// Missing or not a number: none.
	seconds, _ := strconv.Atoi(uri.Query().Get("timeoutSeconds"))
	return time.Duration(seconds) * time.Second
}

// Mark returns the current end of the audit log. The API server logs a request before it ends the response, so all
// responses that this program has received are before the mark.
func (c *Cluster) Mark() (Mark, error) {
	info, err := os.Stat(c.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Since returns the requests that completed after the mark; the zero Mark is the cluster's start. A watch completes
// when it is closed.
func (c *Cluster) Since(mark Mark) (Calls, error) {
	file, err := os.Open(c.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	calls, err := readCalls(file)
	if err != nil {
		return nil, fmt.Errorf("read audit log %s: %w", c.AuditLog, err)
	}
	return calls, nil
}

func readCalls(log io.Reader) (Calls, error) {
	var calls Calls
	reader := bufio.NewReaderSize(log, 1<<20)
	for {
		data, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// A line without a newline is still being written.
			return calls, nil
		}
		if err != nil {
			return nil, err
		}
		var line auditLine
		if err := json.Unmarshal(data, &line); err != nil {
			return nil, fmt.Errorf("line %q: %w", bytes.TrimSpace(data), err)
		}
		calls = append(calls, Call{
			User: line.User.Username, Credential: strings.Join(line.User.Extra[credentialKey],
				","), Verb: line.Verb, Code: line.ResponseStatus.Code, Time: line.StageTimestamp,
			Group: line.ObjectRef.APIGroup, Resource: line.ObjectRef.Resource, Subresource: line.ObjectRef.Subresource,
			Namespace: line.ObjectRef.Namespace, Name: line.ObjectRef.Name,
			Took: line.StageTimestamp.Sub(line.RequestReceivedTimestamp), Limit: line.watchLimit(),
		})
	}
}

// ServiceAccountUser is the user name of a ServiceAccount in the audit log.
func ServiceAccountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// By filters the requests of one user.
func (c Calls) By(user string) Calls {
	return c.where(func(call Call) bool { return call.User == user })
}

// With filters the requests made with one token.
func (c Calls) With(credential string) Calls {
	return c.where(func(call Call) bool { return call.Credential == credential })
}

// Writes filters the requests that change an object, including failed ones. It leaves out Leases, which are
// heartbeats, Events, which are counted separately (see Events), and reviews, which store nothing.
func (c Calls) Writes() Calls {
	return c.where(func(call Call) bool {
		switch call.Resource {
		case "leases", "events", "subjectaccessreviews", "tokenreviews":
			return false
		}
		return isWrite(call.Verb)
	})
}

// Events filters the writes of Events.
func (c Calls) Events() Calls {
	return c.where(func(call Call) bool { return isWrite(call.Verb) && call.Resource == "events" })
}

// Lists filters the list requests.
func (c Calls) Lists() Calls {
	return c.where(func(call Call) bool { return call.Verb == "list" })
}

// Cut filters the watches that ended before their limit: the API server closes that of a client which reads too slowly.
// So do clients that end or no longer want to watch. One that the API server refuses has not begun.
func (c Calls) Cut() Calls {
	return c.where(func(call Call) bool {
		return call.Verb == "watch" && call.Code == http.StatusOK && call.Took < call.Limit
	})
}

// Deletes filters the requests that delete objects of a resource, or evict them.
func (c Calls) Deletes(resource string) Calls {
	return c.where(func(call Call) bool {
		return call.Resource == resource && (call.Verb == "delete" || call.Verb == "deletecollection" ||
			call.Verb == "create" && call.Subresource == "eviction")
	})
}

// Forbidden filters the requests that the API server denied.
func (c Calls) Forbidden() Calls {
	return c.where(func(call Call) bool { return call.Code == http.StatusForbidden })
}

// Refused filters the requests that the API server refused with an error of the client (4xx).
func (c Calls) Refused() Calls {
	return c.where(func(call Call) bool {
		return call.Code >= http.StatusBadRequest && call.Code < http.StatusInternalServerError
	})
}

// Conflicts filters the requests that the API server refused because of a conflict.
func (c Calls) Conflicts() Calls {
	return c.where(func(call Call) bool { return call.Code == http.StatusConflict })
}

// Of filters the requests for one resource, such as daemonsets.
func (c Calls) Of(resource string) Calls {
	return c.where(func(call Call) bool { return call.Resource == resource })
}

func (c Calls) where(keep func(Call) bool) Calls {
	var kept Calls
	for _, call := range c {
		if keep(call) {
			kept = append(kept, call)
		}
	}
	return kept
}

func isWrite(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// String counts the requests by verb, resource, name and code, the most frequent first.
func (c Calls) String() string {
	counts := map[string]int{}
	for _, call := range c {
		counts[call.String()]++
	}
	kinds := slices.Collect(maps.Keys(counts))
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var text strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&text, "%6d %s\n", counts[kind], kind)
	}
	return text.String()
}

// String omits user and time.
func (c Call) String() string {
	resource := strings.TrimSuffix(c.Resource+"/"+c.Subresource, "/")
	object := strings.Trim(c.Namespace+"/"+c.Name, "/")
	return strings.Join(strings.Fields(fmt.Sprint(c.Verb, " ", resource, " ", object, " ", c.Code)), " ")
}
