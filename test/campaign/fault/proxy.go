package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Proxy passes requests on to the API server, and makes them fail by its rules.
type Proxy struct {
	rules   rules
	forward *httputil.ReverseProxy

	lock    sync.Mutex
	records []*Record
	reads   map[Request]int
}

// Record is a write of the operator.
type Record struct {
	Request
	// Ordinal numbers the writes of a proxy from 1, in the order of arrival.
	Ordinal int
	// Begin is when the write arrived at the proxy.
	Begin time.Time
	// Query and Body are those of the request.
	Query url.Values
	Body  []byte
	// Code is the API server's status code, 0 without a response: the write may not have reached it.
	Code int
	// Version is the resourceVersion of the object after the write.
	Version string
	// Lost: the client did not get the API server's response.
	Lost bool
}

// NewProxy returns a handler in front of the API server at target.
func NewProxy(target *url.URL, transport http.RoundTripper) *Proxy {
	p := &Proxy{reads: map[Request]int{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// Frames are edited as JSON, so disable compression.
			r.Out.Header.Set("Accept", asJSON(r.In.Header.Get("Accept")))
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		Transport: transport,
		// A watch event must reach the client immediately.
		FlushInterval:  -1,
		ModifyResponse: p.answered,
		ErrorHandler:   failed,
	}
	return p
}

// asJSON filters the accepted formats that are JSON, such as partial object metadata.
func asJSON(accepted string) string {
	const format = "application/json"
	var kept []string
	for part := range strings.SplitSeq(accepted, ",") {
		if part = strings.TrimSpace(part); strings.HasPrefix(part, format) {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return format
	}
	return strings.Join(kept, ",")
}

// Add activates a rule. remove deactivates it, and is idempotent; struck reports whether it has acted on anything.
func (p *Proxy) Add(rule Rule) (remove func(), struck func() bool) {
	a := p.rules.add(rule)
	return sync.OnceFunc(func() { p.rules.remove(a) }), a.hasStruck
}

// Writes returns the records of all writes so far.
func (p *Proxy) Writes() []Record {
	p.lock.Lock()
	defer p.lock.Unlock()
	writes := make([]Record, len(p.records))
	for i, record := range p.records {
		writes[i] = *record
	}
	return writes
}

// Reads returns how often each read was made, without the names of objects.
func (p *Proxy) Reads() map[Request]int {
	p.lock.Lock()
	defer p.lock.Unlock()
	reads := make(map[Request]int, len(p.reads))
	for request, count := range p.reads {
		reads[request] = count
	}
	return reads
}

// exchange is a request with the rules that act on it.
type exchange struct {
	request Request
	record  *Record
	rules   []*active
}

// at returns the actions of a phase.
func (e *exchange) at(phase Phase) []Action {
	var actions []Action
	for _, rule := range e.rules {
		if rule.Phase == phase || rule.Phase == "" && phase == Before {
			actions = append(actions, rule.Action)
		}
	}
	return actions
}

type exchangeKey struct{}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{request: parse(r)}
	for _, rule := range p.rules.of(e.request) {
		if rule.Action.isNone() {
			continue
		}
		if rule.hit() {
			e.rules = append(e.rules, rule)
		}
	}
	if err := p.note(e, r); err != nil {
		panic(http.ErrAbortHandler)
	}
	for _, action := range e.at(Before) {
		if done := action.before(w, r, e.request); done {
			return
		}
	}
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)))
	for _, action := range e.at(Done) {
		if flusher, can := w.(http.Flusher); can {
			flusher.Flush()
		}
		action.call()
	}
}

// note records the request.
func (p *Proxy) note(e *exchange, r *http.Request) error {
	if !e.request.IsWrite() {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.reads[Request{Verb: e.request.Verb, Resource: e.request.Resource, Subresource: e.request.Subresource}]++
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.lock.Lock()
	defer p.lock.Unlock()
	e.record = &Record{
		Request: e.request, Ordinal: len(p.records) + 1, Begin: time.Now(), Query: r.URL.Query(), Body: body,
	}
	p.records = append(p.records, e.record)
	return nil
}

// isNone reports whether the rule only concerns the frames of watches.
func (a Action) isNone() bool {
	return a.Call == nil && a.Delay == 0 && !a.Drop && a.Status == 0 && !a.Garbage && a.Version == ""
}

func (a Action) call() {
	if a.Call != nil {
		a.Call()
	}
}

// before acts on a request before the API server, and reports whether it has responded.
func (a Action) before(w http.ResponseWriter, r *http.Request, request Request) bool {
	a.call()
	if !pause(r.Context(), a.Delay) || a.Drop {
		panic(http.ErrAbortHandler)
	}
	switch {
	case a.Status != 0:
		writeStatus(w, a.Status, a.RetryAfter)
		return true
	case a.Garbage:
		writeGarbage(w)
		return true
	case a.Version != "":
		return goBack(w, r, request, a.Version)
	}
	return false
}

// goBack makes a list read an older state, and refuses a watch that would list.
func goBack(w http.ResponseWriter, r *http.Request, request Request, version string) bool {
	query := r.URL.Query()
	switch {
	case request.Verb == List:
		query.Set("resourceVersion", version)
		query.Set("resourceVersionMatch", "Exact")
		r.URL.RawQuery = query.Encode()
	case request.Verb == Watch && query.Get("sendInitialEvents") == "true":
		// The response of an API server that does not stream lists.
		writeStatus(w, http.StatusUnprocessableEntity, 0)
		return true
	}
	return false
}

// answered acts on the response of the API server.
func (p *Proxy) answered(resp *http.Response) error {
	e, is := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	if !is {
		return nil
	}
	if e.record != nil {
		if err := p.noteAnswer(e.record, resp); err != nil {
			return err
		}
	}
	for _, action := range e.at(After) {
		action.call()
		if err := p.spoil(resp.Request.Context(), e, action); err != nil {
			return err
		}
	}
	if e.request.Verb == Watch && resp.StatusCode == http.StatusOK {
		resp.Body = p.filter(resp.Request, e.request, resp.Body)
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	return nil
}

// spoil withholds a response from the client, if the action does.
func (p *Proxy) spoil(ctx context.Context, e *exchange, action Action) error {
	var err error
	switch {
	case !pause(ctx, action.Delay) || action.Drop:
		err = http.ErrAbortHandler
	case action.Status != 0 || action.Garbage:
		err = replaced(action)
	}
	if err != nil && e.record != nil {
		p.lock.Lock()
		defer p.lock.Unlock()
		e.record.Lost = true
	}
	return err
}

func (p *Proxy) noteAnswer(record *Record, resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	// The response to a deletion may not be an object; then it has no version.
	_ = json.Unmarshal(body, &object)
	p.lock.Lock()
	defer p.lock.Unlock()
	record.Code, record.Version = resp.StatusCode, object.Metadata.ResourceVersion
	return nil
}
