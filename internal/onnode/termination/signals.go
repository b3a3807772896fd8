package termination

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Context returns a context that ends with SIGTERM, which the kubelet sends, or SIGINT. Its cause names the signal.
// After stop such a signal ends the program immediately, and each earlier one has ended the context, which stop itself
// does not; stop may be called twice.
func Context() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	// Not signal.NotifyContext: its stop ends the context, and so hides whether a signal did.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	var listener sync.WaitGroup
	listener.Go(func() {
		for received := range signals {
			cancel(fmt.Errorf("%s signal received", received))
		}
	})
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals) // It waits for a signal that is being delivered to the channel.
		close(signals)
		listener.Wait()
	})
}
