//go:build linux

package node_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// span is the time in which the container id ran; ended is 0 for one that runs.
type span struct {
	pod, container, id string
	started, ended     time.Time
}

// spans returns when each container of the operator's namespace ran, in the order of their starts.
func (b *env) spans() []span {
	b.t.Helper()
	var spans []span
	for _, pod := range b.pods() {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if status.ContainerID == "" || status.State.Waiting != nil {
				continue
			}
			started, ended := b.lifetime(status)
			spans = append(spans, span{
				pod: cmp.Or(pod.Labels["app"], pod.Name), container: status.Name,
				id: strings.TrimPrefix(status.ContainerID, "containerd://"), started: started, ended: ended,
			})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.started.Compare(b.started) })
	return spans
}

// logBreakdown prints the spans of the containers, to show how long each took until the node is ready.
func (b *env) logBreakdown(begin time.Time) {
	b.t.Helper()
	var text strings.Builder
	for _, s := range b.spans() {
		ended := "runs"
		if s.ended.Unix() > 0 {
			ended = fmt.Sprintf("%.2f s", s.ended.Sub(begin).Seconds())
		}
		fmt.Fprintf(&text, "%9.2f s %9s  %s of %s\n", s.started.Sub(begin).Seconds(), ended, s.container, s.pod)
	}
	b.t.Logf("  started     ended  container\n%s", text.String())
}
