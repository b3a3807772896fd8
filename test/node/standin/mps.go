//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
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
	// setThreads and setMemory set the limits of clients, the memory for a GPU; askEnd ends the daemon.
	setThreads = "set_default_active_thread_percentage"
	setMemory  = "set_default_device_pinned_mem_limit"
	askEnd     = "quit"
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
		// All that the configuration asks for has been started.
		return notReadyNow, os.WriteFile(mpsReady, nil, 0o644)
	}
	cut, err := layout()
	if err != nil || len(cut) > 0 {
		return nothing, errors.Join(err, errors.New("sharing with MPS is not supported for MIG devices"))
	}
	if err := write(computeModeFile, computeExclusive); err != nil {
		return nothing, fmt.Errorf("set the compute mode: %w", err)
	}
	resource := shared.advertised(gpuResource)
	dir := mpsDir(mpsRoot, resource)
	control, err := serveControl(filepath.Join(dir, "pipe"), filepath.Join(dir, "log"))
	if err != nil {
		return nothing, err
	}
	control.share(shared.of(gpuResource))
	started := filepath.Join(dir, ".started")
	if err := errors.Join(os.WriteFile(started, nil, 0o644), os.WriteFile(mpsReady, nil, 0o644)); err != nil {
		return control.end, err
	}
	fmt.Println("the daemon of MPS serves " + resource)
	return func() error {
			return errors.Join(notReadyNow(), control.end(), os.Remove(started), write(computeModeFile, computeDefault))
		},
		nil
}

// notReadyNow is called before daemons are stopped.
func notReadyNow() error {
	if err := os.Remove(mpsReady); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// checkDaemon returns why the control daemon of a resource does not serve, as the device plugin finds it before it
// starts: by the driver's program.
func checkDaemon(resource string) error {
	control := exec.Command("nvidia-cuda-mps-control")
	control.Env = []string{pipeVariable + "=" + filepath.Join(mpsDir(mpsRoot, resource), "pipe")}
	control.Stdin = strings.NewReader(askThreads)
	if err := control.Run(); err != nil {
		return fmt.Errorf("failed to send command to MPS daemon: %w", err)
	}
	return nil
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
