package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
)

// A page is printed with the nodes that the flags choose, the context, and what limits it.
func TestStatusAsPage(t *testing.T) {
	server := newAPIServer(t, gpuNode("a", "True"), gpuNode("b", "False"))
	config := server.kubeconfig(t)
	status := func(args ...string) output {
		return kubectlGPU("", append([]string{"status", "-o", "html", "--kubeconfig", config}, args...)...)
	}
	g := NewWithT(t)
	got := status("--context", "c")
	g.Expect(got.code).To(BeZero(), got.errOut)
	g.Expect(got.out).To(And(HavePrefix("<!DOCTYPE html>"), ContainSubstring("<title>GPU status of c</title>"),
		ContainSubstring(">a</th>"), ContainSubstring(">b</th>"), Not(ContainSubstring("Note:"))))
	g.Expect(status("--context", "c", "b").out).To(And(ContainSubstring(">b</th>"), Not(ContainSubstring(">a</th>"))))
	g.Expect(status("--context", "c", "--not-ready").out).To(And(ContainSubstring(">b</th>"),
		Not(ContainSubstring(">a</th>")), ContainSubstring("</span> 1 Ready</li>")))
	g.Expect(status("--context", "c", "--server", server.url).out).To(ContainSubstring("<title>GPU status</title>"),
		"the context does not name this cluster")
	g.Expect(status("--context", "c", "--watch").code).To(Equal(exitUsage))
	g.Expect(kubectlGPU("", "top", "nodes", "-o", "html").errOut).To(ContainSubstring("give one of [text json yaml wide]"))

	config = newAPIServer(t, undecodablePolicy).kubeconfig(t)
	got = status("--context", "c")
	g.Expect(got.code).To(Equal(exitFailure))
	g.Expect(got.out).To(ContainSubstring("Note:</strong> ClusterPolicy bad cannot be decoded"))

	live := newLiveCluster(server.session(t))
	live.podsUnknown = errors.New("pods are forbidden")
	g.Expect(live.notes()).To(Equal([]string{"what is free is unknown: pods are forbidden"}))
	g.Expect(live.writePage(closedPipe{}, live.overview(), false, shownAt)).To(MatchError(io.ErrClosedPipe))
}

// undecodablePolicy is a policy of which a field cannot be decoded.
var undecodablePolicy = []byte(`{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: bad, uid: b},
	spec: {driver: {upgradePolicy: {maxUnavailable: 99999999999}}}}`)

// closedPipe is an output that nobody reads.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// playedPage is a livePage whose cluster and clock the test plays.
type playedPage struct {
	livePage
	clock time.Time
	reads atomic.Int32
	err   error
}

func newPlayedPage() *playedPage {
	p := &playedPage{clock: shownAt}
	p.now = func() time.Time { return p.clock }
	p.read = func(context.Context) (page.Input, error) {
		p.reads.Add(1)
		found := overview.Overview{Nodes: []overview.Node{{Name: fmt.Sprintf("node-%d", p.reads.Load())}}}
		return page.Input{Overview: found, Read: p.clock, Refresh: refreshInterval}, p.err
	}
	return p
}

// ask asks the page's server, which has port 4000.
func (p *playedPage) ask(method, host, path string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	request.Host = host
	answer := httptest.NewRecorder()
	p.handler(4000, "/secret/").ServeHTTP(answer, request)
	return answer
}

// Only who names this address asks it, and can only read the page: a site in the same browser has another name, or
// another address.
func TestRequestsToThePage(t *testing.T) {
	for name, test := range map[string]struct {
		method, host, path string
		code               int
	}{
		"by address":         {"GET", "127.0.0.1:4000", "/secret/", 200},
		"by name":            {"GET", "localhost:4000", "/secret/", 200},
		"only the headers":   {"HEAD", "127.0.0.1:4000", "/secret/", 200},
		"with a query":       {"GET", "127.0.0.1:4000", "/secret/?a=b", 200},
		"DNS rebinding":      {"GET", "evil.example.com:4000", "/secret/", 403},
		"a prefix":           {"GET", "127.0.0.1:4000.evil.example.com", "/secret/", 403},
		"a subdomain":        {"GET", "evil.localhost:4000", "/secret/", 403},
		"another port":       {"GET", "127.0.0.1:80", "/secret/", 403},
		"no port":            {"GET", "127.0.0.1", "/secret/", 403},
		"another address":    {"GET", "127.0.0.2:4000", "/secret/", 403},
		"no host":            {"GET", "", "/secret/", 403},
		"a form":             {"POST", "127.0.0.1:4000", "/secret/", 405},
		"a question of CORS": {"OPTIONS", "127.0.0.1:4000", "/secret/", 405},
		"a deletion":         {"DELETE", "127.0.0.1:4000", "/secret/", 405},
		"another path":       {"GET", "127.0.0.1:4000", "/api/v1/secrets", 404},
		"no secret":          {"GET", "127.0.0.1:4000", "/", 404},
		"below the page":     {"GET", "127.0.0.1:4000", "/secret/x", 404},
		"part of the secret": {"GET", "127.0.0.1:4000", "/secret", 404},
	} {
		t.Run(name, func(t *testing.T) {
			g, p := NewWithT(t), newPlayedPage()
			answer := p.ask(test.method, test.host, test.path)
			g.Expect(answer.Code).To(Equal(test.code))
			header := answer.Header()
			for name := range header {
				g.Expect(name).NotTo(HavePrefix("Access-Control-"), "other sites must not read it")
			}
			g.Expect(header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
			g.Expect(header.Get("X-Frame-Options")).To(Equal("DENY"))
			g.Expect(header.Get("Cross-Origin-Opener-Policy")).To(Equal("same-origin"))
			g.Expect(header.Get("Cross-Origin-Resource-Policy")).To(Equal("same-origin"))
			g.Expect(header.Get("Referrer-Policy")).To(Equal("no-referrer"))
			g.Expect(header.Get("Cache-Control")).To(Equal("no-store"))
			g.Expect(header.Get("Content-Security-Policy")).To(Equal(page.Policy(true) + "; frame-ancestors 'none'"))
			_, allows := header["Allow"]
			g.Expect(allows).To(Equal(test.code == http.StatusMethodNotAllowed))
			if test.code == http.StatusOK {
				g.Expect(header.Get("Content-Type")).To(Equal("text/html; charset=utf-8"))
				g.Expect(answer.Body.String()).To(ContainSubstring(">node-1</th>"))
				return
			}
			g.Expect(p.reads.Load()).To(BeZero(), "nothing is read for it")
			g.Expect(answer.Body.String()).NotTo(Or(BeEmpty(), ContainSubstring("secret")))
		})
	}
}

// The cluster is read again only after a while. What fails is shown with what was read last, and tried again as rarely.
func TestPageIsReadAtMostOnceInAWhile(t *testing.T) {
	g, p := NewWithT(t), newPlayedPage()
	shown := func(after time.Duration) string {
		p.clock = p.clock.Add(after)
		return p.ask("GET", "127.0.0.1:4000", "/secret/").Body.String()
	}
	g.Expect(shown(0)).To(ContainSubstring(">node-1</th>"))
	g.Expect(shown(readInterval - 1)).To(ContainSubstring(">node-1</th>"))
	g.Expect(shown(1)).To(And(ContainSubstring(">node-2</th>"),
		ContainSubstring("Read at <time datetime=\"2026-01-02T03:04:08Z\"")))
	p.err = errors.New("connection refused")
	g.Expect(shown(time.Minute)).To(And(ContainSubstring(">node-2</th>"), ContainSubstring("connection refused"),
		ContainSubstring("This is its state of 2026-01-02 03:04:08 UTC.")))
	p.err = nil
	g.Expect(shown(readInterval - 1)).To(ContainSubstring("connection refused"))
	g.Expect(shown(1)).To(And(ContainSubstring(">node-4</th>"), Not(ContainSubstring("connection refused"))))
	g.Expect(p.reads.Load()).To(Equal(int32(4)))
}

// However many ask at a time, the cluster is read once. Who goes away meanwhile leaves no error behind.
func TestPageIsReadByOneAtATime(t *testing.T) {
	g, p := NewWithT(t), newPlayedPage()
	began, end, reading := make(chan struct{}, 1), make(chan struct{}), atomic.Int32{}
	read := p.read
	p.read = func(ctx context.Context) (page.Input, error) {
		g.Expect(reading.Add(1)).To(Equal(int32(1)))
		defer reading.Add(-1)
		began <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
			return page.Input{}, ctx.Err()
		}
		return read(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { p.current(ctx) })
	<-began
	cancel()
	group.Wait()

	for range 5 {
		group.Go(func() {
			in := p.current(t.Context())
			g.Expect(in.Failure).NotTo(HaveOccurred())
			g.Expect(in.Overview.Nodes[0].Name).To(Equal("node-1"))
		})
	}
	<-began
	close(end)
	group.Wait()
	g.Expect(p.reads.Load()).To(Equal(int32(1)))
}

// The command prints the address, serves until Ctrl-C, and then ends well, also while it waits for the cluster.
func TestUI(t *testing.T) {
	g := NewWithT(t)
	server := newAPIServer(t, gpuNode("a", "True"))
	hangs, hanging := atomic.Bool{}, make(chan struct{}, 8)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			hanging <- struct{}{}
			<-r.Context().Done()
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(gate.Close)
	server.url = gate.URL
	out, in := io.Pipe()
	code := make(chan int, 1)
	errOut := &strings.Builder{}
	go func() {
		code <- run([]string{"ui", "--kubeconfig", server.kubeconfig(t), "--context", "c"}, strings.NewReader(""), in, errOut)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred(), errOut.String())
	g.Expect(line).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/[A-Z2-7]{26}/ ` +
		`shows the GPUs of the cluster until Ctrl-C\.\n$`))
	url := strings.Fields(line)[0]
	get := func() (string, error) {
		answer, err := http.Get(url)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	text, err := get()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(And(ContainSubstring(">a</th>"), ContainSubstring("GPU status of c"),
		ContainSubstring("again every 5 seconds")))
	asked := len(server.requests())
	_, err = get()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.requests()).To(HaveLen(asked), "it is not read again at once")

	hangs.Store(true)
	g.Eventually(func() int {
		go func() { _, _ = get() }()
		return len(hanging)
	}, 3*readInterval, readInterval/3).ShouldNot(BeZero())
	self, err := os.FindProcess(os.Getpid())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(self.Signal(os.Interrupt)).To(Succeed())
	g.Eventually(code, 10*time.Second).Should(Receive(BeZero()), errOut.String())
	_, err = get()
	g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
}

// What would fail each time is reported before anything is served.
func TestUIFails(t *testing.T) {
	g := NewWithT(t)
	server := newAPIServer(t)
	config := server.kubeconfig(t)
	ui := func(args ...string) output {
		return kubectlGPU("", append([]string{"ui", "--kubeconfig", config, "--context", "c"}, args...)...)
	}
	for _, port := range []string{"-1", "80", "1023", "65536"} {
		got := ui("--port", port)
		g.Expect(got.code).To(Equal(exitUsage), port)
		g.Expect(got.errOut).To(ContainSubstring("--port " + port + ": give 0 for any port, or one from 1024 to 65535"))
	}
	g.Expect(ui("x").code).To(Equal(exitUsage))
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = taken.Close() }) // The end of the test closes it.
	_, port, err := net.SplitHostPort(taken.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	got := ui("--port", port)
	g.Expect(got.code).To(Equal(exitFailure))
	g.Expect(got.errOut).To(And(ContainSubstring("address already in use"), ContainSubstring("give another --port")))
	server.refused = true
	got = ui()
	g.Expect(got.code).To(Equal(exitFailure))
	g.Expect(got.errOut).To(ContainSubstring("Error from server (Forbidden)"))
	g.Expect(got.out).To(BeEmpty())
	g.Expect(taken.Close()).To(Succeed())
	g.Expect(serve(t.Context(), taken, http.NotFoundHandler())).To(MatchError(net.ErrClosed))
}

// The support bundle has the page, without credentials: neither those that it shows itself, nor those that another file
// has revealed, also where the page escapes them.
func TestPageOfABundle(t *testing.T) {
	g := NewWithT(t)
	node := []byte(`{apiVersion: v1, kind: Node, metadata: {name: a, uid: a, labels: {nvidia.com/gpu.present: "true"}},
		status: {conditions: [{type: nvidia.com/GPUReady, status: "False", reason: CrashLoopBackOff,
		message: "it calls https://user:hunter2pass@example.com/ with s3cret<&>phrase"}]}}`)
	pod := []byte(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: gpu-operator}, spec: {containers: [{name: c,
		env: [{name: DB_PASSWORD, value: "s3cret<&>phrase"}]}]}}`)
	server := newAPIServer(t, node, pod, undecodablePolicy)
	got := kubectlGPU("", "collect", "-", "--kubeconfig", server.kubeconfig(t), "--context", "c", "--log-lines", "0")
	g.Expect(got.code).To(BeZero(), got.errOut)
	files := unpacked(g, got.out)
	g.Expect(files["status.html"]).To(And(HavePrefix("<!DOCTYPE html>"), ContainSubstring(">a</th>"),
		ContainSubstring("it calls https://"), ContainSubstring("fix that error"), ContainSubstring("Read at <time"),
		ContainSubstring("Note:</strong> ClusterPolicy bad cannot be decoded"),
		ContainSubstring("<title>GPU status</title>"), Not(ContainSubstring("hunter2pass")),
		Not(ContainSubstring("s3cret")), Not(ContainSubstring("phrase"))))
	g.Expect(files["index.json"]).To(ContainSubstring(`"name": "status.html"`))
	g.Expect(files["summary.txt"]).To(ContainSubstring("status.html ("))
}

// unpacked returns the files of a bundle by name, without its folder.
func unpacked(g *WithT, packed string) map[string]string {
	archive, err := gzip.NewReader(strings.NewReader(packed))
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		g.Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(reader)
		g.Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}
