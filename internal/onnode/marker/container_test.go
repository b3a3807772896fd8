package marker

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestContainer(t *testing.T) {
	g := NewWithT(t)
	dir := Dir{Path: t.TempDir()}
	g.Expect(dir.Container()).To(Equal(Container{}))

	put(t, filepath.Join(dir.Path, ".driver-ctr-ready"), "# a comment\n"+
		"GDS_ENABLED: true\nGDRCOPY_ENABLED:  \"false\" \r\nGPU_DIRECT_RDMA_ENABLED: yes\n"+
		"no line\nBAD KEY: 1\nDRIVER_INSTANCE: pod-1\n", 5)
	found, err := dir.Container()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Ready).To(BeTrue())
	g.Expect(found.DriverInstance).To(Equal("pod-1"))
	g.Expect(found.Enabled("GDS_ENABLED")).To(BeTrue())
	g.Expect(found.Enabled("GDRCOPY_ENABLED")).To(BeFalse())
	g.Expect(found.Enabled("MISSING")).To(BeFalse())
	_, err = found.Enabled("GPU_DIRECT_RDMA_ENABLED")
	g.Expect(err).To(MatchError(`GPU_DIRECT_RDMA_ENABLED in .driver-ctr-ready is "yes", which is not a boolean; ` +
		`correct the environment of the driver container`))

	put(t, filepath.Join(dir.Path, ".driver-ctr-ready"), "", 5)
	g.Expect(dir.DriverInstance()).To(Equal("since-1700000005.000000007"), "the file's modification time is the name")

	g.Expect(os.Remove(filepath.Join(dir.Path, ".driver-ctr-ready"))).To(Succeed())
	g.Expect(os.Mkdir(filepath.Join(dir.Path, ".driver-ctr-ready"), 0o700)).To(Succeed())
	_, err = dir.DriverInstance()
	g.Expect(err).To(MatchError(ContainSubstring(".driver-ctr-ready cannot be read, so no marker can be trusted")))
}

// Values that are written and read back are the same, and none extends beyond its line.
func FuzzParseContainer(f *testing.F) {
	for _, seed := range []string{
		"", "GDS_ENABLED: true\nDRIVER_INSTANCE: pod-1\n", "A: 'x'\r\nA: \"y\"", ":\n::\nA B: 1\n", "A:$(reboot)\n", "A:\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		g := NewWithT(t)
		values := ParseContainer(content)
		var again []byte
		for key, value := range values {
			g.Expect(key).To(MatchRegexp(keyPattern.String()))
			g.Expect(string(content)).To(ContainSubstring(value), "nothing is evaluated")
			g.Expect(value).NotTo(ContainSubstring("\n"))
			again = append(again, key+": \""+value+"\"\n"...)
		}
		g.Expect(ParseContainer(again)).To(Equal(values))
	})
}
