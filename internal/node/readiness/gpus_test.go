package readiness_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// A loss of GPUs is found wherever it shows: in what the kubelet can give to pods, or between the bus and the driver.
func TestLostGPUs(t *testing.T) {
	type resources map[corev1.ResourceName][2]int64 // Capacity and allocatable.
	type want struct {
		total, usable   int
		reason, message string
	}
	unhealthy := func(message string) want { return want{8, 7, "GPUsUnhealthy", message} }
	missing := want{8, 7, "GPUsMissing", "7 of 8 GPUs usable: the driver does not see 1 of 8 GPUs on the PCI bus"}
	const oneOfEight = "7 of 8 GPUs usable: the device plugin reports 1 of 8 nvidia.com/gpu as unhealthy"
	tests := map[string]struct {
		resources resources
		bus       string
		count     string
		sharing   string
		product   string
		replicas  string
		mig       string
		want      want
	}{
		"all work": {
			resources: resources{"nvidia.com/gpu": {8, 8}}, bus: "8", count: "8", want: want{total: 8, usable: 8},
		},
		"only the kubelet counts": {resources: resources{"nvidia.com/gpu": {8, 7}}, want: unhealthy(oneOfEight)},
		"a GPU is unhealthy": {
			resources: resources{"nvidia.com/gpu": {8, 7}}, bus: "8", count: "8", sharing: "none", want: unhealthy(oneOfEight),
		},
		"GFD no longer counts it": {resources: resources{"nvidia.com/gpu": {8, 7}}, count: "7", want: unhealthy(oneOfEight)},
		"nor does the driver see it": {
			resources: resources{"nvidia.com/gpu": {8, 7}}, bus: "8", count: "7", want: unhealthy(oneOfEight),
		},
		"the device plugin started without it": {
			resources: resources{"nvidia.com/gpu": {7, 7}}, bus: "8", count: "7", want: missing,
		},
		"the device plugin started without it, and there is no GFD": {
			resources: resources{"nvidia.com/gpu": {7, 7}}, bus: "8", want: missing,
		},
		"a share of a GPU is unhealthy": {
			resources: resources{"nvidia.com/gpu": {32, 31}}, count: "8", sharing: "time-slicing",
			want: unhealthy("7 of 8 GPUs usable: the device plugin reports 1 of 32 nvidia.com/gpu as unhealthy"),
		},
		"all GPUs are shared": {
			resources: resources{"nvidia.com/gpu.shared": {32, 32}}, bus: "8", count: "8", sharing: "mps",
			want: want{total: 8, usable: 8},
		},
		"GPUs are shared, and nothing counts them": {
			resources: resources{"nvidia.com/gpu": {32, 32}}, want: want{total: 32, usable: 32},
		},
		"a MIG device is unhealthy": {
			resources: resources{"nvidia.com/gpu": {0, 0}, "nvidia.com/mig-1g.10gb": {56, 55}}, count: "8",
			want: unhealthy("7 of 8 GPUs usable: the device plugin reports 1 of 56 nvidia.com/mig-1g.10gb as unhealthy"),
		},
		"MIG devices of several sizes": {
			resources: resources{"nvidia.com/mig-2g.20gb": {8, 8}, "nvidia.com/mig-3g.40gb": {8, 8}}, bus: "8", count: "8",
			want: want{total: 8, usable: 8},
		},
		"MIG devices as GPUs: GFD counts them, not the GPUs": {
			resources: resources{"nvidia.com/gpu": {56, 56}}, bus: "8", count: "56", product: "NVIDIA-H100-MIG-1g.10gb",
			want: want{total: 8, usable: 8},
		},
		"the device plugin is to advertise only some GPUs": {
			resources: resources{"nvidia.com/gpu": {6, 6}}, bus: "8", count: "8", want: want{total: 8, usable: 8},
		},
		"GPUs were partitioned: the kubelet keeps the capacity for some minutes": {
			resources: resources{"nvidia.com/gpu": {1, 0}, "nvidia.com/mig-1g.10gb": {7, 7}}, count: "1", replicas: "0",
			want: want{total: 1, usable: 1},
		},
		"GPUs were partitioned otherwise": {
			resources: resources{"nvidia.com/mig-3g.40gb": {2, 0}, "nvidia.com/mig-1g.10gb": {7, 7}}, count: "1",
			replicas: "0", mig: "mig-1g.10gb", want: want{total: 1, usable: 1},
		},
		"all devices of one size are unhealthy": {
			resources: resources{"nvidia.com/mig-3g.40gb": {4, 0}, "nvidia.com/mig-1g.10gb": {4, 4}}, count: "4",
			replicas: "0", mig: "mig-3g.40gb", want: want{
				4, 2, "GPUsUnhealthy", "2 of 4 GPUs usable: the device plugin reports 4 of 4 nvidia.com/mig-3g.40gb as unhealthy",
			},
		},
		"the GPUs are whole again": {
			resources: resources{"nvidia.com/gpu": {1, 1}, "nvidia.com/mig-1g.10gb": {7, 0}}, count: "1", replicas: "1",
			want: want{total: 1, usable: 1},
		},
		"the shares have got their own name": {
			resources: resources{"nvidia.com/gpu": {1, 0}, "nvidia.com/gpu.shared": {2, 2}}, count: "1", replicas: "2",
			sharing: "time-slicing", want: want{total: 1, usable: 1},
		},
		"whole GPUs are unhealthy beside MIG devices": {
			resources: resources{"nvidia.com/gpu": {2, 0}, "nvidia.com/mig-7g.80gb": {2, 2}}, count: "4", replicas: "1",
			want: want{
				4, 2, "GPUsUnhealthy", "2 of 4 GPUs usable: the device plugin reports 2 of 2 nvidia.com/gpu as unhealthy",
			},
		},
		"two models, of which GFD counts one": {
			resources: resources{"nvidia.com/gpu": {3, 3}}, bus: "3", count: "1", want: want{total: 3, usable: 3},
		},
		"two models that are shared": {
			resources: resources{"nvidia.com/gpu": {12, 12}}, bus: "3", count: "2", sharing: "time-slicing",
			want: want{total: 3, usable: 3},
		},
		"no GPU is advertised yet": {bus: "8", count: "8"},
		"counts that are no numbers": {
			resources: resources{"nvidia.com/gpu": {8, 8}}, bus: "x", count: "-1", want: want{total: 8, usable: 8},
		},
		"other resources": {resources: resources{"nvidia.com/hostdev": {2, 1}}},
		"more allocatable than capacity": {
			resources: resources{"nvidia.com/gpu": {4, 8}}, want: want{total: 4, usable: 4},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{
						"nvidia.com/gpu.count": test.count, "nvidia.com/gpu.sharing-strategy": test.sharing,
						"nvidia.com/gpu.product": test.product, "nvidia.com/gpu.replicas": test.replicas,
						"nvidia.com/" + test.mig + ".count": "1",
					},
					Annotations: map[string]string{"nvidia.com/gpu-operator.gpus-on-bus": test.bus},
				},
				Status: corev1.NodeStatus{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}},
			}
			for name, counts := range test.resources {
				node.Status.Capacity[name] = *resource.NewQuantity(counts[0], resource.DecimalSI)
				node.Status.Allocatable[name] = *resource.NewQuantity(counts[1], resource.DecimalSI)
			}
			gpus := readiness.CountGPUs(node, true, 0)
			verdict := gpus.Verdict(intstr.FromString("100%"))
			got := want{gpus.Total, gpus.Usable, verdict.Reason, verdict.Message}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if isReady := verdict.State == readiness.Ready; isReady != (test.want.reason == "") {
				t.Errorf("state %v, reason %q", verdict.State, verdict.Reason)
			}
		})
	}
}

// Shares do not count as GPUs, be their number from the node's label or from its configuration. The label wins.
func TestSharesAreNoGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		labels   map[string]string
		replicas int
		capacity int64
		want     int
	}{
		"by the configuration":           {nil, 16384, 131072, 8},
		"by GPU Feature Discovery":       {map[string]string{"nvidia.com/gpu.replicas": "16384"}, 0, 131072, 8},
		"not yet as it is configured":    {map[string]string{"nvidia.com/gpu.replicas": "1"}, 4, 8, 8},
		"MIG devices that pods share":    {map[string]string{"nvidia.com/gpu.product": "A-MIG-1g.5gb"}, 4, 28, 7},
		"GPUs that are advertised whole": {nil, 0, 8, 8},
		"another number than configured": {nil, 3, 8, 8},
	} {
		t.Run(name, func(t *testing.T) {
			all := corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(test.capacity, resource.DecimalSI)}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels},
				Status:     corev1.NodeStatus{Capacity: all, Allocatable: all},
			}
			if gpus := readiness.CountGPUs(node, true, test.replicas); gpus.Total != test.want || gpus.Usable != test.want {
				t.Errorf("%d of %d GPUs usable, want %d", gpus.Usable, gpus.Total, test.want)
			}
		})
	}
}

// What can be no number of devices, as anyone who may write Nodes can write it, makes no count overflow or wrap, and
// hides no GPU that the kubelet counts.
func TestImplausibleCounts(t *testing.T) {
	const eight, most = "8", "9223372036854775807"
	type given struct {
		capacity      map[corev1.ResourceName]string
		labels        map[string]string
		bus           string
		total, usable int
	}
	count := func(value string) map[string]string { return map[string]string{"nvidia.com/gpu.count": value} }
	gpus := map[corev1.ResourceName]string{"nvidia.com/gpu": eight}
	huge := map[corev1.ResourceName]string{"nvidia.com/gpu": "1e18"}
	for name, test := range map[string]given{
		"a huge count":    {gpus, count("99999999999"), "", 8, 8},
		"a larger count":  {gpus, count(most), "", 8, 8},
		"a count beyond":  {gpus, count(most + "0"), "", 8, 8},
		"a negative one":  {gpus, count("-1"), "", 8, 8},
		"no number":       {gpus, count("8.0"), "", 8, 8},
		"huge on the bus": {gpus, nil, "4294967304", 8, 8},
		"a huge count of shared GPUs": {
			gpus,
			map[string]string{"nvidia.com/gpu.count": "4611686018427387905", "nvidia.com/gpu.replicas": "4"}, "", 2, 2,
		},
		"replicas that overflow": {
			gpus,
			map[string]string{"nvidia.com/gpu.count": eight, "nvidia.com/gpu.replicas": most}, "", 8, 8,
		},
		"a huge resource":                       {huge, nil, "", math.MaxInt32, math.MaxInt32},
		"a huge resource of 16 GPUs on the bus": {huge, nil, "16", 16, 16},
		"a huge resource of 16 shared GPUs": {
			huge, map[string]string{"nvidia.com/gpu.count": "16", "nvidia.com/gpu.sharing-strategy": "mps"}, "", 16, 16,
		},
		"resources whose sum wraps to 0": {map[corev1.ResourceName]string{
			"nvidia.com/gpu": most, "nvidia.com/mig-1g.5gb": most, "nvidia.com/mig-2g.10gb": "2",
		}, nil, "", math.MaxInt32, math.MaxInt32},
		"many shares of 8 GPUs": {
			map[corev1.ResourceName]string{"nvidia.com/gpu": "131072"},
			map[string]string{
				"nvidia.com/gpu.count": eight, "nvidia.com/gpu.replicas": "16384", "nvidia.com/gpu.sharing-strategy": "mps",
			}, "", 8, 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Labels: test.labels, Annotations: map[string]string{"nvidia.com/gpu-operator.gpus-on-bus": test.bus},
			}}
			node.Status.Capacity = corev1.ResourceList{}
			for name, quantity := range test.capacity {
				node.Status.Capacity[name] = resource.MustParse(quantity)
			}
			node.Status.Allocatable = node.Status.Capacity
			got := readiness.CountGPUs(node, test.bus != "", 0)
			if got.Total != test.total || got.Usable != test.usable {
				t.Errorf("%d of %d usable, want %d of %d", got.Usable, got.Total, test.usable, test.total)
			}
			if claimed := readiness.ClaimableGPUs(node, test.bus != ""); claimed.Total > math.MaxInt32 || claimed.Total < 0 {
				t.Errorf("%d by claims", claimed.Total)
			}
			if offer := readiness.Offer(node, 0); strings.Contains(offer, ": -") {
				t.Errorf("offers %s", offer)
			}
		})
	}
}

// The node is ready if enough GPUs are left; the reason of the loss stays.
func TestRequiredGPUs(t *testing.T) {
	gpus := func(total, usable int64) readiness.GPUs {
		return readiness.CountGPUs(&corev1.Node{Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(total, resource.DecimalSI)},
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(usable, resource.DecimalSI)},
		}}, true, 0)
	}
	tests := map[string]struct {
		total, usable int64
		required      intstr.IntOrString
		want          readiness.State
	}{
		"all":                                {8, 7, intstr.FromString("100%"), readiness.Failed},
		"none":                               {8, 1, intstr.FromInt32(0), readiness.Ready},
		"no percent":                         {8, 1, intstr.FromString("0%"), readiness.Ready},
		"seven":                              {8, 7, intstr.FromInt32(7), readiness.Ready},
		"seven, and six are left":            {8, 6, intstr.FromInt32(7), readiness.Failed},
		"a number as text":                   {8, 6, intstr.FromString("7"), readiness.Failed},
		"three quarters":                     {8, 6, intstr.FromString("75%"), readiness.Ready},
		"a percentage is rounded up":         {8, 6, intstr.FromString("76%"), readiness.Failed},
		"more than the node has means all":   {4, 3, intstr.FromInt32(8), readiness.Failed},
		"an empty value is that of no field": {8, 8, intstr.FromString(""), readiness.Ready},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := gpus(test.total, test.usable).Verdict(test.required)
			if got.State != test.want {
				t.Errorf("got %+v", got)
			}
			if test.usable < test.total && got.Reason != "GPUsUnhealthy" {
				t.Errorf("reason %q", got.Reason)
			}
		})
	}
}

// The validator may know of lost GPUs that the device plugin still offers.
func TestGPUsLostSinceTheValidation(t *testing.T) {
	for count, test := range map[int]struct {
		usable  int
		message string
	}{
		0: {8, ""}, 2: {6, "6 of 8 GPUs usable: 2 are gone"}, 9: {0, "0 of 8 GPUs usable: 2 are gone"},
	} {
		eight := corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(8, resource.DecimalSI)}
		node := &corev1.Node{Status: corev1.NodeStatus{Capacity: eight, Allocatable: eight}}
		gpus := readiness.CountGPUs(node, true, 0).WithLost(count, "2 are gone")
		if got := gpus.Verdict(intstr.FromInt32(8)); gpus.Usable != test.usable || got.Message != test.message ||
			(got.Reason == "GPUsMissing") != (count > 0) {
			t.Errorf("%d lost: %d usable, got %+v", count, gpus.Usable, got)
		}
	}
	if none := (readiness.GPUs{}).WithLost(1, "gone"); !reflect.DeepEqual(none, readiness.GPUs{}) {
		t.Errorf("got %+v", none)
	}
}

// The health agent may know of a lost GPU before the device plugin does.
func TestFaultsOfTheHealthAgent(t *testing.T) {
	since := time.Date(2026, 11, 25, 12, 3, 0, 0, time.UTC)
	lost := gpuhealth.Fault{PCI: "0000:1b:00.0", Class: gpuhealth.Reboot, Reason: "GPULost", Xid: 79, Since: since}
	reset := gpuhealth.Fault{PCI: "0000:3b:00.0", Class: gpuhealth.Reset, Reason: "NVLinkError", Xid: 74, Since: since}
	const lostText = "GPU 0000:1b:00.0 lost since 2026-11-25T12:03:00Z, Xid 79"
	tests := map[string]struct {
		usable int64
		faults []gpuhealth.Fault
		left   int
		want   string
	}{
		"none": {usable: 8, left: 8},
		"a lost GPU that the kubelet still counts": {
			usable: 8, faults: []gpuhealth.Fault{lost}, left: 7, want: "7 of 8 GPUs usable: " + lostText,
		},
		"a lost GPU that the kubelet does not count": {
			usable: 7, faults: []gpuhealth.Fault{lost}, left: 7,
			want: "7 of 8 GPUs usable: " + lostText + "; the device plugin reports 1 of 8 nvidia.com/gpu as unhealthy",
		},
		"a GPU that needs a reset, and that the kubelet counts": {usable: 8, faults: []gpuhealth.Fault{reset}, left: 8},
		"a GPU that needs a reset, and that the kubelet does not count": {
			usable: 7, faults: []gpuhealth.Fault{reset}, left: 7,
			want: "7 of 8 GPUs usable: GPU 0000:3b:00.0 needs a reset since 2026-11-25T12:03:00Z, Xid 74; " +
				"the device plugin reports 1 of 8 nvidia.com/gpu as unhealthy",
		},
		"more lost GPUs than the node has": {
			usable: 1, faults: slices.Repeat([]gpuhealth.Fault{lost}, 9), left: 0,
			want: "0 of 8 GPUs usable: " + strings.Repeat(lostText+"; ", 3) + "and 6 more; " +
				"the device plugin reports 7 of 8 nvidia.com/gpu as unhealthy",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gpus := readiness.CountGPUs(&corev1.Node{Status: corev1.NodeStatus{
				Capacity:    corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(8, resource.DecimalSI)},
				Allocatable: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(test.usable, resource.DecimalSI)},
			}}, true, 0).WithFaults(gpuhealth.Report{Faults: test.faults})
			got := gpus.Verdict(intstr.FromString("100%"))
			if gpus.Usable != test.left || got.Message != test.want || (got.State == readiness.Failed) != (test.left < 8) {
				t.Errorf("%d usable, got %+v, want %q", gpus.Usable, got, test.want)
			}
		})
	}
	t.Run("on a node that advertises no GPUs", func(t *testing.T) {
		gpus := readiness.CountGPUs(&corev1.Node{}, true, 0).WithFaults(gpuhealth.Report{Faults: []gpuhealth.Fault{lost}})
		if gpus.Total != 0 || gpus.Usable != 0 || gpus.Verdict(intstr.FromString("100%")) != (readiness.Verdict{}) {
			t.Errorf("got %+v", gpus)
		}
	})
}
