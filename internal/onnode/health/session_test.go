package health

import (
	"os/exec"
	"testing"

	. "github.com/onsi/gomega"
)

// A program that writes without end does not fill the memory of the agent.
func TestTheOutputOfASessionIsLimited(t *testing.T) {
	g := NewWithT(t)
	var stdout, stderr limited
	command := exec.Command("sh", "-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2")
	command.Stdout, command.Stderr = &stdout, &stderr
	g.Expect(command.Run()).To(Succeed(), "the program can write all of it")
	g.Expect(stdout.kept.Len()).To(Equal(maxOutput))
	g.Expect(stderr.kept.Len()).To(Equal(maxOutput))
}
