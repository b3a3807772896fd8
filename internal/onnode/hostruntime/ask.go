package hostruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program is a container runtime, by the name of its process.
type Program string

// The container runtimes that the toolkit configures.
const (
	Containerd Program = "containerd"
	CRIO       Program = "crio"
	Docker     Program = "dockerd"
)

// ProgramOf returns the container runtime that listens on a socket with this path.
func ProgramOf(socket string) Program {
	switch {
	case strings.Contains(socket, "docker"):
		return Docker
	case strings.Contains(socket, "crio"):
		return CRIO
	default:
		return Containerd
	}
}

// Answer is what a container runtime has answered.
type Answer struct {
	// Config is the configuration that it runs with, in a format of its own.
	Config []byte
	// PID is the process that has answered; 0 if this process cannot see it.
	PID int
}

// ErrNotRunning is that no process listens on the socket.
var ErrNotRunning = errors.New("no process listens on the socket")

const (
	// patience is how long a runtime may take to answer.
	patience = 5 * time.Second
	// mostConfig is how much of its answer is read.
	mostConfig = 4 << 20
)

// Ask returns the configuration of the runtime that listens on a socket. It is empty if the runtime serves no pods.
func (p Program) Ask(socket string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var pid atomic.Int64
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, socket, &pid)
		},
	}
	defer transport.CloseIdleConnections()
	if p == Containerd {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	config, err := p.config(ctx, &http.Client{Transport: transport})
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return Answer{}, ErrNotRunning
	}
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s for its configuration: %w", p, err)
	}
	return Answer{Config: config, PID: int(pid.Load())}, nil
}

// config asks for the configuration: containerd by the verbose status of the Container Runtime Interface, whose request
// and answer are messages of gRPC, the others by HTTP interfaces of their own.
func (p Program) config(ctx context.Context, client *http.Client) ([]byte, error) {
	method, path, request := http.MethodGet, "/info", []byte(nil)
	switch p {
	case CRIO:
		path = "/config"
	case Containerd:
		// A message that is not compressed, with its length, and in it the field 1, verbose, true.
		method, path, request = http.MethodPost, "/runtime.v1.RuntimeService/Status", []byte{0, 0, 0, 0, 2, 1 << 3, 1}
	}
	ask, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	if p == Containerd {
		ask.Header.Set("Content-Type", "application/grpc")
		ask.Header.Set("TE", "trailers")
	}
	answer, err := client.Do(ask)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	config, err := io.ReadAll(io.LimitReader(answer.Body, mostConfig))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w %s", errAnswer, answer.Status)
	}
	if err != nil || p != Containerd {
		return config, err
	}
	return config, checkStatus(answer)
}

var errAnswer = errors.New("it answered")

// The codes of gRPC for success, and for a service that is not there: of a containerd that serves Docker alone.
const (
	statusOK            = "0"
	statusUnimplemented = "12"
)

// checkStatus returns the error that a gRPC server has answered with.
func checkStatus(answer *http.Response) error {
	// An answer without a message has the status among its headers.
	for _, header := range []http.Header{answer.Trailer, answer.Header} {
		switch status := header.Get("Grpc-Status"); status {
		case "":
		case statusOK, statusUnimplemented:
			return nil
		default:
			return fmt.Errorf("%w with the status %s: %s", errAnswer, status, header.Get("Grpc-Message"))
		}
	}
	return fmt.Errorf("%w without a status", errAnswer)
}

// conn notes which process has sent what it receives. The socket cannot tell otherwise: where systemd listens for the
// runtime, it belongs to systemd.
type conn struct {
	*net.UnixConn
	pid *atomic.Int64
}

// dial connects to a socket so that all that is received has its sender.
func dial(ctx context.Context, socket string, pid *atomic.Int64) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		})
		return errors.Join(err, failed)
	}}
	connection, err := dialer.DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	return conn{connection, pid}, nil
}

func (c conn) Read(into []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, controls, _, _, err := c.ReadMsgUnix(into, control)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	for i := range messages {
		if sender, notCredentials := unix.ParseUnixCredentials(&messages[i]); notCredentials == nil {
			c.pid.Store(int64(sender.Pid))
		}
	}
	return n, err
}
