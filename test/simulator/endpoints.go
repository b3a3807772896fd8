package simulator

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// exporterPort is the port of the DCGM exporter.
const exporterPort = "9400"

// What an idle GPU draws and how warm it is, and what a busy one adds for each percent of its utilization.
const (
	idleWatts, wattsPerPercent     = 70, 6
	idleDegrees, degreesPerPercent = 30, 0.4
)

// endpoints are the servers of the kubelets of all nodes, for logs, and of all DCGM exporters. The API server's proxy
// names the pod in both requests.
type endpoints struct {
	address           string
	kubelet, exporter *httptest.Server
}

// ReachableAddress returns an address of this computer for Options.Address: the API server connects to no loopback and
// no link-local address. It is empty on a computer without another one.
func ReachableAddress() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, address := range all {
		if network, is := address.(*net.IPNet); is && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return ""
}

// CanServe returns why logs and figures cannot be served at this address; nil if they can: another program may use the
// exporter's port.
func CanServe(address string) error {
	server, err := newServer(address, exporterPort, nil)
	if err == nil {
		_ = server.Listener.Close()
	}
	return err
}

// serve starts the servers. Without an address there are none.
func (s *Simulator) serve(address string) error {
	if address == "" {
		return nil
	}
	exporter, err := newServer(address, exporterPort, s.serveMetrics)
	if err != nil {
		return err
	}
	kubelet, err := newServer(address, "0", s.serveLog)
	if err != nil {
		exporter.Close()
		return err
	}
	exporter.Start()
	kubelet.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	kubelet.StartTLS()
	s.endpoints = endpoints{address: address, kubelet: kubelet, exporter: exporter}
	return nil
}

func newServer(address, port string, handle http.HandlerFunc) (*httptest.Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		return nil, fmt.Errorf("serve logs and metrics of simulated nodes: %w; end what uses the port", err)
	}
	server := httptest.NewUnstartedServer(handle)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	return server, nil
}

// close ends the servers.
func (e endpoints) close() {
	for _, server := range []*httptest.Server{e.kubelet, e.exporter} {
		if server != nil {
			server.CloseClientConnections()
			server.Close()
		}
	}
}

// publish gives a node the address of its kubelet's server.
func (e endpoints) publish(node *corev1.Node) {
	if e.kubelet == nil {
		return
	}
	node.Status.Addresses[0].Address = e.address
	port := e.kubelet.Listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // It is of TCP.
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
}

// newPodAddress returns the address of a new pod: the exporters of all nodes have the one of their server.
func (s *Simulator) newPodAddress(pod *corev1.Pod) string {
	if s.endpoints.exporter != nil && appOf(pod.Labels) == appExporter {
		return s.endpoints.address
	}
	return podAddress(s.addresses.Add(1))
}

// podNamed returns a pod that the simulator has seen; nil if there is none.
func (s *Simulator) podNamed(namespace, name string) *corev1.Pod {
	object, _, _ := s.podInformer.GetStore().GetByKey(namespace + "/" + name)
	pod, _ := object.(*corev1.Pod)
	return pod
}

// serveLog answers GET /containerLogs/NAMESPACE/POD/CONTAINER with what the container has printed: the output of its
// processes, or of a simulated one the message of its failure.
func (s *Simulator) serveLog(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != len([]string{"", "containerLogs", "namespace", "pod", "container"}) {
		http.NotFound(w, r)
		return
	}
	pod := s.podNamed(parts[2], parts[3])
	if pod == nil {
		http.NotFound(w, r)
		return
	}
	if machine := s.Host(pod.Spec.NodeName); machine != nil {
		if text, err := machine.Log(appOf(pod.Labels), parts[4]); err == nil {
			_, _ = io.WriteString(w, text)
			return
		}
	}
	fmt.Fprintln(w, cmp.Or(failureOf(pod, parts[4]), "simulated: this container prints nothing"))
}

// failureOf returns the message of the last failure of a container; empty if it has not failed.
func failureOf(pod *corev1.Pod, container string) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, ended := range []*corev1.ContainerStateTerminated{
			status.State.Terminated, status.LastTerminationState.Terminated,
		} {
			if status.Name == container && ended != nil && ended.ExitCode != 0 {
				return ended.Message
			}
		}
	}
	return ""
}

// serveMetrics answers for the exporter's pod that the API server was asked for.
func (s *Simulator) serveMetrics(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.Header.Get("X-Forwarded-Uri"), "/namespaces/")
	parts := strings.Split(path, "/")
	if len(parts) < len([]string{"namespace", "pods", "pod:port"}) {
		http.NotFound(w, r)
		return
	}
	name, _, _ := strings.Cut(parts[2], ":")
	pod := s.podNamed(parts[0], name)
	if pod == nil {
		http.NotFound(w, r)
		return
	}
	node, err := s.nodeLister.Get(pod.Spec.NodeName)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	pods, err := s.podsOn(node.Name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, metricsOf(s.newNode(node), node, pods))
}

// metricsOf returns the metrics of the GPUs of a node: those that running pods have are busy, the others idle.
func metricsOf(n *node, object *corev1.Node, pods []*corev1.Pod) string {
	n.describe(object)
	users := usersOf(pods)
	memory := models[n.model].memory
	text := &strings.Builder{}
	for gpu := range int(n.gpus) {
		labels, busy := fmt.Sprintf(`gpu="%d",modelName=%q,Hostname=%q`, gpu, n.model, n.name), 0
		if gpu < len(users) {
			labels += users[gpu]
			busy = 80 + (7*gpu+11)%20
		}
		used := memory * busy / 100
		for _, metric := range []struct {
			name  string
			value any
		}{
			{"GPU_UTIL", busy}, {"FB_USED", used}, {"FB_FREE", memory - used},
			{"POWER_USAGE", idleWatts + wattsPerPercent*busy}, {"GPU_TEMP", idleDegrees + degreesPerPercent*float64(busy)},
		} {
			fmt.Fprintf(text, "DCGM_FI_DEV_%s{%s} %v\n", metric.name, labels, metric.value)
		}
	}
	return text.String()
}

// usersOf returns the labels of the pods that have GPUs, once for each GPU, by the names of the pods.
func usersOf(pods []*corev1.Pod) []string {
	var users []string
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, pod := range sorted {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for i := range pod.Spec.Containers {
			container := &pod.Spec.Containers[i]
			for name, quantity := range container.Resources.Limits {
				if isGPU(name) {
					of := fmt.Sprintf(`,namespace=%q,pod=%q,container=%q`, pod.Namespace, pod.Name, container.Name)
					users = append(users, slices.Repeat([]string{of}, int(quantity.Value()))...)
				}
			}
		}
	}
	return users
}
