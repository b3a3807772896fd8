package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
)

// logLine is how kubectl proxy logs, by klog or by Go's logger, such as about a connection that this program closed.
var logLine = regexp.MustCompile(`^(?:[EWIF]\d{4} |\d{4}/\d\d/\d\d )`)

// prompts is the standard error of kubectl proxy. Until it serves, that is kept, for an error. After that it is handed
// on, except for logs: a credential plugin may ask the user to log in, at the first question. It is safe for concurrent
// use.
type prompts struct {
	to io.Writer

	mu      sync.Mutex
	kept    bytes.Buffer
	serving bool
}

func (p *prompts) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.serving {
		return p.kept.Write(text)
	}
	if !logLine.Match(text) {
		_, _ = p.to.Write(text) // Without a terminal nobody can log in.
	}
	return len(text), nil
}

// handOn hands on what is written from now on.
func (p *prompts) handOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = true
}

// text returns what was kept.
func (p *prompts) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(p.kept.String())
}
