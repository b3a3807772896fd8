package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// logs adds the logs of the operator's namespace.
func (c *collector) logs(ctx context.Context) {
	if c.logLines == 0 {
		return
	}
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i := range c.pods {
		if err := c.noMoreLogs(ctx, i); err != nil {
			c.bundle.missing("logs of "+count(len(c.pods)-i, "pod"), "", err)
			break
		}
		for _, log := range c.logsOf(&c.pods[i]) {
			group.Go(func() error {
				c.text(ctx, log.name, log.path, log.query, maxLog)
				return nil
			})
		}
	}
	_ = group.Wait() // No function fails.
}

// errEnoughLogs: the logs of maxLogged pods have been read.
var errEnoughLogs = fmt.Errorf("logs are read of at most %d pods", maxLogged)

// noMoreLogs returns why the logs of the remaining pods are left out, after those of so many; nil if they are read.
func (c *collector) noMoreLogs(ctx context.Context, read int) error {
	if read == maxLogged {
		return errEnoughLogs
	}
	if c.bundle.isFull() {
		return errFull
	}
	return ctx.Err()
}

// readyRank is 1 for a pod that is ready, otherwise 0.
func readyRank(pod *corev1.Pod) int {
	if readiness.PodIsReady(pod) {
		return 1
	}
	return 0
}

// log is one of a container.
type log struct {
	name, path string
	query      url.Values
}

// logsOf returns the logs of a pod: of the containers that have started, and those before their last restart.
func (c *collector) logsOf(pod *corev1.Pod) []log {
	var all []log
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log", pod.Namespace, pod.Name)
		query := url.Values{
			"container": {status.Name}, "tailLines": {strconv.Itoa(c.logLines)}, "limitBytes": {strconv.Itoa(maxLog)},
			"timestamps": {labels.True},
		}
		name := "logs/" + pod.Name + "/" + status.Name
		if status.State.Running != nil || status.State.Terminated != nil || status.RestartCount > 0 {
			all = append(all, log{name + ".log", path, query})
		}
		if status.RestartCount > 0 {
			previous := maps.Clone(query)
			previous.Set("previous", labels.True)
			all = append(all, log{name + ".previous.log", path, previous})
		}
	}
	return all
}
