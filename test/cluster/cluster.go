package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// OperatorNamespace is the namespace of the operator and its operands.
const OperatorNamespace = "gpu-operator"

// Options configures a control plane.
type Options struct {
	// Version is as for EnsureBinaries. Start builds missing programs; call EnsureBinaries first to keep that out of
	// Start's deadline.
	Version string
	// Dir is the folder for data, logs and credentials, which is kept. The default is a temporary folder that Stop
	// removes.
	Dir string
	// Address is the IPv4 address that the API server listens on; the default is loopback. With another address of this
	// machine real nodes can join: the API server is then an endpoint of its own Service.
	Address netip.Addr
	// Stages are absolute paths of files with further Stages for kwok, such as FastPodStages. By default kwok does not
	// simulate pods.
	Stages []string
	// FeatureGates are enabled in all programs of Kubernetes, such as GangScheduling. One that the release does not have
	// keeps the programs from starting.
	FeatureGates []string
	// APIs are served beside those that the release serves by default, such as scheduling.k8s.io/v1alpha2.
	APIs []string
	// Untuned runs the programs with their defaults. Otherwise they are tuned to use less CPU: they collect garbage
	// rarely, and the controller-manager works in fewer and larger steps.
	Untuned bool
	// RealNodes starts no kwok: there are no simulated nodes.
	RealNodes bool
	// Bare starts only etcd and the API server: no controller acts on objects, and pods need no ServiceAccount.
	Bare bool
}

// Cluster is a running control plane.
type Cluster struct {
	// Config has all permissions and no client-side rate limit. Its requests are in the audit log.
	Config *rest.Config
	// SimulatorConfig is the same for a user whose requests are not in the audit log.
	SimulatorConfig *rest.Config
	// Version is the version of the API server, such as v1.36.3.
	Version string
	// LogDir has one log for each process.
	LogDir string
	// AuditLog is the path of the API server's audit log.
	AuditLog string

	dir       string
	address   netip.Addr
	stages    []string
	temporary bool
	gates     []string
	apis      []string
	untuned   bool
	realNodes bool
	// bare is a control plane of only etcd and the API server.
	bare        bool
	release     release
	port        *reservedPort
	etcdPort    *reservedPort
	credentials *credentials
	etcd        *server
	apiServer   *server
	// clients are the processes that use the API server: controller-manager, scheduler and kwok.
	clients []*process
}

// Start starts a control plane and returns once it accepts requests and its controllers run.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	rel, err := findRelease(root, opts.Version)
	if err != nil {
		return nil, err
	}
	if err := rel.ensure(ctx, os.Stderr); err != nil {
		return nil, err
	}
	c := &Cluster{release: rel, address: opts.Address, stages: opts.Stages, bare: opts.Bare}
	c.gates, c.apis, c.untuned = opts.FeatureGates, opts.APIs, opts.Untuned
	c.realNodes = opts.RealNodes
	if !c.address.IsValid() {
		c.address = loopback
	}
	if !c.address.Is4() {
		return nil, fmt.Errorf("start control plane: the address %s is not an IPv4 address", c.address)
	}
	if err := c.start(ctx, opts.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane %s: %w", rel.version, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string) error {
	if err := c.prepare(dir); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.readVersion(); err != nil {
		return err
	}
	if c.bare {
		return nil
	}
	return c.startClients(ctx)
}

// prepare creates everything that the processes read: folders, port, credentials, configuration.
func (c *Cluster) prepare(dir string) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "gpu-operator-cluster-")
		if err != nil {
			return fmt.Errorf("make cluster folder: %w", err)
		}
		c.temporary, dir = true, temp
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("resolve cluster folder: %w", err)
	}
	c.dir, c.LogDir = dir, filepath.Join(dir, "logs")
	c.AuditLog = filepath.Join(c.LogDir, "audit.log")
	if err := os.MkdirAll(c.LogDir, 0o755); err != nil {
		return fmt.Errorf("make log folder: %w", err)
	}
	if c.port, err = reservePort(c.address); err != nil {
		return err
	}
	if c.etcdPort, err = reservePort(loopback); err != nil {
		return err
	}
	if c.credentials, err = newCredentials(dir, c.address); err != nil {
		return err
	}
	if err := writeManifests(dir); err != nil {
		return err
	}
	url := "https://" + c.port.address().String()
	c.Config = c.credentials.config(url, userAdmin)
	c.SimulatorConfig = c.credentials.config(url, userSimulator)
	for _, user := range users {
		if err := writeKubeconfig(c.kubeconfig(user), c.credentials.config(url, user)); err != nil {
			return err
		}
	}
	return nil
}

// readVersion reads the version of the API server, which may differ from the release's if AssetsVariable is set.
func (c *Cluster) readVersion() error {
	client, err := kubernetes.NewForConfig(c.SimulatorConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("read the version of the API server: %w", err)
	}
	c.Version = version.GitVersion
	return nil
}

// Kubeconfig returns the path of a kubeconfig with all permissions.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig(userAdmin) }

// KubeletKubeconfig returns the path of a kubeconfig for the kubelet of a real node, whose requests are
// not in the audit log.
func (c *Cluster) KubeletKubeconfig() string { return c.kubeconfig(userKubelet) }

func (c *Cluster) kubeconfig(user string) string {
	return filepath.Join(c.dir, kubeconfigNames[user]+".kubeconfig")
}

// Stop ends all processes and removes a temporary folder.
func (c *Cluster) Stop() error {
	var group errgroup.Group
	for _, p := range c.clients {
		group.Go(p.stop)
	}
	err := group.Wait()
	// etcd is last, so that the API server can finish; both are killed, as their data is not kept.
	for _, s := range []*server{c.apiServer, c.etcd} {
		if s != nil {
			s.kill()
			s.close()
		}
	}
	for _, port := range []*reservedPort{c.port, c.etcdPort} {
		if port != nil {
			port.release()
		}
	}
	if c.temporary {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}
