package cluster

import (
	"net/netip"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// Another test, or an outgoing connection, could take an address before the server that it is for listens on it.
func TestAnAddressIsClaimed(t *testing.T) {
	g := NewWithT(t)
	address, release, err := claimAddress()
	g.Expect(err).NotTo(HaveOccurred())
	defer release()
	parsed, err := netip.ParseAddrPort(address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Port()).To(And(BeNumerically(">=", 20000), BeNumerically("<", 32768)))
	g.Expect(canListen(address)).To(BeTrue())

	path := filepath.Join(t.TempDir(), "port")
	fd, claimed := claim(path)
	g.Expect(claimed).To(BeTrue())
	_, again := claim(path)
	g.Expect(again).To(BeFalse())
	g.Expect(unix.Close(fd)).To(Succeed())
	fd, claimed = claim(path)
	g.Expect(claimed).To(BeTrue())
	g.Expect(unix.Close(fd)).To(Succeed())
}
