package fault_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

const nodePath = "/api/v1/nodes/a"

// upstream replaces the API server: it counts writes, and streams three frames to each watch.
type upstream struct {
	*httptest.Server
	proxy  *fault.Proxy
	writes int
	query  url.Values
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.query = r.URL.Query()
		switch {
		case r.Method != http.MethodGet:
			u.writes++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"}}`, 100+u.writes)
		case r.URL.Query().Get("watch") == "true":
			for i, kind := range []string{"ADDED", "MODIFIED"} {
				fmt.Fprintf(w, `{"type":%q,"object":{"metadata":{"name":"n%d"}}}`+"\n", kind, i)
			}
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		default:
			fmt.Fprint(w, "accept="+r.Header.Get("Accept"))
		}
	}))
	t.Cleanup(api.Close)
	target, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.proxy = fault.NewProxy(target, http.DefaultTransport)
	u.Server = httptest.NewServer(u.proxy)
	u.Config.ErrorLog = nil
	t.Cleanup(u.Close)
	return u
}

// call returns the status and the body, and an error if there was no response.
func (u *upstream) call(method, path string) (int, string, error) {
	request, err := http.NewRequest(method, u.URL+path, strings.NewReader(`{"a":1}`))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/json;as=Table,text/plain")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// TestActionsOnWrites: each action on a write, what its client gets, and whether the write was made.
func TestActionsOnWrites(t *testing.T) {
	for name, test := range map[string]struct {
		rule fault.Rule
		code int
		made bool
		lost bool
	}{
		"passed": {
			rule: fault.Rule{Match: fault.Match{Name: "b"}, Action: fault.Action{Drop: true}}, code: 200, made: true,
		},
		"refused":     {rule: fault.Rule{Action: fault.Action{Status: 409}}, code: 409},
		"dropped":     {rule: fault.Rule{Action: fault.Action{Drop: true}}},
		"answer lost": {rule: fault.Rule{Phase: fault.After, Action: fault.Action{Drop: true}}, made: true, lost: true},
		"answer 500": {
			rule: fault.Rule{Phase: fault.After, Action: fault.Action{Status: 500}}, code: 500, made: true, lost: true,
		},
		"garbage": {
			rule: fault.Rule{Phase: fault.After, Action: fault.Action{Garbage: true}}, code: 200, made: true, lost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			u := newUpstream(t)
			remove, struck := u.proxy.Add(test.rule)
			code, _, err := u.call(http.MethodPatch, nodePath)
			g.Expect(err != nil).To(Equal(test.code == 0), "%v", err)
			g.Expect(code).To(Equal(test.code))
			g.Expect(u.writes).To(Equal(map[bool]int{true: 1}[test.made]))
			g.Expect(struck()).To(Equal(name != "passed"))
			writes := u.proxy.Writes()
			g.Expect(writes).To(HaveLen(1))
			g.Expect(writes[0]).To(And(HaveField("Request.Verb", fault.Patch), HaveField("Request.Name", "a"),
				HaveField("Lost", test.lost),
				HaveField("Body", []byte(`{"a":1}`))))
			if test.made {
				g.Expect(writes[0].Version).To(Equal("101"))
			}
			remove()
			remove()
			code, _, err = u.call(http.MethodPatch, nodePath)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(code).To(Equal(200), "after the rule is removed")
		})
	}
}

// TestRulesByOrdinal: rules act from the first request on, on a number of requests.
func TestRulesByOrdinal(t *testing.T) {
	g := NewWithT(t)
	u := newUpstream(t)
	var killed atomic.Int64
	u.proxy.Add(fault.Rule{
		Match: fault.Match{Verbs: []string{fault.Patch}}, From: 2, Count: 2, Action: fault.Action{Status: 503, RetryAfter: 1},
	})
	u.proxy.Add(fault.Rule{
		Match: fault.Match{Verbs: fault.Writes()}, From: 4, Count: 1, Phase: fault.Done,
		Action: fault.Action{Call: func() { killed.Add(1) }},
	})
	var codes []int
	for range 4 {
		code, _, err := u.call(http.MethodPatch, nodePath)
		g.Expect(err).NotTo(HaveOccurred())
		codes = append(codes, code)
	}
	g.Expect(codes).To(Equal([]int{200, 503, 503, 200}))
	g.Eventually(killed.Load, time.Minute).Should(BeEquivalentTo(1))
	code, _, err := u.call(http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/x/leases/l")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(Equal(200))
	g.Expect(u.proxy.Writes()).To(HaveLen(4), "leases are no writes")
}

// TestReads: all responses are JSON, and a list can return an older state.
func TestReads(t *testing.T) {
	g := NewWithT(t)
	u := newUpstream(t)
	_, body, err := u.call(http.MethodGet, "/api/v1/nodes")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(body).To(Equal("accept=application/json;as=Table"))
	u.proxy.Add(fault.Rule{Match: fault.Match{Verbs: fault.Reads()}, Action: fault.Action{Version: "7"}})
	_, _, err = u.call(http.MethodGet, "/api/v1/nodes?limit=5")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(u.query).To(Equal(url.Values{"limit": {"5"}, "resourceVersion": {"7"}, "resourceVersionMatch": {"Exact"}}))
	code, _, err := u.call(http.MethodGet, "/api/v1/nodes?watch=true&sendInitialEvents=true")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(Equal(http.StatusUnprocessableEntity), "its client must list instead")
	g.Expect(u.proxy.Reads()).To(HaveKeyWithValue(fault.Request{Verb: fault.List, Resource: "nodes"}, 2))
}

// TestActionsOnWatches: what is left of an event, another one and a bookmark.
func TestActionsOnWatches(t *testing.T) {
	for name, test := range map[string]struct {
		stream fault.Stream
		want   []string
	}{
		"nothing":        {fault.Stream{}, []string{"ADDED", "MODIFIED", "BOOKMARK"}},
		"silence":        {fault.Stream{Silence: true}, nil},
		"no bookmarks":   {fault.Stream{NoBookmarks: true}, []string{"ADDED", "MODIFIED"}},
		"no initial end": {fault.Stream{NoInitialEnd: true}, []string{"ADDED", "MODIFIED"}},
		"one dropped":    {fault.Stream{Drop: 1}, []string{"MODIFIED", "BOOKMARK"}},
		"twice":          {fault.Stream{Twice: true}, []string{"ADDED", "ADDED", "MODIFIED", "MODIFIED", "BOOKMARK"}},
		"gone":           {fault.Stream{Gone: true}, []string{"ERROR"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			u := newUpstream(t)
			u.proxy.Add(fault.Rule{
				Match: fault.Match{Verbs: []string{fault.Watch}, Resources: []string{"nodes"}}, Stream: test.stream,
			})
			_, body, err := u.call(http.MethodGet, "/api/v1/nodes?watch=true&resourceVersion=5")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(types(body)).To(Equal(test.want))
			if test.stream.Gone {
				_, body, err := u.call(http.MethodGet, "/api/v1/nodes?watch=true")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(types(body)).NotTo(ContainElement("ERROR"), "a watch that names no version")
			}
		})
	}
}

func types(body string) []string {
	var found []string
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		_, rest, _ := strings.Cut(lines.Text(), `"type":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		found = append(found, kind)
	}
	return found
}

// TestAHeldWatchContinues: nothing is delivered while the rule is active, and everything afterwards.
func TestAHeldWatchContinues(t *testing.T) {
	g := NewWithT(t)
	u := newUpstream(t)
	remove, struck := u.proxy.Add(fault.Rule{
		Match: fault.Match{Verbs: []string{fault.Watch}}, Stream: fault.Stream{Hold: true},
	})
	came := make(chan string, 1)
	go func() {
		_, body, _ := u.call(http.MethodGet, "/api/v1/nodes?watch=true")
		came <- body
	}()
	g.Eventually(struck, 10*time.Second).Should(BeTrue())
	g.Consistently(came, 200*time.Millisecond).ShouldNot(Receive())
	remove()
	var body string
	g.Eventually(came, 10*time.Second).Should(Receive(&body))
	g.Expect(types(body)).To(Equal([]string{"ADDED", "MODIFIED", "BOOKMARK"}))
}
