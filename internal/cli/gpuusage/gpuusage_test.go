package gpuusage_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cli/gpuusage"
)

// usage is the part of the JSON that the tests compare; -1 for what is absent.
type usage struct {
	Utilization, Power, Temperature float64
	Used, Total                     int64
}

func of(u gpuusage.Usage) usage {
	found := usage{-1, -1, -1, -1, -1}
	for to, from := range map[*float64]*float64{
		&found.Utilization: u.UtilizationPercent, &found.Power: u.PowerWatts, &found.Temperature: u.TemperatureCelsius,
	} {
		if from != nil {
			*to = *from
		}
	}
	for to, from := range map[*int64]*int64{&found.Used: u.MemoryUsedBytes, &found.Total: u.MemoryTotalBytes} {
		if from != nil {
			*to = *from
		}
	}
	return found
}

const mib = 1 << 20

// The two sets of names report the same GPU: of exporter 4.8, and of 4.9 with other units.
func TestNamesAndUnits(t *testing.T) {
	const old = `
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",Hostname="n"} 40
DCGM_FI_DEV_FB_USED{gpu="0"} 1000
DCGM_FI_DEV_FB_FREE{gpu="0"} 3000
DCGM_FI_DEV_FB_RESERVED{gpu="0"} 96
DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300.5
DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61
DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980
`
	const renamed = `
DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",DCGM_FI_SYSTEM_DRIVER_VERSION="595"} 0.4
DCGM_FI_DEV_FB_USED_BYTES{gpu="0"} 1048576000
DCGM_FI_DEV_FB_FREE_BYTES{gpu="0"} 3145728000
DCGM_FI_DEV_FB_RESERVED_BYTES{gpu="0"} 100663296
DCGM_FI_DEV_FB_CAPACITY_BYTES{gpu="0"} 4294967296
DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="0"} 300.5
DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="0"} 61
`
	// DCGM 4.6 has the name of 4.7 for a percentage.
	early := strings.ReplaceAll(old, `DCGM_FI_DEV_GPU_UTIL{`, `DCGM_FI_DEV_GPU_UTIL_RATIO{DCGM_FI_DRIVER_VERSION="595",`)
	for name, metrics := range map[string]string{
		"4.8": old, "4.9": renamed, "a ratio in percent": strings.Replace(early, " gauge", " untyped", 1),
		"what DCGM cannot read": old + "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",x=\"y\"} 9.223372036854776e+18\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			devices, err := gpuusage.Parse("node", strings.NewReader(metrics))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(devices).To(HaveLen(1))
			g.Expect(devices[0]).To(And(HaveField("UUID", "GPU-a"), HaveField("Product", "NVIDIA H100")))
			g.Expect(of(devices[0].Usage)).To(Equal(usage{40, 300.5, 61, 1000 * mib, 4096 * mib}))
			nodes := gpuusage.Nodes(devices)
			g.Expect(of(nodes[0].Usage)).To(Equal(of(devices[0].Usage)))
			g.Expect(gpuusage.Pods(devices)).To(BeEmpty())
		})
	}
}

// Values at the ends of their ranges, and what has to be computed.
func TestValues(t *testing.T) {
	for name, test := range map[string]struct {
		metrics string
		want    usage
	}{
		"1 % under the name of a ratio": {
			`DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",DCGM_FI_DRIVER_VERSION="595"} 1`, usage{1, -1, -1, -1, -1},
		},
		"a ratio of 1": {`DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0"} 1`, usage{100, -1, -1, -1, -1}},
		"an idle GPU":  {`DCGM_FI_DEV_GPU_UTIL{gpu="0"} 0`, usage{0, -1, -1, -1, -1}},
		"a counter": {
			"# TYPE DCGM_FI_DEV_GPU_UTIL counter\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 7", usage{7, -1, -1, -1, -1},
		},
		"used memory that is not reported": {
			"DCGM_FI_DEV_FB_CAPACITY_BYTES{gpu=\"0\"} 100\nDCGM_FI_DEV_FB_FREE_BYTES{gpu=\"0\"} 60\n" +
				"DCGM_FI_DEV_FB_RESERVED_BYTES{gpu=\"0\"} 4", usage{-1, -1, -1, 36, 100},
		},
		"memory whose parts are not all of it": {
			"DCGM_FI_DEV_FB_TOTAL{gpu=\"0\"} 100\nDCGM_FI_DEV_FB_FREE{gpu=\"0\"} 50\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} 40",
			usage{-1, -1, -1, 50 * mib, 100 * mib},
		},
		"a value repeated for the pods that share": {
			"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\"} 30\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"b\"} 30",
			usage{30, -1, -1, -1, -1},
		},
		"the largest value, and the least that is none": {
			"DCGM_FI_DEV_FB_USED_BYTES{gpu=\"0\"} 70368744177663\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 70368744177664\n" +
				"DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} -1",
			usage{-1, -1, -1, 1<<46 - 1, -1},
		},
		"free memory that is not reported": {`DCGM_FI_DEV_FB_USED_BYTES{gpu="0"} 40`, usage{-1, -1, -1, 40, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			devices, err := gpuusage.Parse("node", strings.NewReader(test.metrics+"\n"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(devices).To(HaveLen(1))
			g.Expect(of(devices[0].Usage)).To(Equal(test.want))
			g.Expect(of(gpuusage.Nodes(devices)[0].Usage)).To(Equal(test.want))
		})
	}
}

// An exporter that reports processes has the series of the GPU beside theirs.
func TestPartsBesideTheWhole(t *testing.T) {
	g := NewWithT(t)
	devices, err := gpuusage.Parse("node", strings.NewReader(`
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 70
DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="s1",namespace="b",vgpu="0"} 10
DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="s2",namespace="b",vgpu="1"} 60
DCGM_FI_DEV_FB_USED{gpu="0"} 20
DCGM_FI_DEV_FB_USED{gpu="0",pod="s1",namespace="b",vgpu="0"} 10
DCGM_FI_DEV_FB_USED{gpu="0",pod="s2",namespace="b",vgpu="1"} 10
DCGM_FI_DEV_FB_FREE{gpu="0"} 80
DCGM_FI_DEV_FB_FREE{gpu="0",pod="s1",namespace="b",vgpu="0"} 80
DCGM_FI_DEV_FB_FREE{gpu="0",pod="s2",namespace="b",vgpu="1"} 80
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(devices).To(HaveLen(1))
	g.Expect(of(devices[0].Usage)).To(Equal(usage{70, -1, -1, 20 * mib, 100 * mib}))
}

// Pods that share a GPU, MIG devices, and several GPUs of a pod.
func TestPods(t *testing.T) {
	const metrics = `
DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="s1",namespace="a",container="c"} 80
DCGM_FI_DEV_GPU_UTIL{gpu="1",pod="s1",namespace="a",container="c"} 40
DCGM_FI_DEV_FB_USED{gpu="0",pod="s1",namespace="a",container="c"} 100
DCGM_FI_DEV_FB_USED{gpu="1",pod="s1",namespace="a",container="c"} 50
DCGM_FI_DEV_FB_FREE{gpu="0",pod="s1",namespace="a",container="c"} 900
DCGM_FI_DEV_FB_FREE{gpu="1",pod="s1",namespace="a",container="c"} 950
DCGM_FI_DEV_POWER_USAGE{gpu="0",pod="s1",namespace="a",container="c"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="1",pod="s1",namespace="a",container="c"} 200
DCGM_FI_DEV_GPU_TEMP{gpu="0",pod="s1",namespace="a",container="c"} 50
DCGM_FI_DEV_GPU_TEMP{gpu="1",pod="s1",namespace="a",container="c"} 60
DCGM_FI_DEV_GPU_UTIL{gpu="2",pod="s2",namespace="b",vgpu="1"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="2",pod="s1",namespace="b",vgpu="0"} 70
DCGM_FI_DEV_FB_USED{gpu="2",pod="s2",namespace="b",vgpu="1"} 20
DCGM_FI_DEV_FB_USED{gpu="2",pod="s1",namespace="b",vgpu="0"} 10
DCGM_FI_DEV_POWER_USAGE{gpu="2",pod="s2",namespace="b",vgpu="1"} 100
DCGM_FI_DEV_POWER_USAGE{gpu="2",pod="s1",namespace="b",vgpu="0"} 100
DCGM_FI_DEV_GPU_TEMP{gpu="2",pod="s2",namespace="b",vgpu="1"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="2",pod="s1",namespace="b",vgpu="0"} 40
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3",GPU_I_ID="1",GPU_I_PROFILE="1g.10gb",pod="m",namespace="b"} 0.5
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3",GPU_I_ID="10",GPU_I_PROFILE="1g.10gb"} 0.1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3",GPU_I_ID="2",GPU_I_PROFILE="1g.10gb"} 0
DCGM_FI_DEV_FB_USED{gpu="3",GPU_I_ID="2",GPU_I_PROFILE="1g.10gb"} 0
DCGM_FI_DEV_FB_USED{gpu="3",GPU_I_ID="1",GPU_I_PROFILE="1g.10gb",pod="m",namespace="b"} 7
DCGM_FI_DEV_FB_USED{gpu="3",GPU_I_ID="10",GPU_I_PROFILE="1g.10gb"} 1
DCGM_FI_DEV_GPU_TEMP{gpu="10",UUID="GPU-k",modelName="A",pod_name="t",pod_namespace="z",container_name="y"} 20
DCGM_FI_DEV_GPU_TEMP{gpu="10",pod="t",namespace="z",container="x"} 20
DCGM_FI_DEV_GPU_TEMP{gpu="10",pod="u",namespace="y"} 20
DCGM_FI_DEV_FB_USED{gpu="4",GPU_I_ID="1"} 0
DCGM_FI_DEV_FB_USED{gpu="4",GPU_I_ID="2"} 0
DCGM_FI_DEV_POWER_USAGE{gpu="4",GPU_I_ID="1"} 4
DCGM_FI_DEV_POWER_USAGE{gpu="10"} 5
DCGM_FI_DEV_FB_USED{gpu="10"} 1
DCGM_FI_DEV_POWER_USAGE{gpu="3"} 90
DCGM_FI_DEV_GPU_TEMP{gpu="3"} 30
`
	g := NewWithT(t)
	devices, err := gpuusage.Parse("node", strings.NewReader(metrics))
	g.Expect(err).NotTo(HaveOccurred())
	type device = gpuusage.Device
	type holders = []gpuusage.Holder
	of1 := holders{{Namespace: "a", Pod: "s1", Container: "c"}}
	g.Expect(identities(devices)).To(Equal([]device{
		{Node: "node", GPU: "0", Holders: of1}, {Node: "node", GPU: "1", Holders: of1},
		{Node: "node", GPU: "2", Holders: holders{{Namespace: "b", Pod: "s1"}, {Namespace: "b", Pod: "s2"}}},
		{
			Node: "node", GPU: "3", MIGInstance: "1", MIGProfile: "1g.10gb",
			Holders: holders{{Namespace: "b", Pod: "m"}},
		},
		{Node: "node", GPU: "3", MIGInstance: "2", MIGProfile: "1g.10gb"},
		{Node: "node", GPU: "3", MIGInstance: "10", MIGProfile: "1g.10gb"},
		{Node: "node", GPU: "4", MIGInstance: "1"}, {Node: "node", GPU: "4", MIGInstance: "2"},
		{Node: "node", GPU: "10", UUID: "GPU-k", Product: "A", Holders: holders{
			{Namespace: "y", Pod: "u"}, {Namespace: "z", Pod: "t", Container: "x"}, {Namespace: "z", Pod: "t", Container: "y"},
		}},
	}))

	first, err := gpuusage.Parse("another", strings.NewReader("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 20\n"))
	g.Expect(err).NotTo(HaveOccurred())
	nodes := gpuusage.Nodes(append(devices, first...))
	g.Expect(nodes).To(HaveLen(2))
	g.Expect(nodes[0]).To(Equal(gpuusage.Node{Name: "another", GPUs: 1, Usage: first[0].Usage, Devices: first}))
	g.Expect(nodes[1]).To(And(HaveField("Name", "node"), HaveField("GPUs", 6), HaveField("Devices", devices)))
	// The GPUs are used by 80, 40, min(70+50, 100) and the mean of 50, 10 and 0 per cent; two do not report it.
	g.Expect(of(nodes[1].Usage)).To(Equal(usage{(80 + 40 + 100 + 20) / 4.0, 699, 60, 189 * mib, -1}))

	type pod struct {
		name, node string
		devices    int
		usage      usage
		parts      []device
	}
	var pods []pod
	for _, p := range gpuusage.Pods(devices) {
		pods = append(pods, pod{p.Namespace + "/" + p.Name, p.Node, p.Devices, of(p.Usage), identities(p.Parts)})
	}
	part := func(gpu, namespace, name, container string) device {
		return device{Node: "node", GPU: gpu, Holders: holders{{Namespace: namespace, Pod: name, Container: container}}}
	}
	mig, x, y := part("3", "b", "m", ""), part("10", "z", "t", "x"), part("10", "z", "t", "y")
	mig.MIGInstance, mig.MIGProfile = "1", "1g.10gb"
	u := part("10", "y", "u", "")
	for _, d := range []*device{&x, &y, &u} {
		d.UUID, d.Product = "GPU-k", "A"
	}
	g.Expect(pods).To(Equal([]pod{
		{"a/s1", "node", 2, usage{60, 500, 60, 150 * mib, 2000 * mib}, []device{part("0", "a", "s1", "c"),
			part("1", "a", "s1", "c")}},
		{"b/m", "node", 1, usage{50, -1, 30, 7 * mib, -1}, []device{mig}},
		{"b/s1", "node", 1, usage{70, -1, 40, 10 * mib, -1}, []device{part("2", "b", "s1", "")}},
		{"b/s2", "node", 1, usage{50, -1, 40, 20 * mib, -1}, []device{part("2", "b", "s2", "")}},
		{"y/u", "node", 1, usage{-1, -1, 20, -1, -1}, []device{u}},
		{"z/t", "node", 2, usage{-1, -1, 20, -1, -1}, []device{x, y}},
	}))
}

// identities returns what devices are, without their usage.
func identities(devices []gpuusage.Device) []gpuusage.Device {
	var found []gpuusage.Device
	for _, d := range devices {
		found = append(found, gpuusage.Device{
			Node: d.Node, GPU: d.GPU, UUID: d.UUID, MIGInstance: d.MIGInstance, MIGProfile: d.MIGProfile,
			Product: d.Product, Holders: d.Holders,
		})
	}
	return found
}

// A node without GPUs, and an answer that is not of an exporter.
func TestOtherAnswers(t *testing.T) {
	g := NewWithT(t)
	devices, err := gpuusage.Parse("node", strings.NewReader("go_goroutines 1\nDCGM_FI_DEV_GPU_UTIL{nvswitch=\"0\"} 1\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Marshal(gpuusage.Nodes(devices))).To(BeEquivalentTo("[]"))
	_, err = gpuusage.Parse("node", strings.NewReader("<html>"))
	g.Expect(err).To(MatchError(ContainSubstring("reading metrics")))
}
