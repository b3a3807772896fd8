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
	"strconv"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	issuer = "https://kubernetes.default.svc"

	// SimulatedNodeAnnotation marks, with SimulatedNodeValue, the nodes that kwok keeps alive. All
	// other nodes are left alone, so that a real one can stand beside them.
	SimulatedNodeAnnotation = "kwok.x-k8s.io/node"
	// SimulatedNodeValue is the value of SimulatedNodeAnnotation.
	SimulatedNodeValue = "fake"
)

// ServiceRange is where Services have their addresses. Its first is that of the API server's own.
var ServiceRange = netip.MustParsePrefix("10.0.0.0/16")

// sparingly has the programs of the control plane collect garbage rarely: with a thousand nodes that takes a third of
// their CPU otherwise, and there is memory.
var sparingly = map[string]string{"GOGC": "400", "GOMEMLIMIT": "5GiB"}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

//go:embed manifests
var manifests embed.FS

// writeManifests puts the files that the processes read into dir.
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
	for name, value := range sparingly {
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
		// The port stays reserved by this program, so that no other can take it.
		"socket-reuse-port": "true",
		// A Unix socket in the cluster's folder: there are no other members.
		"listen-peer-urls": "unix://etcd-peer.sock",
		// A crash of the machine may lose a test cluster; waiting for the disk would only cost time.
		"unsafe-no-fsync":     "true",
		"quota-backend-bytes": "4294967296",
		"log-level":           "warn",
	})
	s.program, c.etcd = etcd, s
	return s.start(ctx)
}

// StartAPIServer starts the API server, also again after KillAPIServer, and waits until it is ready.
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

// KillAPIServer ends the API server at once, for tests of an outage.
func (c *Cluster) KillAPIServer() { c.apiServer.kill() }

// FreezeAPIServer keeps the API server from answering, with all connections open, until ThawAPIServer or KillAPIServer.
func (c *Cluster) FreezeAPIServer() error { return c.apiServer.launcher.Signal(syscall.SIGSTOP) }

// ThawAPIServer lets the API server go on after FreezeAPIServer.
func (c *Cluster) ThawAPIServer() error { return c.apiServer.launcher.Signal(syscall.SIGCONT) }

// FreezeFollower keeps kube-controller-manager, kube-scheduler or kwok from acting until thaw is called.
func (c *Cluster) FreezeFollower(name string) (thaw func(), err error) {
	for _, p := range c.followers {
		if p.name == name {
			p.signal(syscall.SIGSTOP)
			return func() { p.signal(syscall.SIGCONT) }, nil
		}
	}
	return nil, fmt.Errorf("freeze %s: no such program runs", name)
}

// RestartFollowers ends kube-controller-manager, kube-scheduler and kwok and starts them again, as after an outage that has
// outlasted their leases. Otherwise their watches wait up to a minute before they begin again.
func (c *Cluster) RestartFollowers(ctx context.Context) error {
	for i, p := range c.followers {
		p.kill()
		again, err := c.run(p.name, p.cmd.Args[1:]...)
		if err != nil {
			return err
		}
		c.followers[i] = again
	}
	return c.waitForControllers(ctx)
}

// newAPIServer prepares an API server that can be started again at its port.
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
		// envtest turns admission by ServiceAccount off, since nothing creates those that pods need. Here the
		// controller-manager does.
		apiServer.Configure().Disable("disable-admission-plugins")
	}
	s.program = apiServer
	return s, nil
}

// apiServerFlags are those beside envtest's own, which has RBAC on.
func (c *Cluster) apiServerFlags() map[string]string {
	// Loopback is no valid endpoint of the kubernetes Service; where the API server is there, no pod calls it.
	reconciler := "none"
	if !c.address.IsLoopback() {
		reconciler = "lease"
	}
	return map[string]string{
		"advertise-address": c.address.String(),
		// The port stays reserved by this program, so that no other can take it.
		"permit-port-sharing":              "true",
		"token-auth-file":                  tokenFile,
		"service-account-issuer":           issuer,
		"service-account-key-file":         serviceAccountKey,
		"service-account-signing-key-file": serviceAccountKey,
		"service-cluster-ip-range":         ServiceRange.String(),
		"endpoint-reconciler-type":         reconciler,
		// A real node is found by its address: there is no DNS.
		"kubelet-preferred-address-types": "InternalIP",
		"audit-policy-file":               "audit-policy.yaml",
		"audit-log-path":                  c.AuditLog,
		"audit-log-mode":                  "blocking",
		// Rotation would move lines away under a reader.
		"audit-log-maxsize":              "0",
		"max-requests-inflight":          "3000",
		"max-mutating-requests-inflight": "1500",
		"profiling":                      "false",
	}
}

// startFollowers starts what needs an API server and waits until the controllers work.
func (c *Cluster) startFollowers(ctx context.Context) error {
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
			// Each looks at all nodes, again and again while pods come up.
			"--concurrent-daemonset-syncs=1",
			// Of a thousand pods of one Service that come up, each would have the endpoints computed anew.
			"--endpointslice-updates-batch-period=1s",
			"--endpoint-updates-batch-period=1s",
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
	for _, command := range commands {
		p, err := c.run(command[0], command[1:]...)
		if err != nil {
			return err
		}
		c.followers = append(c.followers, p)
	}
	return c.waitForControllers(ctx)
}

// waitForControllers waits for a ServiceAccount, which only the controller-manager creates; it has
// no port to ask.
func (c *Cluster) waitForControllers(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.SimulatorConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	err = c.followers[0].waitFor(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for _, p := range c.followers {
		err = errors.Join(err, p.endedEarly())
	}
	return err
}
