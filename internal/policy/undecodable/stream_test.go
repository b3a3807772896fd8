package undecodable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/gomega"
)

// patience is how long a test waits for what comes at once, or never.
const patience = 30 * time.Second

// streamed is a transport whose answer is what is written to the pipe.
type streamed struct{ body io.ReadCloser }

func (s streamed) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: s.body,
	}, nil
}

// watch starts a watch, whose events are what is written to the pipe.
func watch(t *testing.T) (events io.ReadCloser, pipe *io.PipeWriter) {
	t.Helper()
	body, pipe := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := kinds(t).Wrap(streamed{body}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Body, pipe
}

// watched is what the tests read of an event.
type watched struct {
	Type   string
	Object struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
	}
}

// within runs a function that may wait for ever.
func within(t *testing.T, what string, do func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal(what + " waits for ever")
		return nil
	}
}

// Each event is handed on as soon as it is complete, in whatever pieces it arrives: the next one is only sent then.
func TestEventsInPieces(t *testing.T) {
	for _, size := range []int{1, 2, 7, 64, 4096} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			g := NewWithT(t)
			events, pipe := watch(t)
			objects := []string{bad, good, bad, bad, good}
			texts := make(chan string, len(objects))
			go func() { _ = pipe.CloseWithError(writePieces(pipe, texts, size)) }()
			in := json.NewDecoder(events)
			for i, object := range objects {
				texts <- fmt.Sprintf("{\"type\":\"MODIFIED\",\"object\":%s}\n", object)
				event := watched{}
				g.Expect(within(t, "the reader of an event", func() error { return in.Decode(&event) })).To(Succeed())
				name, marks := "good", 0
				if object == bad {
					name, marks = "bad", 1
				}
				g.Expect(event.Object.Metadata.Name).To(Equal(name), "event %d", i)
				g.Expect(event.Object.Metadata.Annotations).To(HaveLen(marks), "event %d", i)
			}
			close(texts)
			g.Expect(within(t, "the end", func() error { return in.Decode(&watched{}) })).To(MatchError(io.EOF))
		})
	}
}

// writePieces writes the texts in pieces of this many bytes, until there are no more.
func writePieces(to io.Writer, texts <-chan string, size int) error {
	for text := range texts {
		for len(text) > 0 {
			next := min(size, len(text))
			if _, err := io.WriteString(to, text[:next]); err != nil {
				return err
			}
			text = text[next:]
		}
	}
	return io.EOF
}

// An event as large as an object can be is read byte by byte, with what cannot be decoded at its end.
func TestALargeEventReadByteByByte(t *testing.T) {
	g := NewWithT(t)
	const entries = 20_000
	var env strings.Builder
	for i := range entries {
		fmt.Fprintf(&env, `{"name":"NAME_%d","value":"%s"},`, i, strings.Repeat("x", 40))
	}
	object := `{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"large"},` +
		`"spec":{"driver":{"env":[` + strings.TrimSuffix(env.String(), ",") +
		`]},"toolkit":{"resources":{"limits":{"cpu":"1e-99999999999"}}}}}`
	g.Expect(len(object)).To(BeNumerically(">", 1<<20))
	events, pipe := watch(t)
	texts := make(chan string, 1)
	texts <- `{"type":"ADDED","object":` + object + "}\n"
	close(texts)
	go func() { _ = pipe.CloseWithError(writePieces(pipe, texts, 1000)) }()
	event := struct {
		Object struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Driver struct {
					Env []struct{ Name, Value string }
				}
				Toolkit struct {
					Resources struct{ Limits map[string]string }
				}
			}
		}
	}{}
	in := json.NewDecoder(iotest.OneByteReader(events))
	g.Expect(within(t, "the reader of a large event", func() error { return in.Decode(&event) })).To(Succeed())
	g.Expect(event.Object.Metadata.Annotations).To(HaveLen(1))
	g.Expect(event.Object.Spec.Toolkit.Resources.Limits).To(BeEmpty())
	g.Expect(event.Object.Spec.Driver.Env).To(HaveLen(entries))
	g.Expect(event.Object.Spec.Driver.Env[entries-1].Name).To(Equal(fmt.Sprintf("NAME_%d", entries-1)))
}

// A watch that its client closes, or whose context ends, ends at once: the pending read returns, the connection is
// closed, and no goroutine of this package is left.
func TestAWatchEndsWithItsClient(t *testing.T) {
	for name, end := range map[string]func(cancel func(), body io.Closer){
		"the context ends": func(cancel func(), _ io.Closer) { cancel() },
		"it is closed":     func(_ func(), body io.Closer) { _ = body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			gone := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				defer close(gone)
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n{\"type\":", bad)
				_ = http.NewResponseController(w).Flush()
				<-request.Context().Done()
			}))
			t.Cleanup(server.Close)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path+"?watch=true", nil)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := kinds(t).Wrap(http.DefaultTransport).RoundTrip(request)
			g.Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			in := json.NewDecoder(response.Body)
			g.Expect(in.Decode(&watched{})).To(Succeed())

			// Half of the second event has been sent, so that this read is pending.
			pending := make(chan error, 1)
			go func() { pending <- in.Decode(&watched{}) }()
			g.Eventually(readers).WithTimeout(patience).Should(Equal(1))
			end(cancel, response.Body)
			g.Expect(within(t, "the pending read", func() error { return <-pending })).To(HaveOccurred())
			g.Expect(within(t, "the server", func() error { <-gone; return nil })).To(Succeed())
			g.Eventually(readers).WithTimeout(patience).Should(BeZero())
		})
	}
}

// readers returns the number of goroutines that are in the stream of a watch.
func readers() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	found := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "internal/policy/undecodable.(*stream)") {
			found++
		}
	}
	return found
}
