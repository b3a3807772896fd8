package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
)

// readTimeout bounds one read of the cluster for the page, so that it shows that the cluster does not answer.
const readTimeout = 30 * time.Second

// minPort is the first port that a user may have, beside 0 for any. A browser leaves 80 out of the Host header.
const minPort, maxPort = 1024, 65535

// uiOptions are the flags of ui.
type uiOptions struct {
	port       int
	connection connection
}

func uiCommand() *cobra.Command {
	o := uiOptions{}
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show the status as a page in your browser that stays up to date",
		Long: `Serve the page of kubectl gpu status -o html on this machine until Ctrl-C, and print its address. The page
refreshes itself. The cluster is read while a page is open, at most once in 3 seconds. If that fails, the page shows
the error and the state that was read last.

Nothing is installed in the cluster, and the page can change nothing. It is read with your rights. Only programs on this
machine reach it, and only who knows its address reads it: that has a secret, which is new each time. Requests that
another site makes in your browser are refused.

It needs the rights of kubectl gpu status.

Exit codes: 0 ended by Ctrl-C, 1 failure, 2 wrong usage.`,
		Example: `  kubectl gpu ui
  kubectl gpu ui --port 8080 --context production`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port != 0 && (o.port < minPort || o.port > maxPort) {
				return fmt.Errorf("--port %d: give 0 for any port, or one from %d to %d", o.port, minPort, maxPort)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// What Ctrl-C interrupts, such as the first read, has not failed.
			if err := o.run(ctx, cmd); err != nil && ctx.Err() == nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.port, "port", 0, "port on 127.0.0.1; 0 for any that is free")
	o.connection.addFlags(flags)
	return command
}

// run serves the page until the context ends.
func (o uiOptions) run(ctx context.Context, cmd *cobra.Command) error {
	asked, err := o.connection.open()
	if err != nil {
		return err
	}
	live := newLiveCluster(asked)
	shown := &livePage{now: time.Now, read: func(ctx context.Context) (page.Input, error) { return readPage(ctx, live) }}
	// What would fail each time is reported here, and not on a page.
	if err := shown.renew(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("%s:%d", loopback, o.port))
	if err != nil {
		return fmt.Errorf("serving the page: %w: give another --port", err)
	}
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return errors.New("serving the page: the listener has no port")
	}
	path := "/" + rand.Text() + "/"
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s%s shows the GPUs of the cluster until Ctrl-C.\n", address, path)
	return serve(ctx, listener, shown.handler(address.Port, path))
}

// readPage reads the cluster for a live page.
func readPage(ctx context.Context, live *liveCluster) (page.Input, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := live.read(ctx); err != nil {
		return page.Input{}, err
	}
	in, err := live.page(live.overview(), time.Now())
	in.Refresh = refreshInterval
	return in, err
}
