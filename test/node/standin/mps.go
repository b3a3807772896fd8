//go:build linux

package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The Multi-Process Service: a control daemon for each resource, which has its pipes and logs below mpsRoot, and its
// memory in sharedMemory. The programs that share a GPU find it by a variable, and use its memory.
const (
	mpsRoot = "/mps"
	// mpsShared is where the memory is mounted on the host, in the containers of the daemon and of the plugin.
	mpsShared    = mpsRoot + "/shm"
	mpsReady     = mpsRoot + "/.ready"
	sharedMemory = "/dev/shm"
	pipeVariable = "CUDA_MPS_PIPE_DIRECTORY"
	// controlSocket is in the directory of the pipes. segmentPrefix begins the file in the memory of a daemon.
	controlSocket = "control"
	segmentPrefix = "cuda.mps."
	// mpsRetry is how long plugin and daemon wait after a failed start.
	mpsRetry = 30 * time.Second
	// gpuMebibytes is the memory of a GPU.
	gpuMebibytes = 81559
	// computeModeFile is where the kernel's driver has the compute mode of its GPUs, until it is unloaded.
	computeModeFile  = "/proc/driver/nvidia/compute-mode"
	computeExclusive = "EXCLUSIVE_PROCESS"
	computeDefault   = "DEFAULT"
)

// What the control daemon is asked.
const (
	askThreads = "get_default_active_thread_percentage"
	askMemory  = "get_default_device_pinned_mem_limit"
	// askServer connects a client: the answer is the file in the daemon's memory, and the connection lasts as long as
	// the server.
	askServer = "connect"
)

// mpsDir returns the directory of a resource.
func mpsDir(root, resource string) string { return filepath.Join(root, resource) }

// controlDaemon is mps-control-daemon. With the argument mount-shm it mounts the memory, and ends.
func controlDaemon(args []string) error {
	if slices.Equal(args, []string{"mount-shm"}) {
		return mountShared()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		stop, err := startControl()
		var retry <-chan time.Time
		if err != nil {
			fmt.Printf("the daemon does not start, trying again in %s: %v\n", mpsRetry, err)
			retry = time.After(mpsRetry)
		}
		select {
		case <-retry:
		case received := <-signals:
			if err := stop(); err != nil || received != syscall.SIGHUP {
				return err
			}
		}
	}
}

// mountShared mounts new memory. Like the real one it replaces the directory, so that what is mounted from the old one
// does not see the new memory.
func mountShared() error {
	err := unix.Unmount(mpsShared, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", mpsShared, err)
	}
	if err := os.Remove(mpsShared); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(mpsShared, 0o755); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME
	if err := unix.Mount("shm", mpsShared, "tmpfs", flags, "size=65536k"); err != nil {
		return fmt.Errorf("mount %s: %w", mpsShared, err)
	}
	return nil
}

// startControl makes the GPUs exclusive to the daemon, sets the limits of its clients and serves them. Without GPUs
// that are to be shared it waits. stop is never nil.
func startControl() (stop func() error, err error) {
	nothing := func() error { return nil }
	shared, err := readSharing()
	if err != nil {
		return nothing, err
	}
	if shared.strategy != sharingMPS {
		fmt.Println("no devices are configured for MPS sharing; waiting")
		return nothing, nil
	}
	cut, err := layout()
	if err != nil || len(cut) > 0 {
		return nothing, errors.Join(err, errors.New("sharing with MPS is not supported for MIG devices"))
	}
	if err := write(computeModeFile, computeExclusive); err != nil {
		return nothing, fmt.Errorf("set the compute mode: %w", err)
	}
	control, err := serveControl(shared.of(gpuResource))
	if err != nil {
		return nothing, err
	}
	if err := os.WriteFile(mpsReady, nil, 0o644); err != nil {
		return control.end, err
	}
	fmt.Println("the daemon of MPS serves " + gpuResource)
	return func() error {
			return errors.Join(os.Remove(mpsReady), control.end(), write(computeModeFile, computeDefault))
		},
		nil
}

// control is the daemon of one resource.
type control struct {
	listener net.Listener
	// replicas is how many clients share a GPU, segment the daemon's file in its memory.
	replicas int
	segment  string

	mu sync.Mutex
	// clients are the connections of programs that use GPUs. They end with the daemon.
	clients []net.Conn
}

func serveControl(replicas int) (*control, error) {
	dir := mpsDir(mpsRoot, gpuResource)
	pipes, log := filepath.Join(dir, "pipe"), filepath.Join(dir, "log")
	if err := errors.Join(os.MkdirAll(pipes, 0o755), os.MkdirAll(log, 0o755)); err != nil {
		return nil, err
	}
	c := &control{replicas: replicas, segment: segmentPrefix + rand.Text()}
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
	return c, os.WriteFile(filepath.Join(dir, ".started"), nil, 0o644)
}

func (c *control) serve() {
	for {
		connection, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.answer(connection)
	}
}

// answer answers one command.
func (c *control) answer(connection net.Conn) {
	line, err := bufio.NewReader(connection).ReadString('\n')
	command, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case err != nil:
	case command == askThreads:
		_, _ = fmt.Fprintf(connection, "%d.0\n", 100/c.replicas)
	case command == askMemory:
		_, _ = fmt.Fprintf(connection, "%dM\n", gpuMebibytes/c.replicas)
	case command == askServer:
		c.mu.Lock()
		c.clients = append(c.clients, connection)
		c.mu.Unlock()
		_, _ = fmt.Fprintln(connection, c.segment)
		return
	}
	_ = connection.Close()
}

func (c *control) end() error {
	err := c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		_ = client.Close()
	}
	return errors.Join(err, os.Remove(filepath.Join(sharedMemory, c.segment)),
		os.Remove(filepath.Join(mpsDir(mpsRoot, gpuResource), ".started")))
}

// ask sends a command to the control daemon whose pipes are in a directory, and returns its answer and the connection,
// which the caller closes.
func ask(pipes, command string) (answer string, connection net.Conn, err error) {
	connection, err = net.Dial("unix", filepath.Join(pipes, controlSocket))
	if err != nil {
		return "", nil, fmt.Errorf("reach the daemon of MPS: %w", err)
	}
	if _, err = fmt.Fprintln(connection, command); err == nil {
		answer, err = bufio.NewReader(connection).ReadString('\n')
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("ask the daemon of MPS: %w", err), connection.Close())
	}
	return strings.TrimSpace(answer), connection, nil
}

// askOnce is ask without what follows.
func askOnce(pipes, command string) (string, error) {
	answer, connection, err := ask(pipes, command)
	if err != nil {
		return "", err
	}
	return answer, connection.Close()
}

// checkDaemon reports whether the control daemon serves a resource, as the device plugin does before it starts.
func checkDaemon(resource string) error {
	_, err := askOnce(filepath.Join(mpsDir(mpsRoot, resource), "pipe"), askThreads)
	return err
}

// useGPU is the program of a user that uses a GPU through MPS: it prints the limits that it has got, and runs as long
// as its server.
func useGPU([]string) error {
	pipes := os.Getenv(pipeVariable)
	gpus, err := gpusIn("/dev")
	if err != nil || pipes == "" || len(gpus) != 1 {
		return fmt.Errorf("a container has the pipes %q and %d GPUs: %w", pipes, len(gpus), errors.Join(err, fs.ErrInvalid))
	}
	threads, threadsErr := askOnce(pipes, askThreads)
	memory, memoryErr := askOnce(pipes, fmt.Sprintf("%s %d", askMemory, gpus[0]))
	segment, server, err := ask(pipes, askServer)
	if err := errors.Join(threadsErr, memoryErr, err); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(sharedMemory, segment)); err != nil {
		return fmt.Errorf("find the memory of the server: %w", err)
	}
	fmt.Printf("memory %s, threads %s %%\n", memory, threads)
	lost := make(chan struct{})
	go func() {
		_, _ = server.Read(make([]byte, 1))
		close(lost)
	}()
	select {
	case <-ended():
		return nil
	case <-lost:
		return errors.New("the server of MPS has ended")
	}
}
