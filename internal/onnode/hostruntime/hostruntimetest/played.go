// Package hostruntimetest plays the container runtimes of a host: a process by the name of each, which answers as it
// does and takes its signals.
package hostruntimetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime"
)

// configVariable names the configuration file of a played runtime.
const configVariable = "PLAYED_RUNTIME_CONFIG"

// Main is the played runtime in a process that Start has started; it then does not return. TestMain calls it first.
func Main() {
	file := os.Getenv(configVariable)
	if file == "" {
		return
	}
	var config atomic.Value
	load := func() {
		content, err := os.ReadFile(file)
		if err != nil {
			content = nil
		}
		config.Store(content)
	}
	load()
	_ = os.NewFile(4, "loaded").Close()
	program := hostruntime.Program(filepath.Base(os.Args[0]))
	// The signal is taken by each, as a process ignores it by default where the tests run by nohup.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			if program == hostruntime.Containerd {
				os.Exit(1)
			}
			load()
		}
	}()
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		content, _ := config.Load().([]byte)
		_, _ = w.Write(content)
	}
	paths := map[hostruntime.Program]string{hostruntime.CRIO: "GET /config", hostruntime.Docker: "GET /info"}
	if path, byHTTP := paths[program]; byHTTP {
		mux.HandleFunc(path, answer)
	} else {
		mux.HandleFunc("POST /runtime.v1.RuntimeService/Status", func(w http.ResponseWriter, r *http.Request) {
			content, _ := config.Load().([]byte)
			answerCRI(w, r, content)
		})
	}
	server := http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(program != hostruntime.Containerd)
	server.Protocols.SetUnencryptedHTTP2(program == hostruntime.Containerd)
	fmt.Fprintln(os.Stderr, server.Serve(listener))
	os.Exit(1)
}

// answerCRI answers with a message of gRPC, or with the status or the end that a configuration stands for.
func answerCRI(w http.ResponseWriter, r *http.Request, config []byte) {
	verbose, err := io.ReadAll(r.Body)
	if err != nil || string(verbose) != "\x00\x00\x00\x00\x02\x08\x01" || r.Header.Get("TE") != "trailers" ||
		r.Header.Get("Content-Type") != "application/grpc" {
		http.Error(w, "not a request of gRPC for the verbose status", http.StatusUnsupportedMediaType)
		return
	}
	if string(config) == "ends" {
		os.Exit(1)
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	if status, isStatus := strings.CutPrefix(string(config), "status="); isStatus {
		w.Header().Set("Grpc-Message", "played")
		w.Header().Set("Grpc-Status", status)
		return
	}
	_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(config))))
	_, _ = w.Write(config)
	w.Header().Set("Grpc-Status", "0")
}

// Start starts a program that reads its configuration from a file and serves a socket on which this process listens,
// as systemd does for Docker. ended is closed once it has ended. What it makes lasts until the test ends.
func Start(t *testing.T, program hostruntime.Program, socket, config string) (pid int, ended <-chan struct{}) {
	t.Helper()
	g := gomega.NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	// The kernel names a process after the path by which its program was started.
	named := filepath.Join(t.TempDir(), string(program))
	g.Expect(os.Symlink(self, named)).To(gomega.Succeed())
	// The path of a socket is limited to some 100 characters.
	dir, err := os.Open(filepath.Dir(socket))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	listening, err := listener.File()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	process := exec.CommandContext(t.Context(), named)
	process.Env = append(os.Environ(), configVariable+"="+config)
	loaded, loads, err := os.Pipe()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer loaded.Close()
	process.ExtraFiles = []*os.File{listening, loads}
	process.Stderr = os.Stderr
	g.Expect(process.Start()).To(gomega.Succeed())
	g.Expect(listening.Close()).To(gomega.Succeed())
	g.Expect(loads.Close()).To(gomega.Succeed())
	g.Expect(io.ReadAll(loaded)).To(gomega.BeEmpty())
	end := make(chan struct{})
	go func() {
		defer close(end)
		_ = process.Wait()
		// Without the process, no one listens.
		_ = listener.Close()
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-end
		_ = dir.Close()
	})
	return process.Process.Pid, end
}
