package termination_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// stopped makes the test binary a program that has called stop and still runs.
const stopped = "TERMINATION_TEST_STOPPED"

func TestMain(m *testing.M) {
	if os.Getenv(stopped) != "" {
		_, stop := termination.Context()
		stop()
		fmt.Println("stopped")
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSignalsEndTheContext(t *testing.T) {
	for _, test := range []struct {
		signal syscall.Signal
		cause  string
	}{
		{syscall.SIGTERM, "terminated signal received"},
		{syscall.SIGINT, "interrupt signal received"},
	} {
		t.Run(test.signal.String(), func(t *testing.T) {
			g := NewWithT(t)
			ctx, stop := termination.Context()
			defer stop()
			g.Expect(ctx.Err()).NotTo(HaveOccurred())
			g.Expect(syscall.Kill(os.Getpid(), test.signal)).To(Succeed())
			g.Eventually(ctx.Done(), "1m").Should(BeClosed())
			g.Expect(context.Cause(ctx)).To(MatchError(test.cause))
		})
	}
}

// The first signal is the cause: a second one changes nothing.
func TestASecondSignalIsNotTheCause(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := termination.Context()
	defer stop()
	g.Expect(syscall.Kill(os.Getpid(), syscall.SIGTERM)).To(Succeed())
	g.Eventually(ctx.Done(), "1m").Should(BeClosed())
	delivered := make(chan os.Signal, 1)
	signal.Notify(delivered, syscall.SIGINT)
	defer signal.Stop(delivered)
	g.Expect(syscall.Kill(os.Getpid(), syscall.SIGINT)).To(Succeed())
	g.Eventually(delivered, "1m").Should(Receive())
	stop() // It waits for signals that are being delivered.
	g.Expect(context.Cause(ctx)).To(MatchError("terminated signal received"))
}

// Often enough stop comes before the context has taken the signal.
func TestASignalBeforeStopEndsTheContext(t *testing.T) {
	g := NewWithT(t)
	delivered := make(chan os.Signal, 1)
	signal.Notify(delivered, syscall.SIGTERM)
	defer signal.Stop(delivered)
	for range 200 {
		ctx, stop := termination.Context()
		g.Expect(syscall.Kill(os.Getpid(), syscall.SIGTERM)).To(Succeed())
		<-delivered
		stop()
		g.Expect(context.Cause(ctx)).To(MatchError("terminated signal received"))
	}
}

func TestStopDoesNotEndTheContext(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := termination.Context()
	stop()
	stop()
	g.Expect(ctx.Err()).NotTo(HaveOccurred())
}

func TestASignalAfterStopEndsTheProgram(t *testing.T) {
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	program := exec.CommandContext(t.Context(), self)
	program.Env = append(os.Environ(), stopped+"=1")
	output, err := program.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(program.Start()).To(Succeed())
	line, err := bufio.NewReader(output).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("stopped\n"))

	g.Expect(program.Process.Signal(syscall.SIGTERM)).To(Succeed())
	var exit *exec.ExitError
	g.Expect(errors.As(program.Wait(), &exit)).To(BeTrue())
	status, isStatus := exit.Sys().(syscall.WaitStatus)
	g.Expect(isStatus).To(BeTrue())
	g.Expect(status.Signaled()).To(BeTrue())
	g.Expect(status.Signal()).To(Equal(syscall.SIGTERM))
}

func TestWriteMessage(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(path string) error
		// want is the content of the file afterwards.
		want  string
		fails error
	}{
		"replaces an earlier message": {
			prepare: func(path string) error { return os.WriteFile(path, []byte("an earlier and longer message"), 0o600) },
			want:    "the driver is missing\n",
		},
		"cannot write": {
			prepare: func(path string) error { return os.Mkdir(path, 0o700) },
			fails:   syscall.EISDIR,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "termination-log")
			g.Expect(test.prepare(path)).To(Succeed())
			err := termination.WriteMessage(path, "the driver is missing")
			if test.fails != nil {
				g.Expect(err).To(MatchError(test.fails))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			content, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(test.want))
		})
	}
}

func TestWriteMessageCreatesNoFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "termination-log")
	g.Expect(termination.WriteMessage(path, "any")).To(Succeed())
	g.Expect(path).NotTo(BeAnExistingFile())
}

// A file system that is full fails at the write.
func TestWriteMessageReportsAFailedWrite(t *testing.T) {
	g := NewWithT(t)
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	g.Expect(termination.WriteMessage("/dev/full", "any")).To(MatchError(syscall.ENOSPC))
}
