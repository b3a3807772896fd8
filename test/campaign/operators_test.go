package campaign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/invariant"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// restartPause is how long the operator stays away after it has ended: a kubelet's first pause, for a test.
const restartPause = 100 * time.Millisecond

// operator is an operator that a kubelet would keep alive, behind a proxy of its own.
type operator struct {
	proxy *fault.Proxy
	// log is what it has written in all of its lives.
	log string

	options cluster.OperatorOptions
	front   *cluster.Front
	cancel  context.CancelFunc
	ended   chan struct{}

	lock    sync.Mutex
	process *cluster.Operator
	// ordered: its next end is the campaign's doing. exits are those that were not.
	ordered bool
	exits   []string
	starts  int
	// away are the times in which it did not run.
	away []invariant.Interval
	// held is closed while it may be started.
	held chan struct{}
}

// startOperator starts an operator, which restarts until it is stopped.
func (b *bed) startOperator(ctx context.Context, binary, name string, args ...string) (*operator, error) {
	o := &operator{ended: make(chan struct{}), held: make(chan struct{})}
	close(o.held)
	var err error
	o.front, err = b.cluster.NewFront(func(target *url.URL, transport http.RoundTripper) http.Handler {
		o.proxy = fault.NewProxy(target, transport)
		return o.proxy
	})
	if err != nil {
		return nil, err
	}
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, namespace, account, o.front.URL)
	if err != nil {
		return nil, errors.Join(err, o.front.Close())
	}
	o.log = filepath.Join(filepath.Dir(kubeconfig), name+".log")
	o.options = cluster.OperatorOptions{Binary: binary, Kubeconfig: kubeconfig, Args: args, LogFile: o.log}
	return o, nil
}

// run starts the operator for the first time. It is apart from startOperator, so that rules can be put in place before.
func (o *operator) run(ctx context.Context) {
	ctx, o.cancel = context.WithCancel(ctx)
	go o.live(ctx)
}

// live starts the operator again and again.
func (o *operator) live(ctx context.Context) {
	defer close(o.ended)
	left := time.Now()
	for ctx.Err() == nil {
		o.lock.Lock()
		held := o.held
		o.lock.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-held:
		}
		process, err := cluster.StartOperator(ctx, o.options)
		o.lock.Lock()
		o.starts++
		o.process = process
		o.away = append(o.away, invariant.Interval{Begin: left, End: time.Now()})
		o.lock.Unlock()
		if err == nil {
			select {
			case <-process.Done():
			case <-ctx.Done():
				return
			}
			err = process.Wait()
		}
		left = time.Now()
		o.noteExit(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
	}
}

func (o *operator) noteExit(ctx context.Context, err error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.process = nil
	if !o.ordered && ctx.Err() == nil {
		o.exits = append(o.exits, fmt.Sprintf("the operator ended by itself: %v", err))
	}
	o.ordered = false
}

// kill ends the operator as a node failure does; it comes back.
func (o *operator) kill() { o.end(func(p *cluster.Operator) { p.Kill() }) }

// terminate ends the operator in order; it comes back.
func (o *operator) terminate() error {
	var err error
	o.end(func(p *cluster.Operator) { err = p.Stop() })
	return err
}

func (o *operator) end(how func(*cluster.Operator)) {
	o.lock.Lock()
	process := o.process
	o.ordered = o.ordered || process != nil
	o.lock.Unlock()
	if process != nil {
		how(process)
	}
}

// hold keeps the operator from being started again until release is called.
func (o *operator) hold() (release func()) {
	held := make(chan struct{})
	o.lock.Lock()
	defer o.lock.Unlock()
	o.held = held
	return sync.OnceFunc(func() { close(held) })
}

func (o *operator) freeze() (thaw func()) {
	o.lock.Lock()
	process := o.process
	o.lock.Unlock()
	if process == nil {
		return func() {}
	}
	process.Freeze()
	return process.Thaw
}

// stop ends the operator for good. It must end in time.
func (o *operator) stop() error {
	o.cancel()
	<-o.ended
	o.lock.Lock()
	process := o.process
	o.lock.Unlock()
	var err error
	if process != nil {
		err = process.Stop()
	}
	return errors.Join(err, o.front.Close())
}

// trouble is what the operator's processes show: panics, races, and ends that nobody ordered.
func (o *operator) trouble(exitsAllowed bool) []string {
	o.lock.Lock()
	defer o.lock.Unlock()
	var found []string
	if !exitsAllowed {
		found = append(found, o.exits...)
	}
	text, err := os.ReadFile(o.log)
	if err != nil {
		return append(found, err.Error())
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.Contains(line, "panic") || strings.Contains(line, "DATA RACE") {
			found = append(found, line)
		}
	}
	return found
}
