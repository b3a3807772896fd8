package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	issuer = "https://kubernetes.default.svc"

	// SimulatedNodeAnnotation marks, with SimulatedNodeValue, the nodes that kwok keeps alive. kwok ignores all other
	// nodes, so that a cluster can have real ones too.
	SimulatedNodeAnnotation = "kwok.x-k8s.io/node"
	// SimulatedNodeValue is the value of SimulatedNodeAnnotation.
	SimulatedNodeValue = "fake"
)

// ServiceRange is the address range of Services. Its first address is the API server's own.
var ServiceRange = netip.MustParsePrefix("10.0.0.0/16")

// gcEnv returns variables that make the programs of the control plane collect garbage rarely: with a thousand nodes
// collections would take a third of their CPU, and memory is available. An untuned control plane uses Go's defaults.
func (c *Cluster) gcEnv() map[string]string {
	if c.untuned {
		// Empty variables are the defaults, also if this program has others.
		return map[string]string{"GOGC": "", "GOMEMLIMIT": ""}
	}
	return map[string]string{"GOGC": "400", "GOMEMLIMIT": "5GiB"}
}

// tunedControllerFlags make the controller-manager save CPU.
var tunedControllerFlags = []string{
	// Each of them processes all nodes, repeatedly while pods start.
	"--concurrent-daemonset-syncs=1",
	// Each of a thousand starting pods of one Service would cause the endpoints to be recomputed.
	"--endpointslice-updates-batch-period=1s",
	"--endpoint-updates-batch-period=1s",
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

//go:embed manifests
var manifests embed.FS

// writeManifests writes the files that the processes read to dir.
func writeManifests(dir string) error {
	for _, name := range []string{"audit-policy.yaml", "node-initialize.yaml", "scheduler.yaml"} {
		data, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return fmt.Errorf("read embedded manifest: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

// run starts one program of the control plane in the cluster's folder.
func (c *Cluster) run(name string, args ...string) (*process, error) {
	cmd := exec.Command(c.release.program(name), args...)
	cmd.Dir = c.dir
	cmd.Env = os.Environ()
	for name, value := range c.gcEnv() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return startProcess(cmd, filepath.Join(c.LogDir, name+".log"))
}

// set configures flags by their names.
func set(arguments *envtest.Arguments, flags map[string]string) {
	for name, value := range flags {
		arguments.Set(name, value)
	}
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	s, err := c.newServer("etcd")
	if err != nil {
		return err
	}
	etcd := &envtest.Etcd{
		Path: s.launcher.Path, Out: s.log, Err: s.log, StartTimeout: envtestLimit,
		DataDir: filepath.Join(c.dir, "etcd"),
		URL:     &url.URL{Scheme: "http", Host: c.etcdPort.address().String()},
	}
	set(etcd.Configure(), map[string]string{
		// This program keeps the port reserved, so that no other can take it.
		"socket-reuse-port": "true",
		// A Unix socket in the cluster's folder: there are no other members.
		"listen-peer-urls": "unix://etcd-peer.sock",
		// A test cluster need not survive a crash of the machine, so do not wait for the disk.
		"unsafe-no-fsync":     "true",
		"quota-backend-bytes": "4294967296",
		"log-level":           "warn",
	})
	s.program, c.etcd = etcd, s
	return s.start(ctx)
}

// StartAPIServer starts the API server, also after KillAPIServer, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if c.apiServer == nil {
		if c.apiServer, err = c.newAPIServer(); err != nil {
			return err
		}
	}
	if err := c.apiServer.start(ctx); err != nil {
		return err
	}
	return c.apiServer.waitFor(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// KillAPIServer kills the API server, for tests of an outage.
func (c *Cluster) KillAPIServer() { c.apiServer.kill() }

// FreezeAPIServer stops the API server from responding, with all connections open, until ThawAPIServer or
// KillAPIServer.
func (c *Cluster) FreezeAPIServer() error { return c.apiServer.launcher.Signal(syscall.SIGSTOP) }

// ThawAPIServer resumes the API server after FreezeAPIServer.
func (c *Cluster) ThawAPIServer() error { return c.apiServer.launcher.Signal(syscall.SIGCONT) }

// FreezeClient suspends kube-controller-manager, kube-scheduler or kwok until thaw is called.
func (c *Cluster) FreezeClient(name string) (thaw func(), err error) {
	for _, p := range c.clients {
		if p.name == name {
			p.signal(syscall.SIGSTOP)
			return func() { p.signal(syscall.SIGCONT) }, nil
		}
	}
	return nil, fmt.Errorf("freeze %s: the program is not running", name)
}

// restart ends kube-controller-manager, kube-scheduler or kwok, calls a function, and starts the program again, also if
// the function fails.
func (c *Cluster) restart(name string, between func() error) error {
	i := slices.IndexFunc(c.clients, func(p *process) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("restart %s: the program is not running", name)
	}
	ended := c.clients[i]
	ended.kill()
	err := between()
	again, failed := c.run(name, ended.cmd.Args[1:]...)
	if failed != nil {
		return errors.Join(err, failed)
	}
	c.clients[i] = again
	return err
}

// RestartClients restarts kube-controller-manager, kube-scheduler and kwok, as after an outage that outlasted their
// leases. Otherwise their watches wait up to a minute before they reconnect.
func (c *Cluster) RestartClients(ctx context.Context) error {
	for _, p := range c.clients {
		if err := c.restart(p.name, func() error { return nil }); err != nil {
			return err
		}
	}
	return c.waitForControllers(ctx)
}

// newAPIServer prepares an API server that can be restarted at its port.
func (c *Cluster) newAPIServer() (*server, error) {
	s, err := c.newServer("kube-apiserver")
	if err != nil {
		return nil, err
	}
	apiServer := &envtest.APIServer{
		Path: s.launcher.Path, Out: s.log, Err: s.log, StartTimeout: envtestLimit,
		CertDir: c.dir,
		EtcdURL: &url.URL{Scheme: "http", Host: c.etcdPort.address().String()},
		SecureServing: envtest.SecureServing{
			ListenAddr: envtest.ListenAddr{Address: c.address.String(), Port: strconv.Itoa(int(c.port.number))},
		},
	}
	set(apiServer.Configure(), c.apiServerFlags())
	if !c.bare {
		// envtest disables the admission plugin ServiceAccount, since nothing creates the accounts that pods need. Here the
		// controller-manager does.
		apiServer.Configure().Disable("disable-admission-plugins")
	}
	s.program = apiServer
	return s, nil
}

// apiServerFlags sets the flags in addition to envtest's own, which enable RBAC.
func (c *Cluster) apiServerFlags() map[string]string {
	// Loopback is not a valid endpoint of the kubernetes Service; with an API server on loopback no pod calls it.
	reconciler := "none"
	if !c.address.IsLoopback() {
		reconciler = "lease"
	}
	flags := map[string]string{
		"advertise-address": c.address.String(),
		// This program keeps the port reserved, so that no other can take it.
		"permit-port-sharing":              "true",
		"token-auth-file":                  tokenFile,
		"service-account-issuer":           issuer,
		"service-account-key-file":         serviceAccountKey,
		"service-account-signing-key-file": serviceAccountKey,
		"service-cluster-ip-range":         ServiceRange.String(),
		"endpoint-reconciler-type":         reconciler,
		// Real nodes are reached by address: there is no DNS.
		"kubelet-preferred-address-types": "InternalIP",
		"audit-policy-file":               "audit-policy.yaml",
		"audit-log-path":                  c.AuditLog,
		"audit-log-mode":                  "blocking",
		// Rotation would move lines away from a reader.
		"audit-log-maxsize":              "0",
		"max-requests-inflight":          "3000",
		"max-mutating-requests-inflight": "1500",
		"profiling":                      "false",
	}
	if len(c.apis) > 0 {
		flags["runtime-config"] = strings.Join(c.apis, "=true,") + "=true"
	}
	if len(c.gates) > 0 {
		flags["feature-gates"] = c.featureGates()
	}
	return flags
}

// featureGates returns the value of the flag feature-gates.
func (c *Cluster) featureGates() string { return strings.Join(c.gates, "=true,") + "=true" }

// startClients starts the processes that need an API server and waits until the controllers work.
func (c *Cluster) startClients(ctx context.Context) error {
	commands := [][]string{
		{"kube-controller-manager",
			"--kubeconfig=" + c.kubeconfig(userControllerManager),
			"--service-account-private-key-file=" + serviceAccountKey,
			"--root-ca-file=" + servingCert,
			"--secure-port=0",
			"--leader-elect=false",
			"--kube-api-qps=2000",
			"--kube-api-burst=4000",
			"--concurrent-gc-syncs=10",
			"--profiling=false",
		},
		{"kube-scheduler", "--config=scheduler.yaml", "--secure-port=0", "--profiling=false"},
		{"kwok",
			"--config=" + strings.Join(append([]string{"node-initialize.yaml"}, c.stages...), ","),
			"--kubeconfig=" + c.kubeconfig(userKwok),
			fmt.Sprintf("--manage-nodes-with-annotation-selector=%s=%s", SimulatedNodeAnnotation, SimulatedNodeValue),
			"--node-lease-duration-seconds=40",
		},
	}
	if c.realNodes {
		commands = commands[:2]
	}
	if !c.untuned {
		commands[0] = append(commands[0], tunedControllerFlags...)
	}
	for _, command := range commands {
		if len(c.gates) > 0 && command[0] != "kwok" {
			command = append(command, "--feature-gates="+c.featureGates())
		}
		p, err := c.run(command[0], command[1:]...)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, p)
	}
	return c.waitForControllers(ctx)
}

// waitForControllers waits for a ServiceAccount, which only the controller-manager creates; it serves no health port.
func (c *Cluster) waitForControllers(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.SimulatorConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	err = c.clients[0].waitFor(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for _, p := range c.clients {
		err = errors.Join(err, p.endedEarly())
	}
	return err
}
