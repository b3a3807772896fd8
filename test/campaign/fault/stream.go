package fault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"
)

// goneFrame ends a watch whose resourceVersion has been compacted.
const goneFrame = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
	`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"

// filter passes the frames of a watch on by the rules that are active when each arrives.
func (p *Proxy) filter(r *http.Request, request Request, body io.ReadCloser) io.ReadCloser {
	reader, writer := io.Pipe()
	f := &filter{ctx: r.Context(), proxy: p, request: request, from: bufio.NewReaderSize(body, 1<<16), to: writer}
	version := r.URL.Query().Get("resourceVersion")
	f.continues = version != "" && version != "0"
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = writer.CloseWithError(f.run())
	}()
	go f.cutWhenDue(ended, body)
	return stream{Reader: reader, close: func() error {
		_ = reader.Close()
		return body.Close()
	}}
}

type stream struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (s stream) Close() error { return s.close() }

// filter is one watch.
type filter struct {
	//nolint:containedctx // It is the request's context; the filter lasts as long as the request.
	ctx     context.Context
	proxy   *Proxy
	request Request
	from    *bufio.Reader
	to      io.Writer
	// continues: the watch starts from a version instead of the current state.
	continues bool
}

// frame has the fields of a watch event that rules read.
type frame struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"object"`
}

func (f frame) isBookmark() bool { return f.Type == "BOOKMARK" }

func (f frame) endsInitial() bool {
	return f.isBookmark() && f.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
}

func (f *filter) run() error {
	if f.isGone() {
		_, err := io.WriteString(f.to, goneFrame)
		return err
	}
	for {
		line, err := f.from.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := f.pass(line); err != nil {
				return err
			}
		}
		if err != nil {
			// The client gets the end of the stream.
			return err
		}
	}
}

// isGone reports whether a rule ends the watch at its start: only a version named by the watch can have been
// compacted.
func (f *filter) isGone() bool {
	return f.continues && slices.ContainsFunc(f.proxy.rules.of(f.request), func(rule *active) bool {
		if rule.Stream.Gone {
			rule.strike()
		}
		return rule.Stream.Gone
	})
}

// pass writes a frame, none or several.
func (f *filter) pass(line []byte) error {
	var read frame
	if err := json.Unmarshal(line, &read); err != nil {
		return err
	}
	times := 1
	for _, rule := range f.proxy.rules.of(f.request) {
		if f.drops(rule, read) {
			rule.strike()
			return nil
		}
		f.wait(rule, read)
		if rule.Stream.Twice && !read.isBookmark() {
			rule.strike()
			times = 2
		}
	}
	for range times {
		if _, err := f.to.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// drops reports whether a rule drops the frame.
func (f *filter) drops(rule *active, read frame) bool {
	s := rule.Stream
	switch {
	case s.Silence:
		return true
	case read.isBookmark():
		return s.NoBookmarks || s.NoInitialEnd && read.endsInitial()
	default:
		return s.Drop > 0 && rule.takesEvent()
	}
}

// wait delays a frame by the rule's time.
func (f *filter) wait(rule *active, read frame) {
	if rule.Stream.Hold {
		rule.strike()
		select {
		case <-rule.over:
		case <-f.ctx.Done():
		}
	}
	if !read.isBookmark() && rule.Stream.Delay > 0 {
		rule.strike()
		pause(f.ctx, rule.Stream.Delay)
	}
}

// cutWhenDue ends the watch when a rule requires it. Rules may be added and removed meanwhile.
func (f *filter) cutWhenDue(ended <-chan struct{}, body io.Closer) {
	const look = 100 * time.Millisecond
	begin := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		for _, rule := range f.proxy.rules.of(f.request) {
			if rule.Stream.Cut > 0 && time.Since(begin) >= rule.Stream.Cut {
				rule.strike()
				_ = body.Close()
				return
			}
		}
	}
}
