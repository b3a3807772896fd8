package main

import (
	"bytes"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

// What kubectl prints before it serves is the cause of a failure; after that a credential plugin may ask for a log-in.
func TestPrompts(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	p := &prompts{to: out}
	fmt.Fprintln(p, `error: context "x" does not exist`)
	g.Expect(p.text()).To(Equal(`error: context "x" does not exist`))
	g.Expect(out.String()).To(BeEmpty())
	p.handOn()
	fmt.Fprint(p, "E1127 02:12:14.000000 7 proxy_server.go:147] Error while proxying request: context canceled\n")
	fmt.Fprint(p, "2026/11/27 02:12:14 http: proxy error: context canceled\n")
	fmt.Fprint(p, "To sign in, open https://login.example.com and enter the code: ")
	g.Expect(out.String()).To(Equal("To sign in, open https://login.example.com and enter the code: "))
}
