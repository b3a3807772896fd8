package simulator

import (
	"context"
	"fmt"
	"os"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// Start runs the simulator until the context ends or Stop is called. It returns once the caches are synced.
func (s *Simulator) Start(ctx context.Context) error {
	if s.CanRunProcesses() == nil {
		if err := s.makeDir(); err != nil {
			return err
		}
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.ended = make(chan struct{})
	var workers sync.WaitGroup
	context.AfterFunc(ctx, func() {
		s.queue.ShutDown()
		workers.Wait()
		s.clear()
		close(s.ended)
	})
	go s.nodeInformer.RunWithContext(ctx)
	go s.podInformer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), s.nodeInformer.HasSynced, s.podInformer.HasSynced) {
		return fmt.Errorf("sync the simulator's caches: %w", context.Cause(ctx))
	}
	for range s.workers {
		workers.Go(func() { s.work(ctx) })
	}
	return nil
}

// Stop ends the simulator and returns once all processes and files of its nodes are removed.
func (s *Simulator) Stop() {
	s.endpoints.close()
	if s.cancel != nil {
		s.cancel()
		<-s.ended
	}
}

// makeDir creates the directory of the machines.
func (s *Simulator) makeDir() error {
	if s.dir != "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "gpu-operator-nodes-")
	if err != nil {
		return fmt.Errorf("create a directory for the machines of nodes: %w", err)
	}
	s.dir, s.temporary = dir, true
	return nil
}

// clear ends all processes.
func (s *Simulator) clear() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, n := range s.nodes {
		n.close()
	}
	if s.temporary {
		if err := os.RemoveAll(s.dir); err != nil {
			utilruntime.HandleError(err)
		}
	}
}
