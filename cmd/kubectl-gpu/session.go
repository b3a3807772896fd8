package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The encodings that the API server is asked for.
const (
	typeJSON     = "application/json"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	// typeMetadata is JSON with the metadata of objects only.
	typeMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// maxError bounds what is read of an answer that reports an error, in bytes.
const maxError = 64 << 10

// interrupted is the exit code after a signal that ends the program, as of programs that leave it to the shell.
const interrupted = 130

// session reaches the API server through one kubectl proxy, for commands that ask much: one process instead of one for
// each question, and with encodings that kubectl get does not offer. The proxy serves a socket in a folder that only
// the user can open.
type session struct {
	client *http.Client
	stop   func()
}

// errNoProxy: kubectl proxy ended before it served.
var errNoProxy = errors.New("kubectl proxy did not start to serve")

// open starts a session. It ends with close, with the context, or with the program.
func (k kubectl) open(ctx context.Context) (*session, error) {
	dir, err := os.MkdirTemp("", "kubectl-gpu-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the socket of kubectl proxy: %w", err)
	}
	socket := filepath.Join(dir, "api")
	args := append(k.clusterArgs("proxy"), "--unix-socket="+socket, "--append-server-path")
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	errOut := &prompts{to: os.Stderr}
	cmd.Stderr = errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	s := &session{client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: maxParallel,
	}}}
	s.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // It may have ended.
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	stopOnSignals(s)
	// It prints one line when it serves.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.close()
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), errNoProxy, errOut.text())
	}
	errOut.handOn()
	return s, nil
}

// stopOnSignals ends the proxy with the program: it has the user's credentials.
func stopOnSignals(s *session) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // As below nohup.
		signal.Notify(signals, syscall.SIGHUP)
	}
	stop := s.stop
	s.stop = sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		stop()
	})
	go func() {
		select {
		case <-signals:
			stop()
			os.Exit(interrupted)
		case <-done:
		}
	}()
}

func (s *session) close() { s.stop() }

// do gets a path in one of the encodings of accept. It asks again when the API server is busy, or has a new kind not
// ready yet. The caller closes the body.
func (s *session) do(ctx context.Context, path, accept string) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := s.ask(ctx, path, accept)
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", path, err)
		}
		if response.StatusCode == http.StatusOK {
			return response, nil
		}
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 without the header: it is final.
		if response.StatusCode != http.StatusTooManyRequests || seconds < 1 || seconds > maxWait || attempt == maxAttempts {
			return nil, unanswered(path, response)
		}
		_ = response.Body.Close()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("getting %s: %w", path, ctx.Err())
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}

const (
	// maxAttempts bounds how often a path is asked for, and maxWait, in seconds, what the API server may ask to wait.
	maxAttempts = 10
	maxWait     = 10
)

// ask gets a path once.
func (s *session) ask(ctx context.Context, path, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	return s.client.Do(request)
}

// unanswered is the error of an answer, which it closes.
func unanswered(path string, response *http.Response) error {
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // What arrived is enough.
	return fmt.Errorf("getting %s: %w", path, refusal(response, text))
}

// refusal is the error of an answer, in the form of kubectl.
func refusal(response *http.Response, text []byte) error {
	status := metav1.Status{}
	if strings.HasPrefix(response.Header.Get("Content-Type"), typeProtobuf) {
		if raw, err := unwrap(text); err == nil {
			_ = status.Unmarshal(raw) // Without a reason the code counts.
		}
	} else {
		_ = json.Unmarshal(text, &status)
	}
	if status.Reason != "" {
		return fmt.Errorf("Error from server (%s): %s", status.Reason, status.Message) //nolint:staticcheck // As of kubectl.
	}
	if response.StatusCode == http.StatusNotFound { // Of a group that the cluster does not serve.
		return fmt.Errorf("Error from server (NotFound): %s", response.Status) //nolint:staticcheck // As of kubectl.
	}
	message := strings.TrimSpace(string(text))
	if len(message) > maxMessage {
		message = message[:maxMessage] + "..."
	}
	return fmt.Errorf("the answer is %s: %s", response.Status, message)
}

// maxMessage bounds what an error quotes of an answer, in bytes.
const maxMessage = 200

// read returns an answer, of at most limit bytes; cut reports that there is more.
func (s *session) read(ctx context.Context, path, accept string, limit int64) (text []byte, cut bool, err error) {
	response, err := s.do(ctx, path, accept)
	if err != nil {
		return nil, false, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(text)) > limit {
		return text[:limit], true, nil
	}
	return text, false, nil
}
