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

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/invariant"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// restartPause is the delay before an exited operator is restarted: a short form of the kubelet's first back-off.
const restartPause = 100 * time.Millisecond

// operator is an operator process that is restarted as by a kubelet, behind its own proxy.
type operator struct {
	proxy *fault.Proxy
	// log is the log of all its processes.
	log string

	options cluster.OperatorOptions
	front   *cluster.Front
	cancel  context.CancelFunc
	ended   chan struct{}

	lock    sync.Mutex
	process *cluster.Operator
	// ordered: the campaign causes its next exit. exits are those that it did not cause.
	ordered bool
	exits   []string
	starts  int
	// away are the times when it did not run.
	away []invariant.Interval
	// held is closed while a start is permitted.
	held chan struct{}
}

// startOperator starts an operator, which is restarted until it is stopped.
func (e *env) startOperator(ctx context.Context, binary, name string, args ...string) (*operator, error) {
	o := &operator{ended: make(chan struct{}), held: make(chan struct{})}
	close(o.held)
	var err error
	o.front, err = e.cluster.NewFront(func(target *url.URL, transport http.RoundTripper) http.Handler {
		o.proxy = fault.NewProxy(target, transport)
		return o.proxy
	})
	if err != nil {
		return nil, err
	}
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, namespace, account, o.front.URL)
	if err != nil {
		return nil, errors.Join(err, o.front.Close())
	}
	o.log = filepath.Join(filepath.Dir(kubeconfig), name+".log")
	o.options = cluster.OperatorOptions{Binary: binary, Kubeconfig: kubeconfig, Args: args, LogFile: o.log}
	return o, nil
}

// run starts the operator for the first time. It is separate from startOperator, so that rules can be added before.
func (o *operator) run(ctx context.Context) {
	ctx, o.cancel = context.WithCancel(ctx)
	go o.live(ctx)
}

// live starts and restarts the operator.
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
		o.exits = append(o.exits, fmt.Sprintf("the operator exited by itself: %v", err))
	}
	o.ordered = false
}

// kill ends the operator as a node failure does; it is restarted.
func (o *operator) kill() { o.end(func(p *cluster.Operator) { p.Kill() }) }

// terminate ends the operator gracefully; it is restarted.
func (o *operator) terminate() error {
	var err error
	o.end(func(p *cluster.Operator) { err = p.Stop() })
	return err
}

// awaitStart waits until the operator has been started and was ready once more than before.
func (o *operator) awaitStart(ctx context.Context, before int) error {
	return wait.PollUntilContextTimeout(ctx, restartPause, convergeTime, true, func(context.Context) (bool, error) {
		o.lock.Lock()
		defer o.lock.Unlock()
		return o.starts > before && o.process != nil, nil
	})
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

// hold prevents a restart of the operator until release is called.
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

// stop ends the operator permanently. It must exit in time.
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

// trouble returns the problems of the operator's processes: panics, races, and unexpected exits.
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
