package nfd

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/discover"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	namespace = "gpu-operator"
	prefix    = "feature.node.kubernetes.io/"
	// listed is the annotation in which NFD lists the labels that it has written.
	listed = "nfd.node.kubernetes.io/feature-labels"
)

// difference is a label that only one of the two writes, with the reason.
type difference struct {
	// key is a pattern of the whole key, without the prefix.
	key string
	// ofNFD: NFD writes it and node discovery does not.
	ofNFD   bool
	because string
}

// differences are all that there are between node discovery and nfd-worker.
var differences = []difference{
	{
		`pci-030[02]_10de\.present|pci-10de\.present`, false,
		"nfd-worker writes one key for a device, with or without its class by configuration; node discovery writes both, " +
			"as users select GPU nodes by either",
	},
	{
		`pci-15b3\.present`, false,
		"without NVIDIA's configuration nfd-worker leaves out network adapters; node discovery writes what the driver's " +
			"manifests need",
	},
	{
		`system-os_release\.OSTREE_VERSION`, false,
		"NFD of OpenShift writes it, which selects the driver toolkit; this release of the community does not",
	},
	{
		`pci-([0-9a-f]{4}_)?(1af4|8086)\.present`, true,
		"devices of other vendors do not concern the operator",
	},
	{
		`(cpu|memory|network|rdma|storage|usb|kernel-(config|selinux))[-.].*|kernel-version\.(major|minor|revision)`, true,
		"neither the operator nor a manifest of NVIDIA's selects by it",
	},
}

// machines are compared with the configuration of NVIDIA's chart, and without one.
var machines = map[string]struct {
	osRelease string
	devices   []Device
}{
	"t4":          {OSRelease("ubuntu", "22.04"), []Device{Bridge, Ethernet, T4}},
	"h100":        {OSRelease("ubuntu", "24.04"), []Device{Bridge, H100, H100, NVSwitch, ConnectX, ConnectX}},
	"coreos":      {OSRelease("rhcos", "4.19", "OSTREE_VERSION='9.6.20250805-0'"), []Device{H100}},
	"redhat":      {OSRelease("rhel", "9.6", `REDHAT_SUPPORT_PRODUCT="Red Hat Enterprise Linux"`), []Device{H100}},
	"suse":        {OSRelease("sles", "15.6"), []Device{Passthrough}},
	"debian":      {OSRelease("debian", "12"), []Device{Workstation, AudioOfGPU}},
	"rolling":     {"ID=arch\n", []Device{AudioOfGPU}},
	"no-gpu":      {OSRelease("ubuntu", "24.04"), []Device{Bridge, Ethernet}},
	"no-devices":  {OSRelease("amzn", "2023"), nil},
	"network":     {OSRelease("ubuntu", "24.04"), []Device{ConnectX}},
	thisMachine:   {},
	"only-bridge": {OSRelease("ol", "9.5"), []Device{NVSwitch}},
}

// thisMachine is the one that the test runs on, with its own /sys and /etc.
const thisMachine = "this-machine"

// pciLabel matches the label of a PCI device, with its vendor.
var pciLabel = regexp.MustCompile(`/pci-(?:[0-9a-f]{4}_)?([0-9a-f]{4})\.`)

// concernsOthers reports whether a label of NFD is about a device that the operator has no part in, of which each
// computer has others.
func concernsOthers(key string) bool {
	of := pciLabel.FindStringSubmatch(key)
	return strings.HasSuffix(key, ".sriov.capable") || of != nil && !slices.Contains([]string{"10de", "15b3"}, of[1])
}

// TestLabelsAgree runs nfd-worker and nfd-master for each machine, and compares the labels of its node with those that
// node discovery finds there: all values are equal, and each label that only one writes has its reason.
func TestLabelsAgree(t *testing.T) {
	cluster.SkipInSample(t)
	g := NewWithT(t)
	programs, nodes := start(t)
	roots, workers := map[string]string{}, map[string]*cluster.Operator{}
	for name, machine := range machines {
		root := "/"
		if name != thisMachine {
			root = t.TempDir()
			g.Expect(NewMachine(root, machine.osRelease, machine.devices...)).To(Succeed())
		}
		for configuration, options := range map[string]string{"chart": ChartOptions, "default": DefaultOptions} {
			node := name + "-" + configuration
			roots[node] = root
			nodes.create(t, node)
			worker, err := programs.Worker(root, options, Pod{Node: node}, "-oneshot")
			g.Expect(err).NotTo(HaveOccurred())
			workers[node] = worker
		}
	}
	used, compared := map[string]bool{}, 0
	for _, node := range slices.Sorted(maps.Keys(roots)) {
		root := roots[node]
		g.Expect(workers[node].Wait()).To(Succeed(), "nfd-worker on %s", node)
		theirs := nodes.labels(t, node)
		if root == "/" {
			maps.DeleteFunc(theirs, func(key, _ string) bool { return concernsOthers(key) })
		}
		host := discover.Host{SysRoot: filepath.Join(root, "sys"), ProcRoot: "/proc", Root: root}
		ours := host.Findings().Labels
		compared += compare(t, node, ours, theirs, used)
	}
	t.Logf("%d labels of %d nodes are equal", compared, len(roots))
	for _, row := range differences {
		g.Expect(used).To(HaveKey(row.key), "no machine shows this difference any more: remove it")
	}
}

// compare returns how many labels are equal, and fails for each that differs without a reason.
func compare(t *testing.T, node string, ours, theirs map[string]string, used map[string]bool) (equal int) {
	t.Helper()
	all := maps.Clone(ours)
	maps.Copy(all, theirs)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		our, isOurs := ours[key]
		their, isTheirs := theirs[key]
		if isOurs && isTheirs {
			equal++
			if our != their {
				t.Errorf("%s: %s is %q by node discovery, and %q by NFD", node, key, our, their)
			}
			continue
		}
		row := slices.IndexFunc(differences, func(d difference) bool {
			return d.ofNFD == isTheirs && regexp.MustCompile("^("+d.key+")$").MatchString(strings.TrimPrefix(key, prefix))
		})
		if row < 0 {
			t.Errorf("%s: only one of the two writes %s (NFD: %t)", node, key, isTheirs)
			continue
		}
		used[differences[row].key] = true
	}
	return equal
}

// nodes are the Nodes of the machines.
type nodes struct{ client kubernetes.Interface }

func (n nodes) create(t *testing.T, name string) {
	t.Helper()
	// nfd-master can only patch a Node that has labels and annotations, as each of a kubelet has.
	node := &corev1.Node{}
	node.Name, node.Labels, node.Annotations = name, map[string]string{"of": "a"}, map[string]string{"of": "kubelet"}
	_, err := n.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

// labels returns the labels that nfd-master has written, once it lists those of nfd-worker: at first it lists those of
// rules.
func (n nodes) labels(t *testing.T, name string) map[string]string {
	t.Helper()
	found := map[string]string{}
	NewWithT(t).Eventually(func(g Gomega) {
		node, err := n.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Annotations).To(HaveKeyWithValue(listed, ContainSubstring("kernel-version.full")))
		clear(found)
		for key := range strings.SplitSeq(node.Annotations[listed], ",") {
			if !strings.Contains(key, "/") {
				found[prefix+key] = node.Labels[prefix+key]
			}
		}
	}).WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
	return found
}

// logEnds shows the end of each log of a failed test.
func (p *Programs) logEnds(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(p.LogDir, "*.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		t.Logf("%s ends with:\n%s", filepath.Base(path), text[max(0, len(text)-2000):])
	}
}

// start starts a control plane with the objects of NFD, and nfd-master.
func start(t *testing.T) (*Programs, nodes) {
	t.Helper()
	g := NewWithT(t)
	c := cluster.StartFor(t, cluster.Options{})
	client, err := kubernetes.NewForConfig(c.Config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := InNamespace(namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster.InstallObjects(t.Context(), c.Config, objects)).To(Succeed())
	p := &Programs{Namespace: namespace, LogDir: t.TempDir()}
	t.Cleanup(func() { p.logEnds(t) })
	g.Expect(p.Build(t.Context(), os.Stderr)).To(Succeed())
	p.Kubeconfig, err = c.ServiceAccountKubeconfig(t.Context(), namespace, Account, "")
	g.Expect(err).NotTo(HaveOccurred())
	nodes := nodes{client}
	nodes.create(t, "master")
	master, err := p.Master(Pod{Node: "master"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(master.Stop()).To(Succeed()) })
	return p, nodes
}
