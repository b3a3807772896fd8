package mountinfo_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/mountinfo"
)

const text = `1 0 0:30 / / rw - overlay overlay rw
2 1 8:1 /under /a rw - ext4 /dev/sda1 rw
3 1 8:1 /pods/uid /a rw - ext4 /dev/sda1 rw
4 1 8:2 / /with\040space rw - ext4 /dev/sdb1 rw
1 2 3 4
`

func TestOf(t *testing.T) {
	mounts := mountinfo.Parse(text)
	for name, want := range map[string]mountinfo.Mount{
		"/x": {"0:30", "/x", "/"}, "/ab": {"0:30", "/ab", "/"}, "/a": {"8:1", "/pods/uid", "/a"},
		"/a/b/c": {"8:1", "/pods/uid/b/c", "/a"}, "/with space/b": {"8:2", "/b", "/with space"},
	} {
		if got := mountinfo.Of(mounts, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := mountinfo.Of(mounts[1:], "/x"); got.Device != "" {
		t.Errorf("a path without a mount is in %v", got)
	}
}
