package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestBringsNodesToReady is the main job: a policy brings bare GPU nodes to ready.
func TestBringsNodesToReady(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 3, timing: simulator.DefaultTiming()})
	b.run()
	b.create(b.samplePolicy())
	t.Logf("ready after %s", b.awaitReady(3, time.Minute))
	mark := b.mark()
	time.Sleep(3*time.Second)
	t.Logf("writes at rest: %s", b.operatorCalls(mark).Writes())
	t.Logf("writes: %s", b.operatorCalls(0).Writes())
	t.Logf("%s", summary(b.policy()))
	_ = HaveOccurred
}
