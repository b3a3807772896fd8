package browser

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/process"
)

// programs are the names of browsers with the DevTools protocol.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// answerTime bounds how long the browser may take for an answer.
const answerTime = 30 * time.Second

// tab is a tab of a browser that runs for one test, controlled by the DevTools protocol.
type tab struct {
	out     io.Writer
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan message
	// loaded has an element when a page has loaded. problems are what the console shows, and urls what was requested.
	loaded         chan struct{}
	problems, urls []string
}

// message is one of the protocol, in either direction.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// openTab starts a browser, or skips the test where there is none.
func openTab(t *testing.T) *tab {
	t.Helper()
	g := NewWithT(t)
	program, err := findBrowser()
	if err != nil {
		needs.Unmet(t, needs.Chromium, err)
	}
	commands, toBrowser, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	fromBrowser, events, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{commands, events}
	g.Expect(process.Start(cmd)).To(Succeed())
	g.Expect(errors.Join(commands.Close(), events.Close())).To(Succeed())
	b := &tab{out: toBrowser, answers: map[int]chan message{}, loaded: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() { defer close(ended); b.receive(fromBrowser) }()
	t.Cleanup(func() {
		_ = toBrowser.Close() // It ends with its pipe.
		_ = cmd.Wait()
		<-ended
		_ = fromBrowser.Close()
	})
	var made struct{ TargetID, SessionID string }
	b.call(g, "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	b.call(g, "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	b.session = made.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(g, domain+".enable", nil, nil)
	}
	return b
}

func findBrowser() (string, error) {
	for _, name := range programs {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("there is none of %v: install the package chromium", programs)
}

// receive takes up what the browser sends, until it ends.
func (b *tab) receive(from io.Reader) {
	for reader := bufio.NewReader(from); ; {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		m := message{}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.answers[m.ID]; m.ID != 0 && answer != nil {
			answer <- m
		}
		b.note(m)
		b.mu.Unlock()
	}
}

// note takes up an event.
func (b *tab) note(m message) {
	switch m.Method {
	case "Page.loadEventFired":
		select {
		case b.loaded <- struct{}{}:
		default:
		}
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.problems = append(b.problems, string(m.Params))
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		if json.Unmarshal(m.Params, &sent) == nil {
			b.urls = append(b.urls, sent.Request.URL)
		}
	}
}

// call asks the browser, and decodes its answer into result unless that is nil.
func (b *tab) call(g *WithT, method string, params, result any) {
	if params == nil {
		params = struct{}{}
	}
	encoded, err := json.Marshal(params)
	g.Expect(err).NotTo(HaveOccurred())
	answered := make(chan message, 1)
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, SessionID: b.session, Method: method, Params: encoded}
	b.answers[m.ID] = answered
	b.mu.Unlock()
	text, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = b.out.Write(append(text, 0))
	g.Expect(err).NotTo(HaveOccurred())
	select {
	case answer := <-answered:
		g.Expect(answer.Error).To(BeEmpty(), method+": "+string(answer.Error))
		if result != nil {
			g.Expect(json.Unmarshal(answer.Result, result)).To(Succeed())
		}
	case <-time.After(answerTime):
		g.Expect(method).To(BeEmpty(), "the browser does not answer")
	}
}

// show sets the width of the window and the colours that the user prefers.
func (b *tab) show(g *WithT, width int, colours string) {
	b.call(g, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	b.call(g, "Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": colours}},
	}, nil)
}

// open loads a page.
func (b *tab) open(g *WithT, url string) {
	b.call(g, "Page.navigate", map[string]any{"url": url}, nil)
	g.Eventually(b.loaded, answerTime).Should(Receive())
}

// evaluate returns the value of an expression, or of its promise.
func evaluate[T any](g *WithT, b *tab, expression string) T {
	var answer struct {
		Result struct {
			Value       T
			Description string
		}
		ExceptionDetails json.RawMessage
	}
	b.call(g, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &answer)
	g.Expect(answer.ExceptionDetails).To(BeEmpty(), expression+": "+string(answer.ExceptionDetails))
	return answer.Result.Value
}

// noted returns what the console has shown, and what was requested, since the last call.
func (b *tab) noted() (problems, urls []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems, urls = slices.Clone(b.problems), slices.Clone(b.urls)
	b.problems, b.urls = nil, nil
	return problems, urls
}

// picture returns the whole page as PNG.
func (b *tab) picture(g *WithT, width int) []byte {
	height := evaluate[int](g, b, `document.documentElement.scrollHeight`)
	// What is out of the window may not be drawn.
	b.call(g, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	var answer struct{ Data string }
	b.call(g, "Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	data, err := base64.StdEncoding.DecodeString(answer.Data)
	g.Expect(err).NotTo(HaveOccurred())
	drawn, err := png.Decode(bytes.NewReader(data))
	g.Expect(err).NotTo(HaveOccurred())
	out := &bytes.Buffer{}
	g.Expect((&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, withPalette(drawn))).To(Succeed())
	return out.Bytes()
}

// withPalette returns a picture of a page with at most 256 colours, which takes a third of the space: the most frequent
// ones, and for each other one the nearest of these.
func withPalette(drawn image.Image) image.Image {
	counts, bounds := map[color.Color]int{}, drawn.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[drawn.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}))
	palette = palette[:min(len(palette), 256)]
	paletted := image.NewPaletted(bounds, palette)
	draw.Draw(paletted, bounds, drawn, bounds.Min, draw.Src)
	return paletted
}
