package validate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// linksOf returns the links in the host's /dev/char and where they lead.
func linksOf(n gpuNode) map[string]string {
	n.Helper()
	g := NewWithT(n.T)
	entries, err := os.ReadDir(n.path("host/dev/char"))
	g.Expect(err).NotTo(HaveOccurred())
	links := map[string]string{}
	for _, entry := range entries {
		target, err := os.Readlink(n.path("host/dev/char", entry.Name()))
		if err != nil {
			target = "no link"
		}
		links[entry.Name()] = target
	}
	return links
}

var (
	toHost = map[string]string{
		"195:0": "../nvidia0", "195:1": "../nvidia1", "195:255": "../nvidiactl", "510:0": "../nvidia-uvm",
		"236:1": "../nvidia-caps/nvidia-cap1", "1:3": "no link",
	}
	toDriver = map[string]string{
		"195:0": "/run/nvidia/driver/dev/nvidia0", "195:1": "/run/nvidia/driver/dev/nvidia1",
		"195:255": "/run/nvidia/driver/dev/nvidiactl", "510:0": "/run/nvidia/driver/dev/nvidia-uvm",
		"236:1": "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap1", "1:3": "no link",
	}
)

func TestLinks(t *testing.T) {
	with := func(links map[string]string, name, target string) map[string]string {
		changed := map[string]string{name: target}
		for other, target := range links {
			if other != name {
				changed[other] = target
			}
		}
		return changed
	}
	tests := map[string]struct {
		node  func(*testing.T) gpuNode
		check func(n gpuNode) Driver
		given func(n gpuNode)
		want  map[string]string
	}{
		"lead to the host's devices": {node: hostNode, check: gpuNode.driver, want: toHost},
		"lead to the driver container's devices": {
			node: containerNode, check: gpuNode.container, want: toDriver},
		"lead to the host's device where it has the driver container's": {
			node: containerNode, check: gpuNode.container, want: with(toDriver, "195:0", "../nvidia0"),
			given: func(n gpuNode) { n.write("host/dev/nvidia0", "195:0") }},
		"do not lead to a device of the host with another number": {
			node: containerNode, check: gpuNode.container, want: toDriver,
			given: func(n gpuNode) { n.write("host/dev/nvidia0", "195:9") }},
		"that dangle are repaired": {
			node: hostNode, check: gpuNode.driver, want: toHost,
			given: func(n gpuNode) { n.symlink("/gone", "host/dev/char/195:0") }},
		"that dangle since the driver container is gone are repaired": {
			node: hostNode, check: gpuNode.driver, want: toHost,
			given: func(n gpuNode) { n.symlink("/run/nvidia/driver/dev/nvidia0", "host/dev/char/195:0") }},
		"to another device are repaired": {
			node: hostNode, check: gpuNode.driver, want: toHost,
			given: func(n gpuNode) { n.symlink("../nvidia1", "host/dev/char/195:0") }},
		"to the device by another way stay": {
			node: hostNode, check: gpuNode.driver, want: with(toHost, "195:0", "/dev/nvidia0"),
			given: func(n gpuNode) { n.symlink("/dev/nvidia0", "host/dev/char/195:0") }},
		"to the driver container's device stay": {
			node: containerNode, check: gpuNode.container, want: with(toDriver, "195:0", "/run/nvidia/driver/dev/nvidia0"),
			given: func(n gpuNode) {
				n.write("host/dev/nvidia0", "195:0")
				n.symlink("/run/nvidia/driver/dev/nvidia0", "host/dev/char/195:0")
			}},
		"are not created where the entry is the device itself": {
			node: hostNode, check: gpuNode.driver, want: with(toHost, "195:0", "no link"),
			given: func(n gpuNode) { n.write("host/dev/char/195:0", "195:0") }},
		"are created though a run that was killed left its file behind": {
			node: hostNode, check: gpuNode.driver, want: toHost,
			given: func(n gpuNode) { n.symlink("../half", "host/dev/char/.nvidia-195:0") }},
		"are created for the IMEX channels": {
			node: hostNode, check: gpuNode.driver, want: with(toHost, "239:0", "../nvidia-caps-imex-channels/channel0"),
			given: func(n gpuNode) { n.write("host/dev/nvidia-caps-imex-channels/channel0", "239:0") }},
		"are not created for files that are no device": {
			node: hostNode, check: gpuNode.driver, want: toHost,
			given: func(n gpuNode) { n.write("host/dev/nvidia-notes", "none") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			n := tc.node(t)
			if tc.given != nil {
				tc.given(n)
			}
			_, err := tc.check(n).Check(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(linksOf(n)).To(Equal(tc.want))
		})
	}
}

// A directory that is not writable does not matter if nothing has to be written.
func TestCorrectLinksAreNotWritten(t *testing.T) {
	g := NewWithT(t)
	n := hostNode(t)
	_, err := n.driver().Check(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	before, err := os.Stat(n.path("host/dev/char"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = n.driver().Check(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	after, err := os.Stat(n.path("host/dev/char"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.ModTime()).To(Equal(before.ModTime()), "a rewritten link would change it")
}

func TestALinkThatCannotBeWrittenIsLeftAsItWas(t *testing.T) {
	g := NewWithT(t)
	n := hostNode(t)
	n.symlink("/gone", "host/dev/char/195:0")
	g.Expect(os.Chmod(n.path("host/dev/char"), 0o500)).To(Succeed())
	if err := os.WriteFile(n.path("host/dev/char/probe"), nil, 0o600); err == nil || errors.Is(err, os.ErrExist) {
		// The root user may write anyway: then a directory blocks the temporary file.
		g.Expect(os.Remove(n.path("host/dev/char/probe"))).To(Succeed())
		g.Expect(os.MkdirAll(n.path("host/dev/char/.nvidia-195:0/x"), 0o700)).To(Succeed())
	}
	t.Cleanup(func() { _ = os.Chmod(n.path("host/dev/char"), 0o700) })

	_, err := n.driver().Check(t.Context())

	const remedy = "set DISABLE_DEV_CHAR_SYMLINK_CREATION=true in spec.validator.driver.env"
	g.Expect(err).To(MatchError(ContainSubstring(remedy)))
	g.Expect(os.Readlink(filepath.Join(n.path("host/dev/char"), "195:0"))).To(Equal("/gone"))
}
