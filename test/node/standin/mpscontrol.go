//go:build linux

package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// logVariable has the directory of the control daemon's log.
const logVariable = "CUDA_MPS_LOG_DIRECTORY"

// control is the control daemon of one resource.
type control struct {
	listener net.Listener
	// segment is the daemon's file in its memory.
	segment string

	mu sync.Mutex
	// threads is the limit of threads in percent, and memory that of the memory of each GPU by its number.
	threads string
	memory  map[string]string
	// clients are the connections of programs that use GPUs. They end with the daemon.
	clients []net.Conn
	// ended is closed when the daemon has been asked to end.
	ended chan struct{}
}

// serveControl serves clients at a socket in the directory pipes. Both directories are created.
func serveControl(pipes, log string) (*control, error) {
	if err := errors.Join(os.MkdirAll(pipes, 0o755), os.MkdirAll(log, 0o755)); err != nil {
		return nil, err
	}
	c := &control{
		segment: segmentPrefix + rand.Text(), threads: "100", memory: map[string]string{}, ended: make(chan struct{}),
	}
	socket := filepath.Join(pipes, controlSocket)
	// A daemon that was killed leaves its socket.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(sharedMemory, c.segment), nil, 0o644),
		os.WriteFile(filepath.Join(log, "control.log"), []byte("Starting control daemon using socket "+socket+"\n"), 0o644),
	)
	if err != nil {
		return nil, err
	}
	if c.listener, err = net.Listen("unix", socket); err != nil {
		return nil, err
	}
	go c.serve()
	return c, nil
}

// share gives each client an equal part of every GPU.
func (c *control) share(replicas int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.threads = fmt.Sprint(100 / replicas)
	for gpu := range maxGPUs {
		c.memory[fmt.Sprint(gpu)] = fmt.Sprintf("%dM", gpuMebibytes/replicas)
	}
}

// maxGPUs is the most GPUs that a machine has.
const maxGPUs = 16

func (c *control) serve() {
	for {
		connection, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.answer(connection)
	}
}

// answer answers one command. A client's connection stays open as long as the daemon serves.
func (c *control) answer(connection net.Conn) {
	line, err := bufio.NewReader(connection).ReadString('\n')
	words := append(strings.Fields(line), "", "", "")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
	case words[0] == askThreads:
		_, _ = fmt.Fprintln(connection, c.threads+".0")
	case words[0] == askMemory:
		_, _ = fmt.Fprintln(connection, c.memory[words[1]])
	case words[0] == setThreads:
		c.threads = words[1]
		_, _ = fmt.Fprintln(connection)
	case words[0] == setMemory:
		c.memory[words[1]] = words[2]
		_, _ = fmt.Fprintln(connection)
	case words[0] == askEnd:
		// Another daemon may start as soon as this one has answered.
		if c.listener.Close() == nil {
			close(c.ended)
		}
		_, _ = fmt.Fprintln(connection)
	case words[0] == askServer:
		c.clients = append(c.clients, connection)
		_, _ = fmt.Fprintln(connection, c.segment)
		return
	}
	_ = connection.Close()
}

func (c *control) end() error {
	err := c.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		_ = client.Close()
	}
	return errors.Join(err, os.Remove(filepath.Join(sharedMemory, c.segment)))
}

// mpsControl is nvidia-cuda-mps-control: with -d it starts the control daemon in the background, and returns once that
// serves; without, it sends the commands that it reads to the daemon and prints the answers. Its variables name the
// directories.
func mpsControl(args []string) error {
	pipes, log := os.Getenv(pipeVariable), os.Getenv(logVariable)
	switch strings.Join(args, " ") {
	case "":
		return sendCommands(pipes)
	case "-d":
		if _, err := askOnce(pipes, askThreads); err == nil {
			return errors.New("an instance of this daemon is already running")
		}
		return startInBackground()
	case "-f":
		control, err := serveControl(pipes, log)
		if err != nil {
			return err
		}
		// What has started it waits for the end of its output.
		if err := os.Stdout.Close(); err != nil {
			return err
		}
		<-control.ended
		return control.end()
	}
	return fmt.Errorf("nvidia-cuda-mps-control is played without arguments, with -d and with -f, not with %q", args)
}

// sendCommands sends the commands on the standard input.
func sendCommands(pipes string) error {
	commands, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for command := range strings.Lines(string(commands)) {
		answer, err := askOnce(pipes, strings.TrimSpace(command))
		if err != nil {
			return err
		}
		if answer != "" {
			fmt.Println(answer)
		}
	}
	return nil
}

// startInBackground starts the daemon, and returns once it serves.
func startInBackground() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	daemon := exec.Command(self, "-f")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	if _, err := io.ReadAll(ready); err != nil {
		return err
	}
	_, err = askOnce(os.Getenv(pipeVariable), askThreads)
	return err
}
